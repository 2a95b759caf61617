//! A distributed lock for Rust services: this function, or this piece of work, runs for one caller at
//! a time, per business key, across all instances.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::LockError> {
//! use distlock::{LockClient, LockError, distributed_lock};
//!
//! #[distributed_lock(key = "stock:lock:<sku_id>", wait = "3s", lease = "10s")]
//! async fn deduct(sku_id: u64) -> Result<bool, LockError> {
//!     // Read, decide, write: nobody else does it for this sku_id now.
//!     Ok(true)
//! }
//!
//! let locks = LockClient::in_memory(); // or LockClient::connect("redis://127.0.0.1/").await?
//! locks.install_default()?;
//! assert!(deduct(7).await?);
//! # Ok(())
//! # }
//! ```
//!
//! # What is guaranteed
//!
//! - The body starts only after the store confirmed the grant; not getting the lock is an error, or
//!   the fallback that the site declares.
//! - The body is not polled past the lock's local deadline, which counts from the *send* of the last
//!   confirmed grant or renewal: then it is dropped and the call returns `Lost`.
//! - Every exit (value, `?`, `return`, panic, dropped future) releases our own hold, once, after the
//!   body is gone. What a dropped call may have left in the store is given back in the background.
//! - `wait` bounds getting the lock, connecting and faults included.
//! - Renewal runs on a thread of its own: user code that blocks every worker keeps its lock.
//!
//! # What is not
//!
//! - What runs inside one poll cannot be stopped. A process that is frozen there for longer than its
//!   lease finishes that poll when it wakes up, while another one may hold the lock.
//! - A store that loses its data, or fails over to a replica that lags, may grant the lock again. The
//!   first holder learns of it at its next renewal.
//! - Other programs that delete or overwrite the key break in.
//!
//! A quorum of servers and waiting for replicas make such a loss rarer, see [`topologies`].
//!
//! So let the storage have the last word: by a conditional write (`WHERE items > 0`) or a
//! [`FencingToken`].
//!
//! # Who is inside
//!
//! Ownership follows the call chain, for the time of each poll:
//!
//! | code | inside the caller's lock? |
//! |---|---|
//! | a call in the body, however deep | yes: it enters without asking the store |
//! | branches of `join!`, `select!`, `FuturesUnordered` in the body | yes, one after the other |
//! | branches of `join!` outside of a lock | no: they exclude each other |
//! | `tokio::spawn`, `spawn_local`, `spawn_blocking`, a new thread | no: it waits, and the time-out says so |
//! | the same under [`LockScope::current()`]`.instrument(..)` | yes, beside the body |
//! | `block_on` or `block_in_place` in the body | yes |
//! | code after `acquire()` | only inside [`LockGuard::scope`] |
//!
//! # Features
//!
//! | feature | default | adds |
//! |---|---|---|
//! | `macros` | yes | the attribute, [`lock_key!`], [`lock_template!`] |
//! | `redis` | yes | `redis://` and `redlock://` URLs: see [`servers`] |
//! | `sentinel` | no | `redis-sentinel://` URLs |
//! | `cluster` | no | `redis-cluster://` URLs: see [`cluster`] |
//! | `tls` | no | `rediss://`, `rediss-sentinel://` and `rediss-cluster://` URLs |
//! | `blocking` | no | `LockClient::blocking`: calls that block, for code that is not async |
//! | `tracing` | no | losses, failed renewals and unanswered releases as `tracing` events |

// Without a store over a network, what guards against the network has no caller.
#![cfg_attr(not(feature = "redis"), allow(dead_code))]

#[doc(hidden)]
#[path = "private.rs"]
pub mod __private;
mod backend;
mod backlog;
mod backoff;
#[cfg(feature = "blocking")]
mod blocking;
mod checked;
mod claim;
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
mod ids;
mod instance;
mod join;
mod key;
#[cfg(feature = "tower")]
pub mod layer;
mod lease;
mod lock_scope;
#[cfg(test)]
mod model;
mod obtain;
mod options;
mod protocol;
mod refusal;
mod running;
mod schedule;
mod scope;
mod scoped;
mod slot;
mod telemetry;
mod template;
mod wait;
mod watch;
mod watchdog;

#[cfg(feature = "redis")]
#[doc = include_str!("../docs/servers.md")]
pub mod servers {}

#[doc = include_str!("../docs/quorum.md")]
pub mod topologies {}

#[cfg(feature = "cluster")]
#[doc = include_str!("../docs/cluster.md")]
pub mod cluster {}

pub use backend::memory::MemoryStore;
#[cfg(feature = "blocking")]
pub use blocking::{BlockingClient, BlockingGuard, BlockingRequest};
pub use client::{LockClient, LockClientBuilder, LockRequest, QuorumNode};
pub use error::{LockError, LockErrorKind};
pub use fencing::FencingToken;
pub use guard::{GuardScope, LockGuard};
pub use held::HeldLock;
pub use key::LockKey;
pub use lock_scope::{Instrumented, LockScope};
pub use options::{LockOptions, OnLost, Release};

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
/// A route reads `<sku_id as u64>` as that type and writes it again, so that `7` and `007` are one
/// lock. `key` takes exactly the same type, here `&u64` (for `as str` a `&str`, for `as uuid` a
/// `&uuid::Uuid`): so attribute and route have the same key for the same value, and no other spelling
/// of it gets in.
///
/// The settings are `wait`, `lease`, `max_hold`, `fencing`, `max_waiters`, `on_lost`, `reentrant`,
/// `release` and `strict`, as in [`distributed_lock`](macro@distributed_lock).
///
/// ```
/// use distlock::{LockClient, LockError, distributed_lock, lock_template};
///
/// lock_template! {
///     /// One item of the stock.
///     pub STOCK = "stock:lock:<sku_id as u64>", wait = "3s", lease = "10s";
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
