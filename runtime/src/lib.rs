//! distlock.

#[doc(hidden)]
#[path = "private.rs"]
pub mod __private;
mod backend;
mod backlog;
mod backoff;
#[cfg(feature = "blocking")]
mod blocking;
mod checked;
mod client;
mod clock;
mod driver;
mod enter;
mod entered;
mod error;
mod fencing;
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
#[cfg(feature = "blocking")]
pub use blocking::{BlockingClient, BlockingGuard, BlockingRequest};
pub use client::{LockClient, LockClientBuilder, LockRequest};
pub use error::{LockError, LockErrorKind};
pub use fencing::FencingToken;
pub use guard::{GuardScope, LockGuard};
pub use held::HeldLock;
pub use key::LockKey;
pub use lock_scope::{Instrumented, LockScope};
pub use options::{LockOptions, OnLost};

#[cfg(feature = "macros")]
#[doc = include_str!("../docs/distributed_lock.md")]
pub use distlock_macros::distributed_lock;

/// Makes a [`LockKey`] from a template and the variables in scope.
///
/// The grammar is that of [`distributed_lock`](macro@distributed_lock)'s `key`: `<...>` holds a
/// variable or a constant, and from there fields, tuple indices, method calls and indexing.
///
/// ```
/// # struct Order { id: u64, region: String }
/// let order = Order { id: 7, region: "north/west".into() };
///
/// let key = distlock::lock_key!("order:<order.id>:<order.region>");
///
/// assert_eq!(key.as_str(), "order:7:north%2Fwest");
/// ```
#[cfg(feature = "macros")]
#[macro_export]
macro_rules! lock_key {
    ($($input:tt)*) => { $crate::__private::lock_key! { crate = $crate, $($input)* } };
}

/// Declares a lock once, with its settings, to be used everywhere.
///
/// The name becomes a value with a method `key`, which takes a reference for each name in the
/// template, in the order of their first appearance, and gives a [`LockKey`] that brings the settings
/// along. What the place of use sets itself wins. Several locks are separated by `;`.
///
/// ```
/// use distlock::{LockClient, LockError, distributed_lock, lock_template};
///
/// lock_template! {
///     /// One item of the stock.
///     pub STOCK = "stock:lock:<sku_id>", wait = "3s", lease = "10s";
///     NIGHTLY = "jobs:nightly", max_hold = "1h"
/// }
///
/// #[distributed_lock(key = STOCK.key(&sku_id))]
/// async fn deduct(sku_id: u64) -> Result<(), LockError> {
///     println!("{sku_id} is ours");
///     Ok(())
/// }
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
/// let locks = LockClient::in_memory();
/// locks.scope_default(deduct(7)).await?;
/// locks.lock(NIGHTLY.key()).acquire().await?.release().await?;
/// # Ok(()) }
/// ```
#[cfg(feature = "macros")]
#[macro_export]
macro_rules! lock_template {
    ($($input:tt)*) => { $crate::__private::lock_template! { crate = $crate, $($input)* } };
}
