//! What the macros' expansions may name. Not part of the API: it changes without notice.

use std::future::Future;
use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::Arc;

use crate::client::LockClient;
use crate::enter::OnUnavailable;

pub use core::clone::Clone;
pub use core::fmt::{Debug, Formatter, Result as FmtResult};
pub use core::marker::{Copy, Sized};
pub use core::option::Option::{self, None, Some};
pub use core::primitive::{
    bool, i8, i16, i32, i64, i128, isize, str, u8, u16, u32, u64, u128, usize,
};
pub use core::result::Result::{self, Err, Ok};
pub use core::time::Duration;

#[cfg(feature = "macros")]
pub use distlock_macros::{lock_key, lock_template};

pub use crate::client::default_client;
pub use crate::enter::Acquire;
pub use crate::entered::Entered;
pub use crate::error::LockError;
pub use crate::key::{KeyBuilder, KeyPart, LockKey};
pub use crate::options::{LockOptions, OnLost, Release};
pub use crate::running::{Failure, Inside, Running, Stage};
pub use crate::slot::{HeldSlot, Refusal};
pub use crate::template::Template;

/// The client that `client = ...` names.
pub fn client<C: AsClient + ?Sized>(client: &C) -> Result<LockClient, LockError> {
    Ok(client.as_client().clone())
}

/// Begins a locked call.
pub fn acquire(
    client: Result<LockClient, LockError>,
    key: LockKey,
    options: LockOptions,
) -> Acquire {
    match client {
        Ok(client) => client.lock(key).options(options).start(),
        Err(error) => Acquire::refused(error),
    }
}

/// Begins a locked call that goes on unlocked if the store is unavailable.
pub fn acquire_or_run_unlocked(
    client: Result<LockClient, LockError>,
    key: LockKey,
    options: LockOptions,
) -> Acquire {
    acquire(client, key, options).on_unavailable(OnUnavailable::RunUnlocked)
}

/// Begins a call under several locks.
pub fn acquire_all<const N: usize>(
    client: Result<LockClient, LockError>,
    keys: [LockKey; N],
    options: LockOptions,
) -> Acquire {
    match client {
        Ok(client) => client.lock_all(keys).options(options).start(),
        Err(error) => Acquire::refused(error),
    }
}

/// Begins a call under several locks that goes on unlocked if the store is unavailable.
pub fn acquire_all_or_run_unlocked<const N: usize>(
    client: Result<LockClient, LockError>,
    keys: [LockKey; N],
    options: LockOptions,
) -> Acquire {
    acquire_all(client, keys, options).on_unavailable(OnUnavailable::RunUnlocked)
}

/// Begins a call in a closure of its own. What is borrowed for the key in the coroutine itself would
/// have to be stored there as long as the call goes on.
pub fn start<T>(call: impl FnOnce() -> T) -> T {
    call()
}

/// The key that `key = ...` names.
pub fn key<K: IntoLockKey>(key: K) -> LockKey {
    key.into_lock_key()
}

/// Calls what `fallback_with = ...` names; here closures learn the type of their argument.
pub fn fallback_with<T>(fallback: impl FnOnce(LockError) -> T, error: LockError) -> T {
    fallback(error)
}

/// What `client = ...` may be.
#[diagnostic::on_unimplemented(
    message = "`client = ...` needs a `LockClient`, not `{Self}`",
    note = "a `LockClient`, a reference to one, or an `Arc` of one"
)]
pub trait AsClient {
    /// The client.
    fn as_client(&self) -> &LockClient;
}

impl AsClient for LockClient {
    fn as_client(&self) -> &LockClient {
        self
    }
}

#[diagnostic::do_not_recommend]
impl<C: AsClient + ?Sized> AsClient for &C {
    fn as_client(&self) -> &LockClient {
        (**self).as_client()
    }
}

#[diagnostic::do_not_recommend]
impl<C: AsClient + ?Sized> AsClient for Arc<C> {
    fn as_client(&self) -> &LockClient {
        (**self).as_client()
    }
}

/// What a function must return to say that it did not get the lock.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot carry a `LockError`, which the function returns when it does not get the lock",
    label = "needs a `Result<_, E>` with `E: From<LockError>`",
    note = "return a `Result` whose error is `LockError` or implements `From<LockError>`,",
    note = "or say what to return instead: `fallback_with = |error| …`"
)]
pub trait FromLockError: Sized {
    fn from_lock_error(error: LockError) -> Self;
}

#[diagnostic::do_not_recommend]
impl<T, E: From<LockError>> FromLockError for Result<T, E> {
    fn from_lock_error(error: LockError) -> Self {
        Err(error.into())
    }
}

/// What a function with only a `fallback` must return to say that it lost the lock.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot carry a `LockError`, and `fallback` has no answer for a lock that is lost while the body runs",
    label = "needs an answer for a lost lock",
    note = "make one of the error: `fallback_with = |error| …`,",
    note = "or have the value returned all the same: `on_lost = \"signal\"`, without `strict`"
)]
pub trait FromLostLock: Sized {
    fn from_lost_lock(error: LockError) -> Self;
}

#[diagnostic::do_not_recommend]
impl<T: FromLockError> FromLostLock for T {
    fn from_lost_lock(error: LockError) -> Self {
        T::from_lock_error(error)
    }
}

/// What `<… as uuid>` in a `lock_template!` takes.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no `uuid::Uuid`",
    label = "the template reads this as a UUID",
    note = "another spelling of the same UUID would be another lock: parse it first"
)]
pub trait UuidPart: KeyPart {}

impl UuidPart for uuid::Uuid {}

/// The value of a function that is not async: method calls find out whether it is a future.
#[derive(Debug)]
pub struct Returned<T>(PhantomData<T>, NoFuture);

/// What is no future.
#[derive(Clone, Copy, Debug)]
pub struct NoFuture;

/// What is one.
#[derive(Debug)]
pub struct AFuture<T>(PhantomData<T>);

impl<T> Returned<T> {
    #[must_use]
    pub fn of(_value: &T) -> Self {
        Self(PhantomData, NoFuture)
    }
}

impl<T: Future> Returned<T> {
    // Preferred to the method that is found by `Deref`.
    #[must_use]
    pub fn kind(&self) -> AFuture<T> {
        AFuture(PhantomData)
    }
}

impl<T> Deref for Returned<T> {
    type Target = NoFuture;

    fn deref(&self) -> &NoFuture {
        &self.1
    }
}

impl NoFuture {
    #[must_use]
    pub fn kind(self) -> Self {
        self
    }
}

/// Refuses a future.
pub fn no_future(_kind: impl IsNoFuture) {}

/// What a function that is not async may return.
#[diagnostic::on_unimplemented(
    message = "a function that returns a future would release the lock before the future has done its work",
    label = "is a future",
    note = "write `async fn`"
)]
pub trait IsNoFuture {}

impl IsNoFuture for NoFuture {}

/// What `key = …` takes besides a template.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no lock key",
    label = "expected a template or a `LockKey`",
    note = "write the template itself: `key = \"stock:lock:<sku_id>\"`, or make a key: `key = lock_key!(\"stock:lock:<sku_id>\")`"
)]
pub trait IntoLockKey {
    fn into_lock_key(self) -> LockKey;
}

impl IntoLockKey for LockKey {
    fn into_lock_key(self) -> LockKey {
        self
    }
}

impl IntoLockKey for &LockKey {
    fn into_lock_key(self) -> LockKey {
        self.clone()
    }
}
