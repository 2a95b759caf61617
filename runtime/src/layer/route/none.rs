//! Without a router whose routes could be asked for.

use http::Uri;
use http::request::Parts;

use super::{PathParameters, Route};
use crate::error::LockError;

pub(crate) const PATH_PARAMETERS: PathParameters = PathParameters::Unknown;

/// There are none.
#[derive(Debug)]
pub(crate) enum Parameters {}

impl Parameters {
    pub(crate) fn find(&self, _name: &str) -> Option<&str> {
        match *self {}
    }
}

#[expect(clippy::unnecessary_wraps, reason = "with a router there are errors")]
pub(crate) fn look(_parts: &mut Parts) -> Result<Route, LockError> {
    Ok(Route::NoRouter)
}

pub(crate) fn whole_uri(parts: &Parts) -> &Uri {
    &parts.uri
}
