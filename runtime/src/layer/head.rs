//! What a key is made from: the head of a request.

use std::borrow::Cow;
use std::fmt;

use distlock_template::ValueType;
use http::request::Parts;
use http::{Extensions, HeaderMap, Method, Uri};

use super::percent;
use super::route::{self, Route};
use crate::error::{LockError, LockErrorKind};

/// The head of a request, for functions that make a key of it.
///
/// What is missing, given twice or malformed is an error of kind `InvalidKey`: the request is
/// answered with 400 and the store is not asked.
#[derive(Clone, Copy)]
pub struct RequestHead<'a> {
    parts: &'a Parts,
    route: &'a Route,
}

impl<'a> RequestHead<'a> {
    pub(crate) fn new(parts: &'a Parts, route: &'a Route) -> Self {
        Self { parts, route }
    }

    /// The method.
    #[must_use]
    pub fn method(&self) -> &'a Method {
        &self.parts.method
    }

    /// The URI as the layer sees it; inside a nested router without the router's prefix.
    #[must_use]
    pub fn uri(&self) -> &'a Uri {
        &self.parts.uri
    }

    /// All headers.
    #[must_use]
    pub fn headers(&self) -> &'a HeaderMap {
        &self.parts.headers
    }

    /// What middleware further out has left with the request, such as who asks.
    #[must_use]
    pub fn extensions(&self) -> &'a Extensions {
        &self.parts.extensions
    }

    /// The one value of a header; in gRPC, of the metadata.
    ///
    /// # Errors
    ///
    /// `InvalidKey`: it is missing, there twice, or no visible ASCII text.
    pub fn header(&self, name: &str) -> Result<&'a str, LockError> {
        let mut values = self.parts.headers.get_all(name).iter();
        let (first, second) = (values.next(), values.next());
        let value = only(first, second, format_args!("header `{name}`"))?;
        value.to_str().map_err(|_| invalid(format!("the header `{name}` is no ASCII text")))
    }

    /// The one value of a field of the query, decoded.
    ///
    /// # Errors
    ///
    /// `InvalidKey`: it is missing, there twice, or not UTF-8.
    pub fn query(&self, name: &str) -> Result<Cow<'a, str>, LockError> {
        let fields = self.parts.uri.query().unwrap_or_default().split('&');
        let mut values = fields.filter_map(|field| {
            let (key, value) = field.split_once('=').unwrap_or((field, ""));
            percent::field(key).is_ok_and(|key| key == name).then_some(value)
        });
        let (first, second) = (values.next(), values.next());
        let value = only(first, second, format_args!("query field `{name}`"))?;
        percent::field(value).map_err(|_| invalid(format!("the query field `{name}` is not UTF-8")))
    }

    /// A parameter of the route's path, decoded.
    ///
    /// # Errors
    ///
    /// `Config`: the route has no such parameter, or the layer stands where no route is known.
    #[cfg(feature = "axum")]
    pub fn parameter(&self, name: &str) -> Result<&'a str, LockError> {
        self.route.parameter(name)
    }

    #[cfg(not(feature = "axum"))]
    pub(crate) fn parameter(&self, name: &str) -> Result<&'a str, LockError> {
        self.route.parameter(name)
    }

    /// The whole path, in one spelling: decoded but for `/` and `%` inside a segment.
    pub(crate) fn path(&self) -> Result<Cow<'a, str>, LockError> {
        percent::path(route::whole_uri(self.parts).path())
            .map_err(|_| invalid("the path is not UTF-8".to_owned()))
    }
}

impl fmt::Debug for RequestHead<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestHead")
            .field("method", self.method())
            .field("uri", self.uri())
            .field("headers", self.headers())
            .finish_non_exhaustive()
    }
}

/// A part that should be of a type and is not. Its value stays unnamed: it may be long, or secret.
pub(crate) fn mistyped(placeholder: &str, value_type: ValueType) -> LockError {
    let name = match value_type {
        ValueType::Signed { bits } => format!("an integer of {bits} bits"),
        ValueType::Text => "a text".to_owned(),
        ValueType::Unsigned { bits } => format!("an unsigned integer of {bits} bits"),
        ValueType::Uuid => "a UUID".to_owned(),
    };
    invalid(format!("`<{placeholder}>` of the lock's key is not {name} in this request"))
}

pub(crate) fn invalid(message: String) -> LockError {
    LockError::new(LockErrorKind::InvalidKey, message)
}

/// Two values would be two keys, and the handler might look at the other one.
fn only<T>(first: Option<T>, second: Option<T>, what: fmt::Arguments<'_>) -> Result<T, LockError> {
    match (first, second) {
        (Some(value), None) => Ok(value),
        (None, _) => Err(invalid(format!("the request has no {what}"))),
        (Some(_), Some(_)) => Err(invalid(format!("the request has two values for the {what}"))),
    }
}
