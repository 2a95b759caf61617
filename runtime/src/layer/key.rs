//! Which lock a request needs: a function of the request, or a template that is filled in from it.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use distlock_template::{RoutePart, RouteSource, Segment, Template, TemplateError, ValueType};

use super::head::{RequestHead, mistyped};
use super::route::{PATH_PARAMETERS, PathParameters};
use super::value::Value;
use crate::error::{LockError, LockErrorKind};
use crate::key::{KeyBuilder, LockKey};
use crate::options::LockOptions;
use crate::template;

/// Finds the key of a request's lock.
///
/// Functions do, from `&RequestHead<'_>` to a [`LockKey`] or a `Result<LockKey, LockError>`:
///
/// ```
/// use distlock::layer::{LockLayer, RequestHead};
/// use distlock::{LockClient, LockError, LockKey, lock_key};
///
/// fn tenant(request: &RequestHead<'_>) -> Result<LockKey, LockError> {
///     let tenant = request.header("x-tenant")?;
///     let plan = if tenant.starts_with("free-") { "free" } else { tenant };
///     Ok(lock_key!("report:<plan>"))
/// }
///
/// let locks = LockClient::in_memory();
/// let layer = LockLayer::with_key(&locks, tenant);
/// ```
pub trait ExtractKey: Send + Sync + 'static {
    /// The key for `request`.
    ///
    /// # Errors
    ///
    /// `InvalidKey`: the request lacks what the key is made of. It is answered with 400.
    fn extract_key(&self, request: &RequestHead<'_>) -> Result<LockKey, LockError>;
}

impl<F, K> ExtractKey for F
where
    F: Fn(&RequestHead<'_>) -> K + Send + Sync + 'static,
    K: IntoKey,
{
    fn extract_key(&self, request: &RequestHead<'_>) -> Result<LockKey, LockError> {
        self(request).into_key()
    }
}

/// What a function that makes keys may return.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no lock key",
    note = "return a `LockKey`, or a `Result<LockKey, LockError>`"
)]
pub trait IntoKey {
    /// The key, or why there is none.
    ///
    /// # Errors
    ///
    /// Those of the function.
    fn into_key(self) -> Result<LockKey, LockError>;
}

impl IntoKey for LockKey {
    fn into_key(self) -> Result<LockKey, LockError> {
        Ok(self)
    }
}

impl IntoKey for Result<LockKey, LockError> {
    fn into_key(self) -> Result<LockKey, LockError> {
        self
    }
}

/// What [`LockLayer::new`](super::LockLayer::new) takes: a template as text, or a lock declared by
/// [`lock_template!`](crate::lock_template).
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no template of a lock key",
    note = "write the template as a text (`\"stock:lock:<sku_id as u64>\"`), name a lock declared by \
            `lock_template!`, or give a function to `LockLayer::with_key`"
)]
pub trait RouteTemplate {
    /// The text of the template, and what is declared with it.
    #[doc(hidden)]
    fn into_parts(self) -> (Cow<'static, str>, LockOptions);
}

impl RouteTemplate for &'static str {
    fn into_parts(self) -> (Cow<'static, str>, LockOptions) {
        (Cow::Borrowed(self), LockOptions::new())
    }
}

impl RouteTemplate for String {
    fn into_parts(self) -> (Cow<'static, str>, LockOptions) {
        (Cow::Owned(self), LockOptions::new())
    }
}

impl<T: template::Template> RouteTemplate for T {
    fn into_parts(self) -> (Cow<'static, str>, LockOptions) {
        (Cow::Borrowed(T::TEMPLATE), T::options())
    }
}

/// Where a layer has its keys from.
#[derive(Clone)]
pub(crate) enum KeySource {
    Function(Arc<dyn ExtractKey>),
    Template(Arc<RouteKey>),
}

impl KeySource {
    pub(crate) fn key(&self, request: &RequestHead<'_>) -> Result<LockKey, LockError> {
        match self {
            Self::Function(function) => function.extract_key(request),
            Self::Template(template) => template.key(request),
        }
    }
}

impl KeySource {
    /// What is declared with the template.
    pub(crate) fn options(&self) -> LockOptions {
        match self {
            Self::Function(_) => LockOptions::new(),
            Self::Template(template) => template.options.clone(),
        }
    }
}

impl fmt::Debug for KeySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Function(_) => f.write_str("Function"),
            Self::Template(key) => key.template.fmt(f),
        }
    }
}

/// A template, taken apart and checked.
#[derive(Debug)]
pub(crate) struct RouteKey {
    template: Cow<'static, str>,
    options: LockOptions,
    pieces: Vec<Piece>,
}

#[derive(Debug)]
enum Piece {
    Literal(String),
    Value { placeholder: Cow<'static, str>, source: Source, value_type: ValueType },
}

#[derive(Debug)]
enum Source {
    Header(String),
    Method,
    Parameter(String),
    Path,
    Query(String),
}

impl RouteKey {
    pub(crate) fn new(template: impl RouteTemplate) -> Result<Self, LockError> {
        let (template, options) = template.into_parts();
        let pieces = pieces(&template, PATH_PARAMETERS)
            .map_err(|error| LockError::new(LockErrorKind::Config, error.to_string()))?;
        Ok(Self { template, options, pieces })
    }

    fn key(&self, request: &RequestHead<'_>) -> Result<LockKey, LockError> {
        let mut key = KeyBuilder::new(self.template.clone()).options(self.options.clone());
        for piece in &self.pieces {
            key = match piece {
                Piece::Literal(text) => key.literal(text),
                Piece::Value { placeholder, source, value_type } => {
                    let text = source.read(request)?;
                    let value = Value::read(text, *value_type)
                        .ok_or_else(|| mistyped(placeholder, *value_type))?;
                    key.value(placeholder.clone(), &value)
                }
            };
        }
        Ok(key.finish())
    }
}

impl Piece {
    fn read(
        template: &str,
        segment: &Segment<'_>,
        parameters: PathParameters,
    ) -> Result<Self, TemplateError> {
        let placeholder = match segment {
            Segment::Literal(text) => return Ok(Self::Literal(text.clone().into_owned())),
            Segment::Placeholder(placeholder) => placeholder,
        };
        let RoutePart { source, value_type } = RoutePart::parse(template, placeholder)?;
        if let (RouteSource::Parameter(name), PathParameters::Unknown) = (source, parameters) {
            return Err(TemplateError::new(
                template,
                placeholder.span(),
                format!("`<{name}>` is a parameter of the path, which only a router knows"),
                "switch on the feature \"axum\" of distlock, or give the layer a function",
            ));
        }
        let source = match source {
            RouteSource::Header(name) => Source::Header(name.to_owned()),
            RouteSource::Method => Source::Method,
            RouteSource::Parameter(name) => Source::Parameter(name.to_owned()),
            RouteSource::Path => Source::Path,
            RouteSource::Query(name) => Source::Query(name.to_owned()),
        };
        let placeholder = Cow::Owned(placeholder.text().to_owned());
        Ok(Self::Value { placeholder, source, value_type })
    }
}

impl Source {
    fn read<'a>(&self, request: &RequestHead<'a>) -> Result<Cow<'a, str>, LockError> {
        match self {
            Self::Header(name) => request.header(name).map(Cow::Borrowed),
            Self::Method => Ok(Cow::Borrowed(request.method().as_str())),
            Self::Parameter(name) => request.parameter(name).map(Cow::Borrowed),
            Self::Path => request.path(),
            Self::Query(name) => request.query(name),
        }
    }
}

fn pieces(template: &str, parameters: PathParameters) -> Result<Vec<Piece>, TemplateError> {
    let parsed = Template::parse(template)?;
    parsed.segments().iter().map(|segment| Piece::read(template, segment, parameters)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_router_a_parameter_of_the_path_names_the_feature() {
        let error = pieces("stock:<sku_id as u64>", PathParameters::Unknown).unwrap_err();

        assert!(error.to_string().contains("feature \"axum\""), "{error}");
        assert!(error.to_string().contains("`<sku_id>`"), "{error}");
        assert!(pieces("stock:<header:x-tenant>", PathParameters::Unknown).is_ok());
    }
}
