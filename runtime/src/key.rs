//! Keys: what a template becomes once its placeholders are filled in.

use std::borrow::Cow;
use std::fmt::{self, Display, Write};

use distlock_template::Escaped;

use crate::error::{LockError, LockErrorKind};
use crate::options::LockOptions;

/// The key of a lock, and the name that it has in metrics and logs.
///
/// Made by [`lock_key!`](crate::lock_key), by a [`lock_template!`](crate::lock_template) or, without
/// placeholders, by [`LockKey::literal`]. A key that cannot be (an empty part, say) is refused where
/// it is used, with an error of kind `InvalidKey`; [`check`](Self::check) tells earlier.
#[derive(Clone, Debug)]
#[must_use]
pub struct LockKey {
    text: Cow<'static, str>,
    template: Cow<'static, str>,
    options: LockOptions,
    fault: Option<Fault>,
}

#[derive(Clone, Debug)]
enum Fault {
    EmptyText,
    EmptyValue { placeholder: Cow<'static, str> },
    PlaceholderInLiteral,
    ValueFailed { placeholder: Cow<'static, str> },
}

impl LockKey {
    /// Creates a key from a text without placeholders. A `<` or `>` in it makes it invalid: a text
    /// with placeholders is for [`lock_key!`](crate::lock_key).
    ///
    /// ```
    /// use distlock::LockKey;
    ///
    /// assert!(LockKey::literal("jobs:nightly").check().is_ok());
    /// assert!(LockKey::literal("stock:lock:<sku_id>").check().is_err());
    /// ```
    pub fn literal(text: impl Into<Cow<'static, str>>) -> Self {
        let template = text.into();
        let text = template.clone();
        let fault = if text.contains(['<', '>']) {
            Some(Fault::PlaceholderInLiteral)
        } else if is_blank(&text) {
            Some(Fault::EmptyText)
        } else {
            None
        };
        Self { text, template, options: LockOptions::new(), fault }
    }

    /// Tells whether the key can be used.
    ///
    /// # Errors
    ///
    /// `InvalidKey`: a value is empty or all white space, or a literal contains a placeholder.
    pub fn check(&self) -> Result<(), LockError> {
        let Some(fault) = &self.fault else { return Ok(()) };
        let template = &self.template;
        let message = match fault {
            Fault::EmptyText => "a lock key needs a text, this one is empty".into(),
            Fault::EmptyValue { placeholder } => format!(
                "<{placeholder}> of the key template {template:?} is empty: unrelated calls would \
                 share one lock"
            ),
            Fault::PlaceholderInLiteral => format!(
                "{template:?} contains `<` or `>`, which LockKey::literal takes literally: write \
                 lock_key!({template:?}) to fill placeholders in"
            ),
            Fault::ValueFailed { placeholder } => format!(
                "the Display implementation of <{placeholder}> of the key template {template:?} \
                 returned an error"
            ),
        };
        Err(LockError::new(LockErrorKind::InvalidKey, message))
    }

    /// The text of the key, without the client's namespace.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The template that the key was made from.
    #[must_use]
    pub fn template(&self) -> &str {
        &self.template
    }

    /// The settings declared with the key, by [`lock_template!`](crate::lock_template).
    pub(crate) fn options(&self) -> &LockOptions {
        &self.options
    }

    /// The key as it stands in the store.
    pub(crate) fn into_namespace(self, namespace: Option<&str>) -> Cow<'static, str> {
        match namespace {
            Some(namespace) => format!("{namespace}:{}", self.text).into(),
            None => self.text,
        }
    }
}

impl Display for LockKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// What can stand in a key.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a part of a lock key",
    label = "has a placeholder whose value is not `Display`",
    note = "a part of a key is rendered by `Display`; name a field or a method that has it, as in `<order.id>` or `<name.as_str()>`",
    note = "an `Option` has no text of its own: unwrap it before, so that `None` is no shared lock"
)]
pub trait KeyPart: Display {}

#[diagnostic::do_not_recommend]
impl<T: Display + ?Sized> KeyPart for T {}

/// Fills a template in, piece by piece. What the macros expand to.
#[derive(Debug)]
#[must_use]
pub struct KeyBuilder {
    text: String,
    template: Cow<'static, str>,
    options: LockOptions,
    fault: Option<Fault>,
}

impl KeyBuilder {
    /// Starts the key of `template`.
    pub fn new(template: impl Into<Cow<'static, str>>) -> Self {
        let template = template.into();
        let text = String::with_capacity(template.len() + 16);
        Self { text, template, options: LockOptions::new(), fault: None }
    }

    /// Appends text of the template, brackets already unescaped.
    pub fn literal(mut self, text: &str) -> Self {
        self.text.push_str(text);
        self
    }

    /// Appends the value of a placeholder.
    pub fn value<V: KeyPart + ?Sized>(
        mut self,
        placeholder: impl Into<Cow<'static, str>>,
        value: &V,
    ) -> Self {
        let mut escaped = Escaped::new(&mut self.text);
        let fault = if write!(escaped, "{value}").is_err() {
            Fault::ValueFailed { placeholder: placeholder.into() }
        } else if escaped.is_blank() {
            Fault::EmptyValue { placeholder: placeholder.into() }
        } else {
            return self;
        };
        self.fault.get_or_insert(fault);
        self
    }

    /// Sets what the template declares besides the key.
    pub fn options(mut self, options: LockOptions) -> Self {
        self.options = options;
        self
    }

    /// Ends the key.
    pub fn finish(self) -> LockKey {
        let Self { text, template, options, mut fault } = self;
        if is_blank(&text) {
            fault.get_or_insert(Fault::EmptyText);
        }
        LockKey { text: text.into(), template, options, fault }
    }
}

fn is_blank(text: &str) -> bool {
    text.chars().all(char::is_whitespace)
}
