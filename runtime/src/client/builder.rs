//! Making a client.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::quorum::QuorumNode;
use super::store::Store;
use super::{Handle, LockClient};
use crate::backend::Backend;
use crate::backend::memory::MemoryStore;
#[cfg(feature = "tls")]
use crate::backend::redis::{ClientPem, Pem};
use crate::driver::{Core, Tuning};
use crate::error::{LockError, LockErrorKind};
use crate::instance::Instance;
use crate::options::{LockOptions, OnLost, Release, Settings};
use crate::protocol::offer::HandOff;
use crate::refusal;

/// Makes a [`LockClient`]. Setters only note what they are told; [`build`](Self::build) and
/// [`connect`](Self::connect) check it.
///
/// ```
/// # fn main() -> Result<(), distlock::LockError> {
/// use std::time::Duration;
///
/// use distlock::{LockClient, MemoryStore};
///
/// let store = MemoryStore::new();
/// let locks = LockClient::builder()
///     .memory_store(store)
///     .namespace("shop")
///     .lease(Duration::from_secs(5))
///     .build()?;
/// # Ok(())
/// # }
/// ```
#[must_use = "a builder does nothing until `build` or `connect`"]
pub struct LockClientBuilder {
    pub(super) store: Option<Store>,
    namespace: Option<String>,
    instance: Option<String>,
    defaults: LockOptions,
    tuning: Tuning,
    pub(super) connect_timeout: Duration,
    pub(super) response_timeout: Duration,
    pub(super) min_replicas: u32,
    max_key_bytes: usize,
    #[cfg(feature = "tls")]
    pub(super) pem: Pem,
}

impl LockClientBuilder {
    pub(super) fn new() -> Self {
        Self {
            store: None,
            namespace: None,
            instance: None,
            defaults: LockOptions::new(),
            tuning: Tuning {
                claim: Duration::from_millis(500),
                hand_off: HandOff { passes: 1024, within: Duration::from_millis(20) },
            },
            connect_timeout: Duration::from_secs(1),
            response_timeout: Duration::from_secs(1),
            min_replicas: 0,
            max_key_bytes: 512,
            #[cfg(feature = "tls")]
            pem: Pem::default(),
        }
    }

    /// Sets the store by URL; see [`LockClient::connect`] for the forms.
    pub fn url(self, url: impl Into<String>) -> Self {
        Self { store: Some(Store::Url(url.into())), ..self }
    }

    /// Sets a store in this process; clients on clones of one store exclude each other.
    pub fn memory_store(self, store: MemoryStore) -> Self {
        Self { store: Some(Store::Memory(store)), ..self }
    }

    /// Sets a Redis server by a client of the user's own, for what a URL cannot say. Protocol and
    /// socket settings are the library's (RESP3, no delay).
    #[cfg(feature = "redis")]
    pub fn redis_client(self, client: redis::Client) -> Self {
        Self { store: Some(Store::Redis(Box::new(client))), ..self }
    }

    /// Trusts the servers whose certificates these authorities issued, and no others: one or several
    /// certificates in PEM. For `rediss://` and `rediss-sentinel://`, sentinels included.
    ///
    /// Defaults to the authorities that the machine trusts.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let locks = distlock::LockClient::builder()
    ///     .url("rediss://redis.example:6380/")
    ///     .tls_root_cert(std::fs::read("/etc/redis/ca.crt")?)
    ///     .tls_client_cert(std::fs::read("/etc/redis/us.crt")?, std::fs::read("/etc/redis/us.key")?)
    ///     .build()?;
    /// # Ok(())
    /// # }
    /// ```
    #[cfg(feature = "tls")]
    pub fn tls_root_cert(mut self, pem: impl AsRef<[u8]>) -> Self {
        self.pem.root = Some(pem.as_ref().into());
        self
    }

    /// Proves to the servers who we are, where they ask for it: a certificate with its chain, and its
    /// private key, in PEM. For `rediss://` and `rediss-sentinel://`, sentinels included.
    ///
    /// Defaults to none. See [`tls_root_cert`](Self::tls_root_cert) for an example.
    #[cfg(feature = "tls")]
    pub fn tls_client_cert(mut self, chain: impl AsRef<[u8]>, key: impl AsRef<[u8]>) -> Self {
        let (chain, key) = (chain.as_ref().into(), key.as_ref().into());
        self.pem.client = Some(ClientPem { chain, key });
        self
    }

    /// Sets a quorum: 3 to 15 stores that know nothing of each other, better an odd number of them, of
    /// which more than half must agree. With Redis servers alone, the URL `redlock://h1,h2,h3` says
    /// the same.
    ///
    /// The lock goes on while fewer than half of the nodes are down. What it guarantees, and what it
    /// does not, is in [`topologies`](crate::topologies); most notably that the order among waiting
    /// processes is not kept.
    pub fn quorum<N>(self, nodes: impl IntoIterator<Item = N>) -> Self
    where
        N: Into<QuorumNode>,
    {
        let nodes = nodes.into_iter().map(Into::into).collect();
        Self { store: Some(Store::Quorum(nodes)), ..self }
    }

    /// Puts `<namespace>:` before every key, so that applications or environments on one server do
    /// not share locks.
    ///
    /// Defaults to none.
    pub fn namespace(self, namespace: impl Into<String>) -> Self {
        Self { namespace: Some(namespace.into()), ..self }
    }

    /// Sets the name that this client's owner strings begin with, for an operator to read.
    ///
    /// Defaults to `host:pid`.
    pub fn instance(self, instance: impl Into<String>) -> Self {
        Self { instance: Some(instance.into()), ..self }
    }

    /// See [`LockOptions::wait`]. Defaults to 3 seconds.
    pub fn wait(self, wait: Duration) -> Self {
        self.with(|defaults| defaults.wait(wait))
    }

    /// See [`LockOptions::lease`]. Defaults to 10 seconds.
    pub fn lease(self, lease: Duration) -> Self {
        self.with(|defaults| defaults.lease(lease))
    }

    /// See [`LockOptions::max_hold`]. Defaults to no cap.
    pub fn max_hold(self, max_hold: Duration) -> Self {
        self.with(|defaults| defaults.max_hold(max_hold))
    }

    /// See [`LockOptions::on_lost`]. Defaults to [`OnLost::Cancel`].
    pub fn on_lost(self, on_lost: OnLost) -> Self {
        self.with(|defaults| defaults.on_lost(on_lost))
    }

    /// See [`LockOptions::release`]. Defaults to [`Release::Await`].
    pub fn release(self, release: Release) -> Self {
        self.with(|defaults| defaults.release(release))
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
        self.with(|defaults| defaults.max_waiters(max_waiters))
    }

    /// Sets how long a lock that a release granted to a waiting process stays its own before it is
    /// confirmed: what a dead waiter costs the others. 50 milliseconds to 10 seconds.
    ///
    /// Defaults to 500 milliseconds.
    pub fn claim_lease(mut self, claim_lease: Duration) -> Self {
        self.tuning.claim = claim_lease;
        self
    }

    /// Sets how long this process may keep a lock that passes from one of its waiters to the next
    /// without a command: so many times, and so long. Then the store decides who is next, and other
    /// processes get their turn. Zero passes: the store decides every time.
    ///
    /// Defaults to 1024 passes within 20 milliseconds.
    pub fn local_handoff(mut self, passes: u32, within: Duration) -> Self {
        self.tuning.hand_off = HandOff { passes, within };
        self
    }

    /// Sets how long one attempt to connect may take.
    ///
    /// Defaults to 1 second.
    pub fn connect_timeout(self, connect_timeout: Duration) -> Self {
        Self { connect_timeout, ..self }
    }

    /// Sets how long the store may take for one answer. Bounds a release, too, which is repeated in
    /// the background then. Of a quorum, each node has a quarter of it.
    ///
    /// Defaults to 1 second.
    pub fn response_timeout(self, response_timeout: Duration) -> Self {
        Self { response_timeout, ..self }
    }

    /// Sets how many replicas of the Redis server, in a cluster of the lock's node, must have a lock, and
    /// each renewal, before it counts: with all that may be promoted, a failover forgets no lock.
    /// [`topologies`](crate::topologies) says what is left with fewer. Costs a connection more for each
    /// runtime, in a cluster to each node, and the time that the replicas take, at each acquire and
    /// renewal. If they do not have it in time, the lock is not obtained, or is lost at its deadline.
    ///
    /// Defaults to 0: replicas are not asked.
    pub fn min_replicas(self, min_replicas: u32) -> Self {
        Self { min_replicas, ..self }
    }

    /// Sets how long a key may be, namespace included, in bytes.
    ///
    /// Defaults to 512 bytes.
    pub fn max_key_bytes(self, max_key_bytes: usize) -> Self {
        Self { max_key_bytes, ..self }
    }

    /// Creates the client; it connects when it is first used.
    ///
    /// # Errors
    ///
    /// `Config`: a setting cannot work; the text names it.
    pub fn build(self) -> Result<LockClient, LockError> {
        let defaults = self.check()?;
        let backend = self.backend()?;
        let instance = self.instance.as_deref().map_or_else(Instance::of_process, Instance::named);
        Ok(LockClient(Arc::new(Handle {
            core: Core::new(backend, instance, self.tuning),
            namespace: self.namespace.map(Into::into),
            defaults,
            max_key_bytes: self.max_key_bytes,
        })))
    }

    /// Creates the client and connects it, within its `wait`; with a `wait` of zero in one attempt.
    ///
    /// # Cancel safety
    ///
    /// Dropping the call closes what it opened.
    ///
    /// # Errors
    ///
    /// - `Config`: a setting cannot work; the text names it.
    /// - `Backend`: the store did not answer in time, or refused.
    pub async fn connect(self) -> Result<LockClient, LockError> {
        let wait = self.defaults.resolve()?.wait();
        let connect_timeout = self.connect_timeout + OWN_TIMEOUT_FIRST;
        let client = self.build()?;
        // One attempt, bounded by its own time-out.
        let wait = if wait.is_zero() { connect_timeout } else { wait };
        match tokio::time::timeout(wait, client.0.core.channel()).await {
            Ok(Ok(_)) => Ok(client),
            Ok(Err(error)) => Err(refusal::store(error)),
            Err(_) => {
                let text = format!("the lock store did not answer within {wait:?}");
                Err(LockError::new(LockErrorKind::Backend, text))
            }
        }
    }

    fn check(&self) -> Result<Settings, LockError> {
        let defaults = self.defaults.resolve()?;
        let (least, most) = (Duration::from_millis(50), Duration::from_secs(10));
        let given = self.tuning.claim;
        if !(least..=most).contains(&given) {
            return Err(config(format!("claim_lease is {given:?}: use {least:?} to {most:?}")));
        }
        for (name, value) in
            [("connect_timeout", self.connect_timeout), ("response_timeout", self.response_timeout)]
        {
            if value.is_zero() {
                return Err(config(format!("{name} is zero, so nothing could ever be answered")));
            }
        }
        for (name, value) in [("namespace", &self.namespace), ("instance", &self.instance)] {
            if value.as_ref().is_some_and(|value| value.trim().is_empty()) {
                return Err(config(format!("{name} is empty: name it, or leave it out")));
            }
        }
        // Owner strings stand in lines of messages between clients.
        if self.instance.as_ref().is_some_and(|name| name.contains(char::is_control)) {
            let given = self.instance.as_deref().unwrap_or_default();
            return Err(config(format!(
                "instance is {given:?}: use a name without control characters, such as line breaks"
            )));
        }
        Ok(defaults)
    }

    fn with(self, change: impl FnOnce(LockOptions) -> LockOptions) -> Self {
        Self { defaults: change(self.defaults), ..self }
    }
}

/// A client with default settings.
pub(super) fn on(backend: Arc<dyn Backend>) -> LockClient {
    let defaults = LockClientBuilder::new();
    LockClient(Arc::new(Handle {
        core: Core::new(backend, Instance::of_process(), defaults.tuning),
        namespace: None,
        defaults: Settings::DEFAULT,
        max_key_bytes: defaults.max_key_bytes,
    }))
}

impl fmt::Debug for LockClientBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The store is left out: a URL may hold a password.
        f.debug_struct("LockClientBuilder")
            .field("namespace", &self.namespace)
            .field("instance", &self.instance)
            .field("defaults", &self.defaults)
            .field("tuning", &self.tuning)
            .field("connect_timeout", &self.connect_timeout)
            .field("response_timeout", &self.response_timeout)
            .field("min_replicas", &self.min_replicas)
            .field("max_key_bytes", &self.max_key_bytes)
            .finish_non_exhaustive()
    }
}

pub(super) fn config(message: String) -> LockError {
    LockError::new(LockErrorKind::Config, message)
}

/// So that the attempt's own error comes first: it says more.
const OWN_TIMEOUT_FIRST: Duration = Duration::from_millis(100);
