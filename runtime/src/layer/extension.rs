//! The held lock in the extensions of a request.

use http::Extensions;

use crate::error::{LockError, LockErrorKind};
use crate::held::HeldLock;

impl HeldLock {
    /// The lock that the request with these extensions runs under, by a
    /// [`LockLayer`](crate::layer::LockLayer): for handlers that must not run without it. Of several
    /// layers it is the innermost one's.
    ///
    /// # Errors
    ///
    /// `Config`: the request runs under no lock; the text says how to mount the layer. A handler that
    /// returns it answers with 500.
    pub fn of_request(extensions: &Extensions) -> Result<Self, LockError> {
        extensions
            .get::<Self>()
            .cloned()
            .ok_or_else(|| LockError::new(LockErrorKind::Config, NOT_LOCKED))
    }
}

pub(crate) const NOT_LOCKED: &str = "this handler needs its lock, but the request runs under none: mount a LockLayer on the route \
     (`post(handler).route_layer(LockLayer::new(&locks, ..))`, after the routes and not before \
     them), and see that neither `when`, `methods` nor `enabled` leaves this request out";
