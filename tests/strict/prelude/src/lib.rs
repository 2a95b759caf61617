//! What a company's services import.

#![deny(warnings, missing_docs, unreachable_pub, clippy::all, clippy::pedantic, clippy::nursery)]
#![forbid(unsafe_code)]

pub use distlock;
pub use distlock::{distributed_lock, lock_key, lock_template, LockError, LockKey};

lock_template!(pub PRELUDE = "strict:prelude:<id>");

/// The attribute in the edition before.
///
/// # Errors
///
/// Those of the lock.
#[distributed_lock(key = "strict:older:<pair.0>:<name>", fallback_with = Err)]
pub async fn older_edition(
    pair: (u8, String),
    (name, _): (&str, String),
) -> Result<usize, LockError> {
    std::future::ready(()).await;
    Ok(pair.1.len() + name.len())
}
