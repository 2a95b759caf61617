//! What a company's services import.

#![deny(warnings, missing_docs, unreachable_pub, clippy::all, clippy::pedantic, clippy::nursery)]
#![allow(clippy::missing_panics_doc, clippy::significant_drop_tightening)]
#![forbid(unsafe_code)]

use std::sync::Mutex;

pub use distlock;
pub use distlock::{distributed_lock, lock_key, lock_template, LockError, LockKey};

lock_template!(pub PRELUDE = "strict:prelude:<id>");

/// A temporary at the end of the body, which lives longer in this edition than what it borrows.
///
/// # Errors
///
/// Those of the lock.
#[distributed_lock(key = "strict:temporary:<name>", guard = held)]
pub async fn temporary(
    (list, _): (Mutex<Vec<u8>>, u8),
    whole: Mutex<Vec<u8>>,
    name: &str,
) -> Result<usize, LockError> {
    std::future::ready(held.is_lost()).await;
    Ok(list.lock().unwrap().len() + whole.lock().unwrap().len())
}

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
