//! What every store must do, tried on each of them.

use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::memory::{MemoryBackend, MemoryStore};
use super::quorum::QuorumBackend;
use super::{
    Acquired, Backend, Channel, Contended, Events, Lock, Released, StoreErrorKind, StoreResult,
    contender_of,
};

#[cfg(feature = "cluster")]
pub(crate) mod cluster;
#[cfg(feature = "redis")]
pub(crate) mod server;

/// Makes a test for each store of each behaviour, a function of a [`World`]: on one that takes several
/// stores for one, too.
macro_rules! on_every_store {
    ($($behaviour:ident),* $(,)?) => {
        on_every_single_store! { $($behaviour),* }

        mod on_a_quorum {
            $(#[tokio::test]
            async fn $behaviour() {
                super::$behaviour(&super::World::quorum()).await;
            })*
        }
    };
}

/// The same for what only a single store does: to grant a lock by a release, in the order of the queue.
macro_rules! on_every_single_store {
    ($($behaviour:ident),* $(,)?) => {
        mod on_memory {
            $(#[tokio::test]
            async fn $behaviour() {
                super::$behaviour(&super::World::memory()).await;
            })*
        }

        #[cfg(feature = "redis")]
        mod on_redis {
            $(#[tokio::test]
            async fn $behaviour() {
                super::$behaviour(&super::World::redis()).await;
            })*
        }

        #[cfg(feature = "cluster")]
        mod on_cluster {
            $(#[tokio::test]
            async fn $behaviour() {
                super::$behaviour(&super::World::cluster()).await;
            })*
        }
    };
}

mod fences;
mod holds;
mod queue;
#[cfg(feature = "redis")]
mod same;

/// A store, and what other programs can do to it.
pub(crate) enum World {
    #[cfg(feature = "cluster")]
    Cluster(cluster::Visit),
    Memory(MemoryStore),
    Quorum([MemoryStore; 3]),
    #[cfg(feature = "redis")]
    Redis(server::RedisServer),
}

impl World {
    fn memory() -> Self {
        Self::Memory(MemoryStore::new())
    }

    fn quorum() -> Self {
        Self::Quorum(Default::default())
    }

    #[cfg(feature = "redis")]
    fn redis() -> Self {
        Self::Redis(server::RedisServer::start())
    }

    #[cfg(feature = "cluster")]
    fn cluster() -> Self {
        Self::Cluster(cluster::Visit::begin())
    }

    fn backend(&self) -> Arc<dyn Backend> {
        match self {
            #[cfg(feature = "cluster")]
            Self::Cluster(cluster) => Arc::new(cluster.backend()),
            Self::Memory(store) => Arc::new(MemoryBackend::new(store)),
            Self::Quorum(nodes) => {
                let node = |store| Arc::new(MemoryBackend::new(store)) as Arc<dyn Backend>;
                Arc::new(QuorumBackend::new(nodes.iter().map(node).collect(), SHORT))
            }
            #[cfg(feature = "redis")]
            Self::Redis(server) => Arc::new(server.backend()),
        }
    }

    async fn channel(&self) -> Arc<dyn Channel> {
        self.backend().open().await.unwrap()
    }

    async fn contender(&self) -> Contender {
        Contender::on(self.backend()).await
    }

    fn put(&self, key: &str, value: &str, ttl: Option<Duration>) {
        match self {
            Self::Memory(store) => store.insert_foreign(key, value, ttl),
            Self::Quorum(nodes) => {
                nodes.iter().for_each(|store| store.insert_foreign(key, value, ttl));
            }
            #[cfg(feature = "redis")]
            Self::Redis(server) => {
                let ttl_ms = ttl.map(|ttl| ttl.as_millis().to_string());
                let mut words = vec!["SET", key, value];
                words.extend(ttl_ms.iter().flat_map(|ttl_ms| ["PX", ttl_ms]));
                server.run::<()>(&words);
            }
            #[cfg(feature = "cluster")]
            Self::Cluster(cluster) => {
                let ttl_ms = ttl.map(|ttl| ttl.as_millis().to_string());
                let mut words = vec!["SET", key, value];
                words.extend(ttl_ms.iter().flat_map(|ttl_ms| ["PX", ttl_ms]));
                cluster.run::<()>(&words);
            }
        }
    }

    fn put_other_type(&self, key: &str) {
        match self {
            Self::Memory(store) => store.insert_foreign_type(key),
            Self::Quorum(nodes) => nodes.iter().for_each(|store| store.insert_foreign_type(key)),
            #[cfg(feature = "redis")]
            Self::Redis(server) => {
                server.run::<()>(&["DEL", key]);
                server.run::<()>(&["RPUSH", key, "x"]);
            }
            #[cfg(feature = "cluster")]
            Self::Cluster(cluster) => {
                cluster.run::<()>(&["DEL", key]);
                cluster.run::<()>(&["RPUSH", key, "x"]);
            }
        }
    }

    #[cfg(feature = "redis")]
    fn remove(&self, key: &str) {
        match self {
            Self::Memory(store) => store.remove(key),
            Self::Quorum(nodes) => nodes.iter().for_each(|store| store.remove(key)),
            Self::Redis(server) => server.run(&["DEL", key]),
            #[cfg(feature = "cluster")]
            Self::Cluster(cluster) => cluster.run(&["DEL", key]),
        }
    }

    fn get(&self, key: &str) -> Option<String> {
        match self {
            Self::Memory(store) => store.get(key),
            Self::Quorum(nodes) => {
                let values = nodes.each_ref().map(|store| store.get(key));
                assert!(values.iter().all(|value| *value == values[0]), "{values:?}");
                values[0].as_deref().map(|value| contender_of(value).to_owned())
            }
            #[cfg(feature = "redis")]
            Self::Redis(server) => server.run(&["GET", key]),
            #[cfg(feature = "cluster")]
            Self::Cluster(cluster) => cluster.run(&["GET", key]),
        }
    }

    fn is_empty(&self) -> bool {
        match self {
            Self::Memory(store) => store.is_empty(),
            Self::Quorum(nodes) => nodes.iter().all(MemoryStore::is_empty),
            #[cfg(feature = "redis")]
            Self::Redis(server) => server.run::<Vec<String>>(&["KEYS", "*"]).is_empty(),
            #[cfg(feature = "cluster")]
            Self::Cluster(cluster) => cluster.is_empty(),
        }
    }

    /// Waits until nobody listens any more but `count`.
    async fn listeners(&self, count: usize) {
        let listeners = || match self {
            // They are gone at once.
            Self::Memory(_) | Self::Quorum(_) => count,
            #[cfg(feature = "redis")]
            Self::Redis(server) => server.run::<Vec<String>>(&["PUBSUB", "CHANNELS"]).len(),
            #[cfg(feature = "cluster")]
            Self::Cluster(cluster) => cluster.listeners(),
        };
        eventually("the others leave", || listeners() == count).await;
    }
}

/// A process in a queue.
pub(crate) struct Contender {
    backend: Arc<dyn Backend>,
    channel: Arc<dyn Channel>,
    ears: Arc<Ears>,
}

impl Contender {
    pub(crate) async fn on(backend: Arc<dyn Backend>) -> Self {
        let ears = Arc::new(Ears::default());
        let weak = Arc::downgrade(&ears) as Weak<dyn Events>;
        let channel = backend.open_listening(weak).await.unwrap();
        Self { backend, channel, ears }
    }

    /// Ears without a process, which must be kept for as long as they are to hear.
    #[cfg(feature = "redis")]
    pub(crate) fn ears() -> Arc<Ears> {
        Arc::new(Ears::default())
    }

    pub(crate) fn channel(&self) -> &dyn Channel {
        &*self.channel
    }

    pub(crate) async fn contend(&self, lock: &Lock) -> Contended {
        self.try_contend(lock, KEEP).await.unwrap()
    }

    pub(crate) async fn try_contend(&self, lock: &Lock, keep: Duration) -> StoreResult<Contended> {
        self.channel.contend(lock, LEASE, keep).await
    }

    /// Contends for a held lock.
    async fn queue(&self, lock: &Lock) -> usize {
        match self.contend(lock).await {
            Contended::Queued { ahead, .. } => ahead,
            other => panic!("{lock:?} was not queued: {other:?}"),
        }
    }

    /// Loses the connection, but not the place. Gives the process back that may reconnect.
    fn go_out_of_reach(self) -> Arc<dyn Backend> {
        self.backend
    }

    pub(crate) async fn hears(&self, news: Heard) {
        let what = format!("{news:?} is heard");
        eventually(&what, || self.ears.0.lock().unwrap().contains(&news)).await;
    }

    fn heard(&self) -> usize {
        self.ears.0.lock().unwrap().len()
    }
}

#[derive(Default)]
pub(crate) struct Ears(Mutex<Vec<Heard>>);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    Granted { key: String, owner: String },
    Interrupted,
    NextInLine { key: String, owner: String, claim: Duration },
}

impl Heard {
    pub(crate) fn granted(lock: &Lock) -> Self {
        Self::Granted { key: lock.key.as_ref().into(), owner: lock.owner.as_ref().into() }
    }

    fn next(lock: &Lock) -> Self {
        Self::NextInLine {
            key: lock.key.as_ref().into(),
            owner: lock.owner.as_ref().into(),
            claim: CLAIM,
        }
    }
}

impl Events for Ears {
    fn granted(&self, key: &str, owner: &str) {
        let news = Heard::Granted { key: key.into(), owner: owner.into() };
        self.0.lock().unwrap().push(news);
    }

    fn next_in_line(&self, key: &str, owner: &str, claim: Duration) {
        let news = Heard::NextInLine { key: key.into(), owner: owner.into(), claim };
        self.0.lock().unwrap().push(news);
    }

    fn interrupted(&self) {
        self.0.lock().unwrap().push(Heard::Interrupted);
    }
}

pub(crate) fn lock(key: &str, owner: &str) -> Lock {
    Lock { key: key.into(), owner: owner.into() }
}

pub(crate) fn granted_to(lock: &Lock) -> Released {
    Released::Granted { owner: Arc::clone(&lock.owner) }
}

pub(crate) fn kind_of<T: std::fmt::Debug>(outcome: StoreResult<T>) -> StoreErrorKind {
    outcome.unwrap_err().kind
}

/// Takes a free lock for whoever is of no interest to the test.
pub(crate) async fn hold(channel: &dyn Channel, lock: &Lock) {
    assert_eq!(channel.acquire(lock, LEASE).await.unwrap(), Acquired::Granted);
}

pub(crate) async fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !condition() {
        assert!(Instant::now() < deadline, "in vain: {what}");
        sleep(Duration::from_millis(2)).await;
    }
}

pub(crate) const LEASE: Duration = Duration::from_secs(30);
pub(crate) const KEEP: Duration = Duration::from_secs(20);
pub(crate) const CLAIM: Duration = Duration::from_secs(10);
pub(crate) const SHORT: Duration = Duration::from_millis(60);
