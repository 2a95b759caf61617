//! What the library says about itself; the only file that names `tracing`.
//!
//! Nothing here is called under a mutex: a subscriber is code of the user's. Field names begin with
//! `distlock.`, so that they do not hide the user's own. Contention is no warning.

use crate::backend::{Lock, StoreError};
use crate::error::LockError;
use crate::lease::Over;
use crate::protocol::hold::End;

/// Without the feature nothing is said; the arguments count as used.
#[cfg(not(feature = "tracing"))]
macro_rules! event {
    ($level:ident, $message:literal $(, $field:literal = $value:expr)*) => {
        { $(let _ = &$value;)* }
    };
}

#[cfg(feature = "tracing")]
macro_rules! event {
    ($level:ident, $message:literal $(, $field:literal = $value:expr)*) => {
        tracing::event!(tracing::Level::$level, $($field = %$value,)* $message)
    };
}

/// A hold ended before its release.
// Without the feature all arms are empty.
#[cfg_attr(not(feature = "tracing"), allow(clippy::match_same_arms))]
pub(crate) fn ended(lock: &Lock, end: End) {
    let (key, owner) = (&lock.key, &lock.owner);
    match end {
        End::Expired => event!(
            WARN,
            "lock lost: no renewal was confirmed by its deadline",
            "distlock.key" = key,
            "distlock.owner" = owner
        ),
        End::Limit => {
            event!(WARN, "lock held for max_hold", "distlock.key" = key, "distlock.owner" = owner);
        }
        End::ShutDown => event!(
            INFO,
            "lock given up at shut-down",
            "distlock.key" = key,
            "distlock.owner" = owner
        ),
        End::Taken => event!(
            WARN,
            "lock lost: the store says it is not ours",
            "distlock.key" = key,
            "distlock.owner" = owner
        ),
    }
}

/// A renewal got no answer and is tried again.
pub(crate) fn renewal_failed(locks: usize, error: &StoreError) {
    event!(
        INFO,
        "renewal failed, trying again before the deadline",
        "distlock.locks" = locks,
        "distlock.error" = error
    );
}

/// A release got no answer and is repeated in the background.
pub(crate) fn release_unanswered(lock: &Lock, error: &StoreError) {
    event!(
        WARN,
        "release got no answer, repeating it in the background",
        "distlock.key" = lock.key,
        "distlock.owner" = lock.owner,
        "distlock.error" = error
    );
}

/// A release found that the hold had ended before: the body was perhaps not alone at its end.
pub(crate) fn release_found_gone(lock: &Lock, over: Over) {
    // How it was lost was said when it was noticed.
    if over == Over::Lost(End::Taken) {
        event!(
            WARN,
            "at its release the lock was not ours any more",
            "distlock.key" = lock.key,
            "distlock.owner" = lock.owner
        );
    }
}

/// A body runs without its lock, because its site says so.
pub(crate) fn runs_unlocked(error: &LockError) {
    event!(WARN, "running without the lock: the store is unavailable", "distlock.error" = error);
}

/// A request was not let through: the way of the world.
#[cfg(feature = "tower")]
pub(crate) fn request_rejected(error: &LockError) {
    event!(DEBUG, "request not let through", "distlock.error" = error);
}

/// A request was not let through for a fault in how its lock is set up: every such request fails.
#[cfg(feature = "tower")]
pub(crate) fn route_misconfigured(error: &LockError) {
    event!(ERROR, "the lock of a route cannot work", "distlock.error" = error);
}

/// The store does not announce grants here.
pub(crate) fn unannounced() {
    event!(
        WARN,
        "the store refuses subscriptions: waiters go by timer, which is slower; grant the user the \
         channels distlock:*"
    );
}

/// The store deletes what is in use when its memory is full.
#[cfg(feature = "redis")]
pub(crate) fn may_evict(address: &str, policy: &str) {
    event!(
        WARN,
        "the server may evict locks: when its memory is full, its maxmemory-policy lets it delete \
         keys that are held, and another owner gets in before the holder learns of it; use \
         noeviction, or a server for locks alone",
        "distlock.address" = address,
        "distlock.policy" = policy
    );
}
