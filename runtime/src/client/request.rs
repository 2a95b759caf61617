//! One call for one lock.

use std::borrow::Cow;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use super::LockClient;
use crate::enter::Acquire;
use crate::error::{LockError, LockErrorKind};
use crate::guard::LockGuard;
use crate::held::HeldLock;
use crate::key::LockKey;
use crate::options::{LockOptions, OnLost, Release, Settings};
use crate::running::Failure;

/// A request for a lock: set what differs, then [`acquire`](Self::acquire),
/// [`try_acquire`](Self::try_acquire) or [`run`](Self::run).
#[derive(Clone, Debug)]
#[must_use = "a request does nothing until it is acquired or run"]
pub struct LockRequest {
    client: LockClient,
    keys: Keys,
    options: LockOptions,
}

#[derive(Clone, Debug)]
enum Keys {
    All(Vec<LockKey>),
    One(LockKey),
}

impl LockRequest {
    pub(super) fn one(client: LockClient, key: LockKey) -> Self {
        Self { client, keys: Keys::One(key), options: LockOptions::new() }
    }

    pub(super) fn all(client: LockClient, keys: Vec<LockKey>) -> Self {
        Self { client, keys: Keys::All(keys), options: LockOptions::new() }
    }

    /// See [`LockOptions::wait`]. Defaults to 3 seconds.
    pub fn wait(self, wait: Duration) -> Self {
        self.with(|options| options.wait(wait))
    }

    /// See [`LockOptions::lease`]. Defaults to 10 seconds.
    pub fn lease(self, lease: Duration) -> Self {
        self.with(|options| options.lease(lease))
    }

    /// See [`LockOptions::max_hold`]. Defaults to no cap.
    pub fn max_hold(self, max_hold: Duration) -> Self {
        self.with(|options| options.max_hold(max_hold))
    }

    /// See [`LockOptions::on_lost`]. Defaults to [`OnLost::Cancel`].
    pub fn on_lost(self, on_lost: OnLost) -> Self {
        self.with(|options| options.on_lost(on_lost))
    }

    /// See [`LockOptions::release`]. Defaults to [`Release::Await`].
    pub fn release(self, release: Release) -> Self {
        self.with(|options| options.release(release))
    }

    /// See [`LockOptions::not_reentrant`]. Defaults to off.
    pub fn not_reentrant(self) -> Self {
        self.with(LockOptions::not_reentrant)
    }

    /// See [`LockOptions::strict`]. Defaults to off.
    pub fn strict(self) -> Self {
        self.with(LockOptions::strict)
    }

    /// See [`LockOptions::fencing`]. Defaults to off.
    pub fn fencing(self) -> Self {
        self.with(LockOptions::fencing)
    }

    /// See [`LockOptions::max_waiters`]. Defaults to no limit.
    pub fn max_waiters(self, max_waiters: usize) -> Self {
        self.with(|options| options.max_waiters(max_waiters))
    }

    /// See [`LockOptions::name`]. Defaults to the key template.
    pub fn name(self, name: impl Into<Cow<'static, str>>) -> Self {
        self.with(|options| options.name(name))
    }

    /// Sets everything that is set in `options`.
    pub fn options(self, options: LockOptions) -> Self {
        self.with(|own| options.or(&own))
    }

    /// Acquires the lock, within `wait`.
    ///
    /// Inside a body that holds the same key already it enters that hold, without a command.
    ///
    /// # Cancel safety
    ///
    /// Dropping the call gives up the place in the queue. A request already sent may still be
    /// granted, and is then released in the background, at the latest when the lease ends.
    ///
    /// # Errors
    ///
    /// - `Timeout`: another owner held the lock for the whole `wait`.
    /// - `QueueFull`: `max_waiters` are waiting already.
    /// - `Backend`: the store did not answer within `wait`, or refused.
    /// - `ForeignValue`, `InvalidKey`, `Config`: the key or a setting cannot work.
    /// - `Reentrant`, `ShutDown`, and inside a lock of one's own `Lost` or `HoldLimit`.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::LockError> {
    /// use std::time::Duration;
    ///
    /// use distlock::{LockClient, LockKey};
    ///
    /// let locks = LockClient::in_memory();
    /// let key = LockKey::literal("jobs:nightly");
    /// let guard = locks.lock(key).wait(Duration::from_secs(1)).acquire().await?;
    /// guard.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn acquire(self) -> Result<LockGuard, LockError> {
        self.start().await.map(LockGuard::new)
    }

    /// Tries once: `None` if another owner has the lock.
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Self::acquire), without a queue.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire), without `Timeout` and `QueueFull`.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::LockError> {
    /// use distlock::{LockClient, LockKey};
    ///
    /// let locks = LockClient::in_memory();
    /// let key = || LockKey::literal("jobs:nightly");
    /// let guard = locks.lock(key()).try_acquire().await?;
    /// assert!(guard.is_some());
    /// assert!(locks.lock(key()).try_acquire().await?.is_none());
    /// # Ok(())
    /// # }
    /// ```
    pub async fn try_acquire(self) -> Result<Option<LockGuard>, LockError> {
        match self.wait(Duration::ZERO).start().await {
            Ok(entered) => Ok(Some(LockGuard::new(entered))),
            Err(error) if error.kind() == LockErrorKind::Timeout => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Runs `body` under the lock and releases it, whatever the body does.
    ///
    /// If the lock is lost while the body runs, the body is dropped and the call returns `Lost`
    /// (unless [`OnLost::Signal`] is set). With [`Release::Background`] the call does not wait for the
    /// store's answer to the release.
    ///
    /// # Cancel safety
    ///
    /// Dropping the call drops the body first; then the lock is released in the background.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire); and once the body has begun `Lost`, `HoldLimit` or `ShutDown`.
    /// With `strict` also `Lost { completed: true }`, in place of the body's value.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::LockError> {
    /// use distlock::{LockClient, LockKey};
    ///
    /// let locks = LockClient::in_memory();
    /// let left = locks.lock(LockKey::literal("stock:lock:7")).run(|_held| async { 41 }).await?;
    /// assert_eq!(left, 41);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn run<F, B>(self, body: F) -> Result<B::Output, LockError>
    where
        F: FnOnce(HeldLock) -> B,
        B: Future,
    {
        let entered = self.start().await?;
        let body = body(entered.held());
        entered.run(body).await.map_err(Failure::into_error)
    }

    /// Begins, or refuses what can be refused without asking the store.
    pub(crate) fn start(self) -> Acquire {
        self.resolve().unwrap_or_else(Acquire::refused)
    }

    /// The settings of this request, those of its keys and of the client included.
    pub(crate) fn settings(&self) -> Result<Settings, LockError> {
        let keys = match &self.keys {
            Keys::All(keys) => keys.as_slice(),
            Keys::One(key) => std::slice::from_ref(key),
        };
        // The first key that declares a setting decides it for all of them.
        let options = self.options.clone();
        let options = keys.iter().fold(options, |options, key| options.or(key.options()));
        options.or(&self.client.0.defaults).resolve()
    }

    fn resolve(self) -> Result<Acquire, LockError> {
        let settings = self.settings()?;
        let Self { client, keys, .. } = self;
        let core = || Arc::clone(&client.0.core);
        match keys {
            Keys::One(key) => Ok(Acquire::one(core(), client.resolve_key(key)?, settings)),
            Keys::All(keys) => {
                let keys = keys.into_iter().map(|key| client.resolve_key(key));
                let keys = keys.collect::<Result<Vec<_>, _>>()?;
                if keys.is_empty() {
                    let text = "no keys to lock: name at least one";
                    return Err(LockError::new(LockErrorKind::Config, text));
                }
                Ok(Acquire::all(core(), keys, settings))
            }
        }
    }

    fn with(self, change: impl FnOnce(LockOptions) -> LockOptions) -> Self {
        Self { options: change(self.options), ..self }
    }
}
