//! The lock in handlers of axum.

use ::axum::body::Body;
use ::axum::extract::{FromRequestParts, OptionalFromRequestParts};
use ::axum::response::{IntoResponse, Response};
use http::request::Parts;
use std::convert::Infallible;

use super::extension::NOT_LOCKED;
use super::meaning::Cut;
use super::protocol::Protocol;
use super::rejection::{Head, Rejection};
use crate::error::LockError;
use crate::held::HeldLock;
use crate::telemetry;

/// As an argument of a handler: the lock that it runs under. A handler that is mounted without one
/// does not run: 500. `Option<HeldLock>` is `None` then.
impl<S: Send + Sync> FromRequestParts<S> for HeldLock {
    type Rejection = LockMissing;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, LockMissing> {
        Self::of_request(&parts.extensions).map_err(LockMissing)
    }
}

impl<S: Send + Sync> OptionalFromRequestParts<S> for HeldLock {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Option<Self>, Infallible> {
        Ok(parts.extensions.get::<Self>().cloned())
    }
}

/// A handler demands its lock, and the request runs under none.
#[derive(Debug)]
pub struct LockMissing(LockError);

impl LockMissing {
    /// What to do about it.
    #[must_use]
    pub fn body_text(&self) -> &'static str {
        NOT_LOCKED
    }
}

impl std::fmt::Display for LockMissing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(NOT_LOCKED)
    }
}

impl std::error::Error for LockMissing {}

/// 500, with a text for whoever mounts the route: it tells nothing of keys or owners.
impl IntoResponse for LockMissing {
    fn into_response(self) -> Response {
        telemetry::route_misconfigured(&self.0);
        (http::StatusCode::INTERNAL_SERVER_ERROR, NOT_LOCKED).into_response()
    }
}

/// As [`LockLayer`](crate::layer::LockLayer) answers: for handlers that return the errors of locks that
/// they take themselves.
impl IntoResponse for LockError {
    fn into_response(self) -> Response {
        let rejection = Rejection::new(self, Cut::No, Protocol::Http, Head::default());
        rejection.report();
        rejection.response().map(Body::from)
    }
}
