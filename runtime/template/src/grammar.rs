//! What a key template is: literal text and placeholders.
//!
//! Decides where a placeholder begins and ends, and that different values always give different
//! keys. What may stand inside the brackets is left to the user of the template: the attribute
//! takes Rust expressions there, the tower layer parts of a request.

use std::borrow::Cow;
use std::error::Error;
use std::fmt;
use std::ops::Range;

use crate::escape::is_encoded;

/// A key template, taken apart.
///
/// Text outside `<...>` is literal; `<<` and `>>` stand for the brackets themselves.
///
/// ```
/// use distlock_template::{Segment, Template};
///
/// let template = Template::parse("stock:lock:<sku_id>")?;
///
/// let [Segment::Literal(text), Segment::Placeholder(sku_id)] = template.segments() else { panic!() };
/// assert_eq!(text, "stock:lock:");
/// assert_eq!(sku_id.text(), "sku_id");
/// assert_eq!(sku_id.span(), 11..19);
/// # Ok::<(), distlock_template::TemplateError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template<'t> {
    segments: Vec<Segment<'t>>,
}

/// A piece of a template.
#[derive(Clone, Debug, PartialEq, Eq)]
// Exhaustive: whoever fills a template in has to handle all there is.
pub enum Segment<'t> {
    /// Text that is in every key of the template, brackets already unescaped.
    Literal(Cow<'t, str>),
    /// What is replaced by a value.
    Placeholder(Placeholder<'t>),
}

/// `<...>` in a template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placeholder<'t> {
    text: &'t str,
    span: Range<usize>,
}

/// What is wrong with a template, where, and what to write.
///
/// Its text quotes the template with a caret line, for whoever cannot point into the literal.
///
/// ```
/// let error = distlock_template::Template::parse("stock:<>:lock").unwrap_err();
///
/// assert_eq!(error.to_string(), "\
/// a placeholder is empty, so every call would share one lock
///   stock:<>:lock
///         ^^
/// name the value between the brackets, as in `<sku_id>`; for literal brackets write `<<>>`");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TemplateError {
    template: String,
    span: Range<usize>,
    message: Cow<'static, str>,
    remedy: Cow<'static, str>,
}

impl<'t> Template<'t> {
    /// Takes `template` apart.
    ///
    /// # Errors
    ///
    /// The first thing that is wrong: an empty template, brackets that are unmatched, nested or
    /// empty, or two placeholders whose values could run into each other.
    pub fn parse(template: &'t str) -> Result<Self, TemplateError> {
        if template.trim().is_empty() {
            return Err(TemplateError::new(
                template,
                0..template.len(),
                "a key template needs a text, this one is empty",
                "write what the lock is for and the value that it is for, as in \
                 `stock:lock:<sku_id>`",
            ));
        }
        let segments = split(template)?;
        check_separators(template, &segments)?;
        Ok(Self { segments })
    }

    /// The pieces in their order. Literals are never empty and never adjacent.
    #[must_use]
    pub fn segments(&self) -> &[Segment<'t>] {
        &self.segments
    }

    /// The placeholders in their order.
    pub fn placeholders(&self) -> impl Iterator<Item = &Placeholder<'t>> {
        self.segments.iter().filter_map(|segment| match segment {
            Segment::Literal(_) => None,
            Segment::Placeholder(placeholder) => Some(placeholder),
        })
    }
}

impl<'t> Placeholder<'t> {
    /// What stands between the brackets, without white space around it.
    #[must_use]
    pub fn text(&self) -> &'t str {
        self.text
    }

    /// Where it stands in the template, in bytes, brackets included.
    #[must_use]
    pub fn span(&self) -> Range<usize> {
        self.span.clone()
    }
}

impl TemplateError {
    /// Says what is wrong at `span` (bytes of `template`) and how to mend it.
    pub fn new(
        template: &str,
        span: Range<usize>,
        message: impl Into<Cow<'static, str>>,
        remedy: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self { template: template.to_owned(), span, message: message.into(), remedy: remedy.into() }
    }

    /// Where in the template, in bytes.
    #[must_use]
    pub fn span(&self) -> Range<usize> {
        self.span.clone()
    }

    /// What is wrong, in one line.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }

    /// What to write instead, in one line.
    #[must_use]
    pub fn remedy(&self) -> &str {
        &self.remedy
    }
}

impl fmt::Display for TemplateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { template, span, message, remedy } = self;
        let visible = |text: &str| text.escape_debug().to_string().replace("\\\"", "\"");
        let before = visible(&template[..span.start]).chars().count();
        let marked = visible(&template[span.clone()]).chars().count().max(1);
        writeln!(f, "{message}")?;
        if !template.trim().is_empty() {
            writeln!(f, "  {}", visible(template))?;
            writeln!(f, "  {:before$}{:^<marked$}", "", "")?;
        }
        f.write_str(remedy)
    }
}

impl Error for TemplateError {}

fn split(template: &str) -> Result<Vec<Segment<'_>>, TemplateError> {
    let mut segments = Vec::new();
    let mut literal = Literal::default();
    let mut at = 0;
    while let Some(bracket) = template[at..].find(['<', '>']).map(|offset| at + offset) {
        literal.push(&template[at..bracket]);
        let rest = &template[bracket..];
        if rest.starts_with("<<") || rest.starts_with(">>") {
            literal.push(&rest[..1]);
            at = bracket + 2;
        } else if rest.starts_with('>') {
            return Err(TemplateError::new(
                template,
                bracket..bracket + 1,
                "`>` closes no placeholder",
                "open one before it, as in `<sku_id>`; for a literal `>` write `>>`",
            ));
        } else {
            let placeholder = placeholder(template, bracket)?;
            at = placeholder.span.end;
            literal.finish_into(&mut segments);
            segments.push(Segment::Placeholder(placeholder));
        }
    }
    literal.push(&template[at..]);
    literal.finish_into(&mut segments);
    Ok(segments)
}

fn placeholder(template: &str, open: usize) -> Result<Placeholder<'_>, TemplateError> {
    let inside = open + 1;
    let end = template[inside..].find(['<', '>']).map(|offset| inside + offset);
    match end {
        Some(close) if template[close..].starts_with('>') => {
            let span = open..close + 1;
            let text = template[inside..close].trim();
            if text.is_empty() {
                return Err(TemplateError::new(
                    template,
                    span,
                    "a placeholder is empty, so every call would share one lock",
                    "name the value between the brackets, as in `<sku_id>`; for literal brackets \
                     write `<<>>`",
                ));
            }
            Ok(Placeholder { text, span })
        }
        Some(nested) => Err(TemplateError::new(
            template,
            open..nested + 1,
            "`<` stands inside a placeholder",
            "close the placeholder first, as in `<sku_id>`; for a literal `<` write `<<`",
        )),
        None => Err(TemplateError::new(
            template,
            open..template.len(),
            "`<` opens a placeholder that is never closed",
            "close it, as in `<sku_id>`; for a literal `<` write `<<`",
        )),
    }
}

/// Refuses placeholders whose values could run into each other: `<a>-<b>` gives `1-2-3` for
/// ("1-2", "3") and for ("1", "2-3").
fn check_separators(template: &str, segments: &[Segment<'_>]) -> Result<(), TemplateError> {
    let mut previous: Option<(&Placeholder<'_>, bool)> = None;
    for segment in segments {
        match segment {
            Segment::Literal(text) => {
                if let Some((_, separated)) = &mut previous {
                    *separated |= text.contains(separates);
                }
            }
            Segment::Placeholder(placeholder) => {
                if let Some((before, false)) = previous {
                    return Err(TemplateError::new(
                        template,
                        before.span.start..placeholder.span.end,
                        format!(
                            "the values of `<{}>` and `<{}>` run into each other, so different \
                             arguments could share one lock",
                            before.text, placeholder.text
                        ),
                        format!(
                            "separate them by a character that no value contains, such as `:`, as \
                             in `<{}>:<{}>`",
                            before.text, placeholder.text
                        ),
                    ));
                }
                previous = Some((placeholder, false));
            }
        }
    }
    Ok(())
}

/// Whether a character of the template cannot come from a value. `%` can: it starts what an
/// encoded character becomes, and `x%3A%3A` would be ("x:", "3A") as well as ("x", "3A:").
fn separates(character: char) -> bool {
    is_encoded(character) && character != '%'
}

/// Collects literal text; borrows as long as it is one piece.
#[derive(Default)]
struct Literal<'t>(Cow<'t, str>);

impl<'t> Literal<'t> {
    fn push(&mut self, text: &'t str) {
        if self.0.is_empty() {
            self.0 = Cow::Borrowed(text);
        } else if !text.is_empty() {
            self.0.to_mut().push_str(text);
        }
    }

    fn finish_into(&mut self, segments: &mut Vec<Segment<'t>>) {
        let text = std::mem::take(&mut self.0);
        if !text.is_empty() {
            segments.push(Segment::Literal(text));
        }
    }
}
