//! Why the layer does not let a request through, and what it answers.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Response, StatusCode, Uri};

use super::grpc;
use super::meaning::{Cut, Meaning, meaning};
use super::problem;
use super::protocol::Protocol;
use crate::error::LockError;

/// A request that the layer answers itself, for [`LockLayer::on_rejected`](super::LockLayer::on_rejected).
///
/// ```
/// use distlock::LockClient;
/// use distlock::layer::LockLayer;
/// use http::Response;
///
/// let locks = LockClient::in_memory();
/// let layer = LockLayer::new(&locks, "report:<header:x-tenant>").on_rejected(|rejection| {
///     let german = rejection.headers().get("accept-language").is_some_and(|value| value == "de");
///     let text = if german { "Besetzt, bitte noch einmal." } else { "System busy, please retry." };
///     let mut response = Response::new(text);
///     *response.status_mut() = rejection.status();
///     response
/// });
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub struct Rejection {
    error: LockError,
    cut: Cut,
    protocol: Protocol,
    head: Head,
    disclosure: Disclosure,
}

/// What is kept of the request, for an answer of the user's own.
#[derive(Clone, Debug, Default)]
pub(crate) struct Head {
    pub(crate) method: Method,
    pub(crate) uri: Uri,
    pub(crate) headers: HeaderMap,
}

/// Whether the answer names key and owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Disclosure {
    KeyAndOwner,
    Nothing,
}

impl Rejection {
    pub(crate) fn new(error: LockError, cut: Cut, protocol: Protocol, head: Head) -> Self {
        Self { error, cut, protocol, head, disclosure: Disclosure::Nothing }
    }

    pub(crate) fn disclosing(self, disclosure: Disclosure) -> Self {
        Self { disclosure, ..self }
    }

    /// What happened. Its text names key and owner, which are nobody's business outside.
    #[must_use]
    pub fn error(&self) -> &LockError {
        &self.error
    }

    /// The status that the layer would answer an HTTP request with.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        self.meaning().status
    }

    /// When a new try is worth while, as far as it is known.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        if self.is_past_deadline() { None } else { self.error.retry_after() }
    }

    /// Whether the request's own deadline ended the wait, not the layer's `wait`.
    #[must_use]
    pub fn is_past_deadline(&self) -> bool {
        self.cut == Cut::ByDeadline
    }

    /// Whether the request is a gRPC call, by its content type. Such a client wants a status in the
    /// headers of a response without a body, as [`response`](Self::response) makes it.
    #[must_use]
    pub fn is_grpc(&self) -> bool {
        matches!(self.protocol, Protocol::Grpc { .. })
    }

    /// The method of the request.
    #[must_use]
    pub fn method(&self) -> &Method {
        &self.head.method
    }

    /// The URI of the request, as the layer saw it.
    #[must_use]
    pub fn uri(&self) -> &Uri {
        &self.head.uri
    }

    /// The headers of the request.
    #[must_use]
    pub fn headers(&self) -> &HeaderMap {
        &self.head.headers
    }

    /// The answer that the layer gives by itself: `application/problem+json` for HTTP, a status for
    /// gRPC.
    #[must_use]
    pub fn response(&self) -> Response<Bytes> {
        let meaning = self.meaning();
        match &self.protocol {
            Protocol::Grpc { content_type } => grpc::response(self, &meaning, content_type),
            Protocol::Http => problem::response(self, &meaning),
        }
    }

    /// Traces it.
    pub(crate) fn report(&self) {
        self.meaning().report(&self.error);
    }

    pub(crate) fn meaning(&self) -> Meaning {
        meaning(self.error.kind(), self.cut)
    }

    /// What is told only if the user asked for it.
    pub(crate) fn details(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let disclosed = match self.disclosure {
            Disclosure::KeyAndOwner => [("key", self.error.key()), ("owner", self.error.owner())],
            Disclosure::Nothing => [("key", None), ("owner", None)],
        };
        disclosed.into_iter().filter_map(|(name, value)| Some((name, value?)))
    }
}
