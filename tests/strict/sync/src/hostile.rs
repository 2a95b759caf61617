//! No prelude, and our names taken.

#![no_implicit_prelude]
#![allow(dead_code, reason = "most of it is only in the way")]

use ::core::result::Result as CoreResult;
use ::locks::{LockError, distributed_lock, lock_key};

/// Not the crate.
pub mod core {}
/// Not the crate.
pub mod std {}
/// Not the crate.
pub mod distlock {}

/// Not the prelude's.
#[derive(::core::fmt::Debug)]
pub enum Result {
    /// Not the prelude's.
    Ok,
    /// Not the prelude's.
    Err,
}

/// Not the prelude's.
#[derive(::core::fmt::Debug)]
pub enum Option {
    /// Not the prelude's.
    Some,
    /// Not the prelude's.
    None,
}

/// What the names mean here.
pub const NAMES: (Option, Option, Result, Result) = (Some, None, Ok, Err);

use self::Option::{None, Some};
use self::Result::{Err, Ok};

struct Returned;
struct Acquire;
trait Future {}
trait Deref {}
trait FnOnce {}

type U64 = ::core::primitive::u64;

/// Names like those of an expansion.
///
/// # Errors
///
/// Those of the lock.
#[distributed_lock(
    key = "strict:hostile:<__key>:<__client>:<key>",
    crate = ::locks,
    guard = __held,
    when = true,
    on_unavailable = "run_unlocked",
)]
pub fn names(
    __key: U64,
    __client: U64,
    key: U64,
    __acquire: U64,
    __arg0: (U64, U64),
    (__arg1, _): (U64, U64),
) -> CoreResult<U64, LockError> {
    let __value = __acquire + __arg0.0 + __arg1 + __arg0.1;
    CoreResult::Ok(__value + <U64 as ::core::convert::From<_>>::from(__held.is_some()))
}

/// Everything else of the options.
#[distributed_lock(
    keys = ["strict:hostile:<a>", lock_key!("strict:hostile:<b>")],
    crate = ::locks,
    wait = ::core::time::Duration::ZERO,
    max_hold = "1m",
    max_waiters = 10,
    name = "hostile",
    strict = false,
    fencing = true,
    reentrant = true,
    on_lost = "signal",
    fallback = a,
)]
#[must_use]
pub fn fallback(a: U64, b: U64) -> U64 {
    a + b
}
