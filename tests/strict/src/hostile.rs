//! No prelude, and our names taken: own `Result`, `Ok`, `Some`, `Future`, modules named like crates.

#![no_implicit_prelude]
#![allow(dead_code, reason = "most of it is only in the way")]

use ::core::result::Result as CoreResult;
use ::locks::{LockError, distributed_lock, lock_key, lock_template};

/// Not the crate.
pub mod core {}
/// Not the crate.
pub mod std {}
/// Not the crate.
pub mod tokio {}
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

struct Box;
struct String;
struct KeyBuilder;
struct LockOptions;
struct Duration;
struct Entered;
trait Future {}
trait IntoFuture {}
trait Display {}
trait Clone {}
trait Send {}
trait From {}

type U64 = ::core::primitive::u64;

#[allow(non_camel_case_types, reason = "in the way")]
type bool = ();
#[allow(non_camel_case_types, reason = "in the way")]
type str = ();
#[allow(non_camel_case_types, reason = "in the way")]
type u8 = ();
#[allow(non_camel_case_types, reason = "in the way")]
type u32 = ();
#[allow(non_camel_case_types, reason = "in the way")]
type u64 = ();

macro_rules! hostile {
    ($($name:ident)*) => {$(
        #[allow(unused_macros, reason = "in the way")]
        macro_rules! $name { () => { ::core::compile_error!("not yours") } }
    )*};
}

hostile!(concat format panic unreachable matches vec stringify assert write);

lock_template! {
    /// Declared without a prelude.
    pub HOSTILE = "strict:hostile:<__value>:<self_>", wait = "1s", reentrant = false
}

/// Names like those of an expansion.
///
/// # Errors
///
/// Those of the lock.
#[distributed_lock(
    key = "strict:hostile:<__key>:<__client>:<key>",
    crate = ::locks,
    lease = "5s",
    guard = __held,
    when = true,
    on_unavailable = "run_unlocked",
)]
pub async fn names(
    __key: U64,
    __client: U64,
    key: U64,
    __acquire: U64,
    __options: U64,
    __arg0: (U64, U64),
    (__arg1, _): (U64, U64),
) -> CoreResult<U64, LockError> {
    ::std::future::ready(()).await;
    let __value = __acquire + __options;
    let held = ::core::option::Option::is_some(&__held);
    CoreResult::Ok(
        __value + __arg0.0 + __arg1 + __arg0.1 + <U64 as ::core::convert::From<_>>::from(held),
    )
}

/// A fallback, and everything else of the options.
#[distributed_lock(
    keys = ["strict:hostile:<a>", lock_key!("strict:hostile:<b>"), HOSTILE.key(&a, &b)],
    crate = ::locks,
    wait = ::core::time::Duration::ZERO,
    max_hold = "1m",
    max_waiters = 10,
    name = "hostile",
    strict = false,
    reentrant = true,
    on_lost = "signal",
    fallback = a,
)]
pub async fn fallback(a: U64, b: U64) -> U64 {
    ::std::future::ready(a + b).await
}
