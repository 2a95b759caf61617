//! The client: what a service makes once, and asks for locks.

use std::borrow::Cow;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use crate::backend::memory::{MemoryBackend, MemoryStore};
use crate::driver::Core;
use crate::error::{LockError, LockErrorKind};
use crate::key::LockKey;
use crate::options::Settings;
use crate::refusal;

mod builder;
mod default;
mod quorum;
mod request;
mod run;
mod store;

pub use builder::LockClientBuilder;
pub use default::default_client;
pub use quorum::QuorumNode;
pub use request::LockRequest;

/// A client of one lock store. Make one per process and store, and clone it: clones are cheap and
/// share connections, watchdog and local queues.
///
/// ```no_run
/// # async fn demo() -> Result<(), distlock::LockError> {
/// use distlock::{LockClient, LockKey};
///
/// let locks = LockClient::connect("redis://127.0.0.1/").await?;
/// let report = locks.lock(LockKey::literal("jobs:nightly")).run(|_| async { "done" }).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct LockClient(Arc<Handle>);

struct Handle {
    core: Arc<Core>,
    namespace: Option<Arc<str>>,
    defaults: Settings,
    max_key_bytes: usize,
}

impl LockClient {
    /// Connects to the store at `url`, with default settings.
    ///
    /// | URL | store |
    /// |---|---|
    /// | `redis://[user:password@]host[:port][/db]` | one Redis server (feature `redis`) |
    /// | `rediss://[user:password@]host[:port][/db]` | the same over TLS (feature `tls`) |
    /// | `redis-sentinel://[user:password@]host[:port],.../service[/db]` | the master of a service, as the sentinels at these hosts name it (feature `sentinel`) |
    /// | `rediss-sentinel://...` | the same over TLS (features `sentinel` and `tls`) |
    /// | `redlock://[user:password@]h1[:p1],h2,h3[/db]` | a quorum of Redis servers (feature `redis`) |
    /// | `redis-cluster://[user:password@]host[:port],host[:port]...` | a Redis Cluster, of which some nodes are named (feature `cluster`) |
    /// | `memory:` | this process |
    ///
    /// # Cancel safety
    ///
    /// Dropping the call closes what it opened.
    ///
    /// # Errors
    ///
    /// - `Config`: the URL cannot be used; the text says why.
    /// - `Backend`: the server did not answer within the default `wait` (3 seconds), or refused.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::LockError> {
    /// let locks = distlock::LockClient::connect("memory:").await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn connect(url: &str) -> Result<Self, LockError> {
        Self::builder().url(url).connect().await
    }

    /// Starts a client with settings of one's own.
    pub fn builder() -> LockClientBuilder {
        LockClientBuilder::new()
    }

    /// Creates a client on a store of its own in this process, for tests and examples.
    ///
    /// Under tokio's paused clock its time is the test's.
    #[must_use]
    pub fn in_memory() -> Self {
        builder::on(Arc::new(MemoryBackend::new(&MemoryStore::new())))
    }

    /// A client on a store of a test's own.
    #[cfg(test)]
    pub(crate) fn on(backend: Arc<dyn crate::backend::Backend>) -> Self {
        builder::on(backend)
    }

    /// Starts a request for the lock of `key`, with the settings of the client and of the key.
    pub fn lock(&self, key: LockKey) -> LockRequest {
        LockRequest::one(self, key)
    }

    /// Starts a request for the locks of all `keys` at once: all or nothing, in an order that cannot
    /// dead-lock with other calls of this kind, each key once.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::LockError> {
    /// use distlock::{LockClient, LockKey};
    ///
    /// let locks = LockClient::in_memory();
    /// let accounts = [LockKey::literal("account:7"), LockKey::literal("account:3")];
    /// locks.lock_all(accounts).run(|_held| async { "transferred" }).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn lock_all(&self, keys: impl IntoIterator<Item = LockKey>) -> LockRequest {
        LockRequest::all(self, keys.into_iter().collect())
    }

    /// A client of the same store whose calls block the calling thread, for code that is not async.
    #[cfg(feature = "blocking")]
    #[must_use]
    pub fn blocking(&self) -> crate::BlockingClient {
        crate::BlockingClient::new(self.clone())
    }

    /// Makes this the client that the attribute uses without `client = ...`. Installing the same
    /// client again is fine.
    ///
    /// # Errors
    ///
    /// `Config`: another client is installed already.
    pub fn install_default(&self) -> Result<(), LockError> {
        default::install(self)
    }

    /// Runs `future` with this client as the default one, for this call chain only: so each test can
    /// have its own. Spawned tasks do not inherit it.
    ///
    /// # Cancel safety
    ///
    /// As `future`'s own.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::LockError> {
    /// use distlock::{distributed_lock, LockClient, LockError};
    ///
    /// #[distributed_lock(key = "jobs:nightly")]
    /// async fn nightly() -> Result<&'static str, LockError> {
    ///     Ok("done")
    /// }
    ///
    /// assert_eq!(LockClient::in_memory().scope_default(nightly()).await?, "done");
    /// # Ok(())
    /// # }
    /// ```
    pub fn scope_default<F: Future>(&self, future: F) -> impl Future<Output = F::Output> {
        default::scope(self.clone(), future)
    }

    #[cfg(feature = "blocking")]
    pub(crate) fn scope_default_blocking<T>(&self, body: impl FnOnce() -> T) -> T {
        default::scope_blocking(self.clone(), body)
    }

    /// Says who holds `key`, asked from the store itself: the owner string, and how long it lasts if
    /// nobody renews it. `None` if it is free.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only looks.
    ///
    /// # Errors
    ///
    /// `InvalidKey`, `Backend`, or `ForeignValue` for a value that is no lock.
    pub async fn holder(&self, key: LockKey) -> Result<Option<(String, Duration)>, LockError> {
        self.check_key(&key)?;
        let key: Arc<str> = self.resolve_key(key).into();
        let request = async {
            let channel = self.0.core.channel().await?;
            channel.inspect(&key).await
        };
        let holder = request.await.map_err(|error| refusal::store(error).with_key(&key))?;
        let Some(holder) = holder else { return Ok(None) };
        match holder.remaining {
            Some(remaining) => Ok(Some((holder.owner.as_ref().to_owned(), remaining))),
            None => Err(LockError::new(
                LockErrorKind::ForeignValue,
                "the key holds a text without a TTL, which is no lock: remove it",
            )
            .with_key(&key)),
        }
    }

    /// Ends the client in order: no lock is granted from now on, waiters get `ShutDown`, and what is
    /// held has until `deadline` from now to end by itself. What is left then is marked lost: bodies
    /// are dropped, their calls return `ShutDown`, and the locks are released. Guards held by hand
    /// are only no longer renewed, since their code cannot be stopped.
    ///
    /// Returns when all is released, or a second after the deadline at the latest. A second call does
    /// no harm.
    ///
    /// # Cancel safety
    ///
    /// Dropping the call leaves the client shut down for new callers; what is held goes on.
    ///
    /// # Errors
    ///
    /// `ShutDown`: some locks could not be released; they run out with their leases.
    pub async fn shutdown(&self, deadline: Duration) -> Result<(), LockError> {
        let core = &self.0.core;
        core.refuse_callers();
        if tokio::time::timeout(deadline, core.quiet()).await.is_ok() {
            return Ok(());
        }
        core.end_holds();
        tokio::time::timeout(RELEASE_WITHIN, core.quiet()).await.map_err(|_| {
            LockError::new(
                LockErrorKind::ShutDown,
                "some locks could not be released at shut-down: they run out with their leases",
            )
        })
    }

    /// The name of this client at the beginning of its owner strings: `host:pid`, or the builder's.
    #[must_use]
    pub fn instance(&self) -> &str {
        self.0.core.instance().name()
    }

    /// Refuses a key that cannot be used here.
    fn check_key(&self, key: &LockKey) -> Result<(), LockError> {
        key.check()?;
        let limit = self.0.max_key_bytes;
        let namespace = self.0.namespace.as_deref();
        let bytes = key.as_str().len() + namespace.map_or(0, |namespace| namespace.len() + 1);
        if bytes > limit {
            return Err(LockError::new(
                LockErrorKind::InvalidKey,
                format!(
                    "the key of template {:?} is {bytes} bytes long, but may have at most {limit}: \
                     use a shorter value, or raise max_key_bytes of the client",
                    key.template(),
                ),
            ));
        }
        Ok(())
    }

    /// The key as it stands in the store.
    fn resolve_key(&self, key: LockKey) -> Cow<'static, str> {
        key.into_namespace(self.0.namespace.as_deref())
    }
}

impl fmt::Debug for LockClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockClient")
            .field("core", &self.0.core)
            .field("namespace", &self.0.namespace)
            .field("defaults", &self.0.defaults)
            .finish_non_exhaustive()
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.core.close();
    }
}

const RELEASE_WITHIN: Duration = Duration::from_secs(1);
