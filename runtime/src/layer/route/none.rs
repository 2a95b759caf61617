//! Without a router whose routes could be asked for.

use http::Uri;
use http::request::Parts;

use super::Route;
use crate::error::LockError;

/// Whether a key can be made of parameters of the path.
pub(crate) const KNOWS_PARAMETERS: bool = false;

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
