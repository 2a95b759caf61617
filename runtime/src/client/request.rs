//! One call for one lock.

use std::borrow::Cow;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use super::LockClient;
use super::run::Run;
use crate::driver::Core;
use crate::enter::Acquire;
use crate::error::{LockError, LockErrorKind};
use crate::guard::LockGuard;
use crate::held::HeldLock;
use crate::key::LockKey;
use crate::options::{LockOptions, OnLost, Release, Settings};

/// A request for a lock: set what differs, then [`acquire`](Self::acquire),
/// [`try_acquire`](Self::try_acquire) or [`run`](Self::run).
#[derive(Clone)]
#[must_use = "a request does nothing until it is acquired or run"]
pub struct LockRequest {
    core: Arc<Core>,
    keys: Keys,
    settings: Settings,
    name: Option<Box<str>>,
}

/// Keys as they stand in the store.
#[derive(Clone, Debug)]
enum Keys {
    All(Vec<Cow<'static, str>>),
    One(Cow<'static, str>),
    /// One that cannot be used, with the client that says why.
    Unusable(Box<(LockKey, LockClient)>),
}

impl LockRequest {
    pub(super) fn one(client: &LockClient, key: LockKey) -> Self {
        let mut request = Self::new(client);
        request.settings.set(key.options());
        request.keys = match client.check_key(&key) {
            Ok(()) => Keys::One(client.resolve_key(key)),
            Err(_) => Keys::unusable(key, client),
        };
        request
    }

    pub(super) fn all(client: &LockClient, keys: Vec<LockKey>) -> Self {
        let mut request = Self::new(client);
        // The first key that declares a setting decides it for all of them.
        keys.iter().rev().for_each(|key| request.settings.set(key.options()));
        let mut resolved = Vec::with_capacity(keys.len());
        for key in keys {
            if client.check_key(&key).is_err() {
                request.keys = Keys::unusable(key, client);
                return request;
            }
            resolved.push(client.resolve_key(key));
        }
        request.keys = Keys::All(resolved);
        request
    }

    fn new(client: &LockClient) -> Self {
        let (core, settings) = (Arc::clone(&client.0.core), client.0.defaults);
        Self { core, keys: Keys::All(Vec::new()), settings, name: None }
    }

    /// See [`LockOptions::wait`]. Defaults to 3 seconds.
    pub fn wait(self, wait: Duration) -> Self {
        self.options(LockOptions::new().wait(wait))
    }

    /// See [`LockOptions::lease`]. Defaults to 10 seconds.
    pub fn lease(self, lease: Duration) -> Self {
        self.options(LockOptions::new().lease(lease))
    }

    /// See [`LockOptions::max_hold`]. Defaults to no cap.
    pub fn max_hold(self, max_hold: Duration) -> Self {
        self.options(LockOptions::new().max_hold(max_hold))
    }

    /// See [`LockOptions::on_lost`]. Defaults to [`OnLost::Cancel`].
    pub fn on_lost(self, on_lost: OnLost) -> Self {
        self.options(LockOptions::new().on_lost(on_lost))
    }

    /// See [`LockOptions::release`]. Defaults to [`Release::Await`].
    pub fn release(self, release: Release) -> Self {
        self.options(LockOptions::new().release(release))
    }

    /// See [`LockOptions::not_reentrant`]. Defaults to off.
    pub fn not_reentrant(self) -> Self {
        self.options(LockOptions::new().not_reentrant())
    }

    /// See [`LockOptions::strict`]. Defaults to off.
    pub fn strict(self) -> Self {
        self.options(LockOptions::new().strict())
    }

    /// See [`LockOptions::fencing`]. Defaults to off.
    pub fn fencing(self) -> Self {
        self.options(LockOptions::new().fencing())
    }

    /// See [`LockOptions::max_waiters`]. Defaults to no limit.
    pub fn max_waiters(self, max_waiters: usize) -> Self {
        self.options(LockOptions::new().max_waiters(max_waiters))
    }

    /// See [`LockOptions::name`]. Defaults to the key template.
    pub fn name(self, name: impl Into<Cow<'static, str>>) -> Self {
        self.options(LockOptions::new().name(name))
    }

    /// Sets everything that is set in `options`.
    pub fn options(mut self, options: LockOptions) -> Self {
        self.settings.set(&options);
        self.name = options.into_name().or(self.name);
        self
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
    pub fn acquire(self) -> impl Future<Output = Result<LockGuard, LockError>> + Send {
        let mut acquire = self.start();
        // Not an async function, which would keep the request beside what became of it.
        async move { (&mut acquire).await.map(LockGuard::new) }
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
    pub fn try_acquire(self) -> impl Future<Output = Result<Option<LockGuard>, LockError>> + Send {
        let mut acquire = self.wait(Duration::ZERO).start();
        async move {
            match (&mut acquire).await {
                Ok(entered) => Ok(Some(LockGuard::new(entered))),
                Err(error) if error.kind() == LockErrorKind::Timeout => Ok(None),
                Err(error) => Err(error),
            }
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
    pub fn run<F, B>(self, body: F) -> impl Future<Output = Result<B::Output, LockError>>
    where
        F: FnOnce(HeldLock) -> B,
        B: Future,
    {
        Run::new(self.start(), body)
    }

    /// Begins, or refuses what can be refused without asking the store.
    pub(crate) fn start(self) -> Acquire {
        self.resolve().unwrap_or_else(Acquire::refused)
    }

    /// The settings of this request, those of its keys and of the client included.
    pub(crate) fn settings(&self) -> Result<Settings, LockError> {
        self.settings.check().map(|()| self.settings)
    }

    fn resolve(self) -> Result<Acquire, LockError> {
        let settings = self.settings()?;
        let Self { core, keys, .. } = self;
        match keys {
            Keys::One(key) => Ok(Acquire::one(core, key, settings)),
            Keys::All(keys) if keys.is_empty() => {
                let text = "no keys to lock: name at least one";
                Err(LockError::new(LockErrorKind::Config, text))
            }
            Keys::All(keys) => Ok(Acquire::all(core, keys, settings)),
            Keys::Unusable(unusable) => {
                let (key, client) = *unusable;
                client.check_key(&key)?;
                Ok(Acquire::one(core, client.resolve_key(key), settings))
            }
        }
    }
}

impl Keys {
    fn unusable(key: LockKey, client: &LockClient) -> Self {
        Self::Unusable(Box::new((key, client.clone())))
    }
}

impl fmt::Debug for LockRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockRequest")
            .field("core", &self.core)
            .field("keys", &self.keys)
            .field("settings", &self.settings)
            .field("name", &self.name)
            .finish()
    }
}
