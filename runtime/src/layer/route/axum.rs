//! axum's router: what it has found out about a request.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use axum::extract::rejection::RawPathParamsRejection;
use axum::extract::{FromRequestParts, MatchedPath, OriginalUri, RawPathParams};
use http::Uri;
use http::request::Parts;

use super::{PathParameters, Route};
use crate::error::LockError;
use crate::layer::head::invalid;

pub(crate) const PATH_PARAMETERS: PathParameters = PathParameters::Known;

/// The parameters of the path, decoded by the router; those of routers further out come first.
#[derive(Debug)]
pub(crate) struct Parameters(RawPathParams);

impl Parameters {
    pub(crate) fn find(&self, name: &str) -> Option<&str> {
        self.0.iter().filter(|(known, _)| *known == name).last().map(|(_, value)| value)
    }
}

/// Asks what the router has left with the request.
pub(crate) fn look(parts: &mut Parts) -> Result<Route, LockError> {
    let matched = parts.extensions.get::<MatchedPath>().is_some();
    match raw_path_params(parts) {
        Some(Ok(parameters)) if matched => Ok(Route::Matched(Parameters(parameters))),
        Some(Ok(_)) => Ok(Route::Unmatched),
        Some(Err(RawPathParamsRejection::InvalidUtf8InPathParam(_))) => {
            Err(invalid("a parameter of the path is not UTF-8".to_owned()))
        }
        Some(Err(_)) | None => Ok(Route::NoRouter),
    }
}

/// The URI before nested routers took their prefix off.
pub(crate) fn whole_uri(parts: &Parts) -> &Uri {
    parts.extensions.get::<OriginalUri>().map_or(&parts.uri, |original| &original.0)
}

/// The extractor awaits nothing, so one poll is enough.
fn raw_path_params(parts: &mut Parts) -> Option<Result<RawPathParams, RawPathParamsRejection>> {
    let extract = pin!(RawPathParams::from_request_parts(parts, &()));
    match extract.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(outcome) => Some(outcome),
        Poll::Pending => None,
    }
}
