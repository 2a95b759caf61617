//! Which route a request has matched, as far as that can be known: with axum's router it can.

use crate::error::{LockError, LockErrorKind};

#[cfg(feature = "axum")]
#[path = "route/axum.rs"]
mod router;
#[cfg(not(feature = "axum"))]
#[path = "route/none.rs"]
mod router;

use router::Parameters;
pub(crate) use router::{PATH_PARAMETERS, look, whole_uri};

/// Whether keys can be made of parameters of the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(dead_code, reason = "there is one router, or none")]
pub(crate) enum PathParameters {
    Known,
    Unknown,
}

/// Where the layer stands, for one request.
#[derive(Debug)]
#[cfg_attr(not(feature = "axum"), expect(dead_code, reason = "no router is known"))]
pub(crate) enum Route {
    /// Inside a router, at one of its routes.
    Matched(Parameters),
    /// Around a router, or where there is none.
    NoRouter,
    /// Inside a router, at its fallback: no route matches.
    Unmatched,
}

impl Route {
    /// A parameter of the path.
    pub(crate) fn parameter(&self, name: &str) -> Result<&str, LockError> {
        let message = match self {
            Self::Matched(parameters) => match parameters.find(name) {
                Some(value) => return Ok(value),
                None => format!(
                    "the route that matches has no `{{{name}}}`, of which the lock's key is made: \
                     mount the layer on routes that have it, by MethodRouter::route_layer"
                ),
            },
            Self::NoRouter => format!(
                "the lock's key is made of `{{{name}}}`, but the layer stands where no route is \
                 matched yet: mount it on the route, by MethodRouter::route_layer"
            ),
            Self::Unmatched => format!(
                "the lock's key is made of `{{{name}}}`, but no route matches, and the layer locks \
                 the fallback, too"
            ),
        };
        Err(LockError::new(LockErrorKind::Config, message))
    }
}
