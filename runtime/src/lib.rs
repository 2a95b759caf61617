//! distlock.

mod backend;
mod clock;
mod error;
mod key;
mod options;

pub use error::{LockError, LockErrorKind};
pub use key::LockKey;
pub use options::{LockOptions, OnLost};
