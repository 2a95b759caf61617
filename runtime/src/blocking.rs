//! Locks for code that is not async: the same locks, with calls that block the calling thread.
//!
//! The waiting, the renewing and the releasing are done on the client's driver thread, so a call
//! needs no runtime of the caller's, and does no harm to one that it is made on besides blocking it.
//! Reentrancy follows the call chain here, too.
//!
//! A body that blocks cannot be stopped: when its lock is lost it runs on, and
//! [`HeldLock::is_lost`] tells it. With `strict` the call then returns `Lost { completed: true }`. At
//! `max_hold` renewal stops, and the lease runs out.
//!
//! On the memory store these calls live by real time, also where tokio's clock is paused.

use std::fmt;
use std::ops::Deref;

use crate::client::{LockClient, LockRequest};
use crate::enter::Acquire;
use crate::entered::Entered;
use crate::error::{LockError, LockErrorKind};
use crate::held::HeldLock;
use crate::key::LockKey;
use crate::options::LockOptions;
use crate::running::Failure;
use crate::scope;

/// A client whose calls block; made by [`LockClient::blocking`].
///
/// ```
/// # fn main() -> Result<(), distlock::LockError> {
/// use distlock::{LockClient, LockKey};
///
/// let locks = LockClient::in_memory().blocking();
/// let left = locks.lock(LockKey::literal("stock:lock:7")).run(|_held| 41)?;
/// assert_eq!(left, 41);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct BlockingClient {
    client: LockClient,
}

impl BlockingClient {
    pub(crate) fn new(client: LockClient) -> Self {
        Self { client }
    }

    /// Starts a request for the lock of `key`.
    pub fn lock(&self, key: LockKey) -> BlockingRequest {
        BlockingRequest { request: self.client.lock(key) }
    }

    /// Starts a request for the locks of all `keys` at once, as [`LockClient::lock_all`] does.
    pub fn lock_all(&self, keys: impl IntoIterator<Item = LockKey>) -> BlockingRequest {
        BlockingRequest { request: self.client.lock_all(keys) }
    }

    /// Makes this the default client while `body` runs, on this thread: what
    /// [`LockClient::scope_default`] does for a future. So each test has its own.
    ///
    /// ```
    /// use distlock::{LockClient, LockError, distributed_lock};
    ///
    /// #[distributed_lock(key = "stock:lock:<sku_id>")]
    /// fn deduct(sku_id: u64) -> Result<u64, LockError> {
    ///     Ok(sku_id)
    /// }
    ///
    /// let locks = LockClient::in_memory().blocking();
    /// assert_eq!(locks.scope_default(|| deduct(7))?, 7);
    /// # Ok::<(), LockError>(())
    /// ```
    pub fn scope_default<T>(&self, body: impl FnOnce() -> T) -> T {
        self.client.scope_default_blocking(body)
    }
}

/// A request for a lock by a call that blocks.
#[derive(Clone, Debug)]
#[must_use = "a request does nothing until it is acquired or run"]
pub struct BlockingRequest {
    request: LockRequest,
}

impl BlockingRequest {
    /// Sets everything that is set in `options`.
    ///
    /// ```
    /// # fn main() -> Result<(), distlock::LockError> {
    /// use std::time::Duration;
    ///
    /// use distlock::{LockClient, LockKey, LockOptions};
    ///
    /// let locks = LockClient::in_memory().blocking();
    /// let one_second = LockOptions::new().wait(Duration::from_secs(1));
    /// let guard = locks.lock(LockKey::literal("jobs:nightly")).options(one_second).acquire()?;
    /// guard.release()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn options(self, options: LockOptions) -> Self {
        Self { request: self.request.options(options) }
    }

    /// Acquires the lock, blocking for `wait` at most.
    ///
    /// # Errors
    ///
    /// As [`LockRequest::acquire`].
    pub fn acquire(self) -> Result<BlockingGuard, LockError> {
        let entered = self.request.start().enter_blocking()?;
        Ok(BlockingGuard { held: entered.held(), entered })
    }

    /// Tries once: `None` if another owner has the lock.
    ///
    /// # Errors
    ///
    /// As [`LockRequest::try_acquire`].
    pub fn try_acquire(self) -> Result<Option<BlockingGuard>, LockError> {
        match self.options(LockOptions::new().wait(std::time::Duration::ZERO)).acquire() {
            Ok(guard) => Ok(Some(guard)),
            Err(error) if error.kind() == LockErrorKind::Timeout => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Runs `body` under the lock and releases it, whatever the body does.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire). With `strict` also `Lost { completed: true }`, in place of the
    /// body's value.
    pub fn run<T>(self, body: impl FnOnce(HeldLock) -> T) -> Result<T, LockError> {
        let guard = self.acquire()?;
        let held = guard.held.clone();
        let value = guard.scope(|| body(held));
        guard.release().map(|()| value)
    }
}

/// A lock held by code that blocks; dropping it releases in the background.
#[must_use = "a guard that is dropped at once releases at once"]
pub struct BlockingGuard {
    entered: Entered,
    held: HeldLock,
}

impl BlockingGuard {
    /// Releases the lock and waits for the store's answer. If there is none, the release is repeated
    /// in the background. With [`Release::Background`](crate::Release::Background) it is not waited
    /// for.
    ///
    /// # Errors
    ///
    /// `Lost { completed: true }`, only with `strict`: the lock had ended before.
    pub fn release(self) -> Result<(), LockError> {
        leave(self.entered)
    }

    /// Runs `body` inside this lock: nested calls on the key enter.
    pub fn scope<T>(&self, body: impl FnOnce() -> T) -> T {
        scope::inside(self.entered.frame().cloned(), body)
    }
}

impl Deref for BlockingGuard {
    type Target = HeldLock;

    fn deref(&self) -> &HeldLock {
        &self.held
    }
}

impl fmt::Debug for BlockingGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("BlockingGuard").field(&self.held).finish()
    }
}

impl Acquire {
    /// Runs `body` as soon as the lock is there, then releases: what [`run`](Self::run) does, on the
    /// calling thread. The body runs to its end, whatever becomes of the lock.
    ///
    /// # Errors
    ///
    /// The lock was refused, and the body dropped; or, with `strict`, it was found lost at the end.
    pub fn run_blocking<T>(self, body: impl FnOnce() -> T) -> Result<T, Failure> {
        let entered = self.enter_blocking().map_err(Failure::Refused)?;
        // What the body has taken in is dropped when it ends, and so before the release.
        let value = scope::inside(entered.frame().cloned(), body);
        leave(entered).map(|()| value).map_err(Failure::Lost)
    }
}

/// Gets outside, blocking for the answer of the store.
fn leave(entered: Entered) -> Result<(), LockError> {
    let leaving = match entered.leave() {
        Ok(outcome) => return outcome,
        Err(leaving) => leaving,
    };
    let Some(core) = leaving.core().cloned() else { return Ok(()) };
    // Without a thread what is left has gone to the background.
    core.block_on(leaving.release()).unwrap_or(Ok(()))
}
