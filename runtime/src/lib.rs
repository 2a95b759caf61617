//! distlock.

#[doc(hidden)]
#[path = "private.rs"]
pub mod __private;
mod backend;
mod backlog;
mod backoff;
mod checked;
mod client;
mod clock;
mod driver;
mod enter;
mod entered;
mod error;
mod guard;
mod held;
mod hold;
mod instance;
mod key;
mod lease;
mod lock_scope;
mod obtain;
mod options;
mod protocol;
mod refusal;
mod running;
mod schedule;
mod scope;
mod scoped;
mod telemetry;
mod template;
mod wait;
mod watch;
mod watchdog;

pub use backend::memory::MemoryStore;
pub use client::{LockClient, LockClientBuilder, LockRequest};
pub use error::{LockError, LockErrorKind};
pub use guard::{GuardScope, LockGuard};
pub use held::HeldLock;
pub use key::LockKey;
pub use lock_scope::{Instrumented, LockScope};
pub use options::{LockOptions, OnLost};

/// Runs an async function under a lock.
#[cfg(feature = "macros")]
pub use distlock_macros::distributed_lock;

/// Makes a [`LockKey`] from a template and the variables in scope.
#[cfg(feature = "macros")]
#[macro_export]
macro_rules! lock_key {
    ($($input:tt)*) => { $crate::__private::lock_key! { crate = $crate, $($input)* } };
}

/// Declares a lock once, with its settings.
#[cfg(feature = "macros")]
#[macro_export]
macro_rules! lock_template {
    ($($input:tt)*) => { $crate::__private::lock_template! { crate = $crate, $($input)* } };
}
