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
mod telemetry;
mod wait;
mod watchdog;

pub use backend::memory::MemoryStore;
pub use client::{LockClient, LockClientBuilder, LockRequest};
pub use error::{LockError, LockErrorKind};
pub use guard::{GuardScope, LockGuard};
pub use held::HeldLock;
pub use key::LockKey;
pub use lock_scope::{Instrumented, LockScope};
pub use options::{LockOptions, OnLost};
