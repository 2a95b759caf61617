//! Every store that a behaviour test runs on, and a look at what stands in it that does not go
//! through the client under test.

use std::sync::Arc;
use std::time::Duration;

use distlock::{LockClient, LockClientBuilder, LockKey, MemoryStore};
use redis::AsyncCommands;

use super::redis_server::RedisServer;

/// Runs each test on every store, as `the_test::memory`, `the_test::redis` and
/// `the_test::quorum`, the quorum being one of three stores in memory. A list that begins with `single_store` leaves the quorum out.
///
/// On memory the clock is paused, so leases and waits cost no time; on Redis several threads run, and
/// time is real. So a test may sleep where the passing of time is what it is about (keep it short),
/// takes the time from `tokio::time::Instant`, and waits for everything else by
/// [`eventually`](super::eventually). The Redis server is shared: keys come from
/// [`unique_key`](super::unique_key).
///
/// ```ignore
/// on_every_store! {
///     async fn released_lock_is_free(store: Store) {
///         let key = unique_key("released");
///         let guard = store.client().lock(LockKey::literal(key.clone())).acquire().await.unwrap();
///         guard.release().await.unwrap();
///         assert_eq!(store.owner_of(&key).await, None);
///     }
/// }
/// ```
///
/// rustfmt leaves the inside of a macro alone. Where that hurts, write the tests as plain functions and
/// name them: `on_every_store! { released_lock_is_free, another_test }`; one that is not named is an
/// unused function, which the compiler reports.
macro_rules! on_every_store {
    (single_store $($(#[$attribute:meta])* async fn $name:ident($store:ident: Store) $body:block)*) => {
        $(async fn $name($store: $crate::support::Store) $body)*

        $crate::support::on_every_store! { single_store $($(#[$attribute])* $name),* }
    };
    ($($(#[$attribute:meta])* async fn $name:ident($store:ident: Store) $body:block)*) => {
        $(async fn $name($store: $crate::support::Store) $body)*

        $crate::support::on_every_store! { $($(#[$attribute])* $name),* }
    };
    (single_store $($(#[$attribute:meta])* $name:ident),* $(,)?) => {$(
        mod $name {
            #[tokio::test(start_paused = true)]
            $(#[$attribute])*
            async fn memory() {
                super::$name($crate::support::Store::memory()).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            $(#[$attribute])*
            async fn redis() {
                super::$name($crate::support::Store::redis()).await;
            }
        }
    )*};
    ($($(#[$attribute:meta])* $name:ident),* $(,)?) => {$(
        mod $name {
            #[tokio::test(start_paused = true)]
            $(#[$attribute])*
            async fn memory() {
                super::$name($crate::support::Store::memory()).await;
            }

            #[tokio::test(start_paused = true)]
            $(#[$attribute])*
            async fn quorum() {
                super::$name($crate::support::Store::quorum()).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            $(#[$attribute])*
            async fn redis() {
                super::$name($crate::support::Store::redis()).await;
            }
        }
    )*};
}
pub(crate) use on_every_store;

/// A store, as the test sees it.
#[derive(Clone, Debug)]
pub(crate) enum Store {
    Memory(MemoryStore),
    Quorum([MemoryStore; 3]),
    Redis(Arc<RedisServer>),
}

impl Store {
    /// A new store in memory.
    pub(crate) fn memory() -> Self {
        Self::Memory(MemoryStore::new())
    }

    /// A new quorum of stores in memory.
    pub(crate) fn quorum() -> Self {
        Self::Quorum(Default::default())
    }

    /// The Redis server that the tests of this process share.
    pub(crate) fn redis() -> Self {
        Self::Redis(RedisServer::shared())
    }

    /// A new client on this store: another instance of the service.
    pub(crate) fn client(&self) -> LockClient {
        self.builder().build().expect("default settings work")
    }

    /// The same with settings to come.
    pub(crate) fn builder(&self) -> LockClientBuilder {
        match self {
            Self::Memory(store) => LockClient::builder().memory_store(store.clone()),
            Self::Quorum(nodes) => LockClient::builder().quorum(nodes.clone()),
            Self::Redis(server) => LockClient::builder().url(server.url()),
        }
    }

    /// What stands under `key`: of a lock its owner.
    pub(crate) async fn owner_of(&self, key: &str) -> Option<String> {
        match self {
            Self::Memory(store) => store.get(key),
            Self::Quorum(nodes) => owner_at(nodes, key),
            Self::Redis(server) => {
                server.connection().await.get(key).await.expect("a text or nothing")
            }
        }
    }

    /// What is left until `key` expires; `None` if it is not there.
    pub(crate) async fn remaining(&self, key: &str) -> Option<Duration> {
        match self {
            // The store in memory shows no times; a client that has nothing to do with the test does.
            Self::Memory(_) | Self::Quorum(_) => {
                let holder = self.client().holder(LockKey::literal(key.to_owned())).await;
                holder.expect("a lock or nothing").map(|(_, remaining)| remaining)
            }
            Self::Redis(server) => {
                let milliseconds: i64 =
                    server.connection().await.pttl(key).await.expect("the server answers");
                assert_ne!(milliseconds, -1, "{key} has no TTL");
                u64::try_from(milliseconds).ok().map(Duration::from_millis)
            }
        }
    }

    /// Sets `key` to a text as another program could, over whatever stands there.
    pub(crate) async fn put_foreign(&self, key: &str, value: &str, ttl: Option<Duration>) {
        match self {
            Self::Memory(store) => store.insert_foreign(key, value, ttl),
            Self::Quorum(nodes) => {
                nodes.iter().for_each(|store| store.insert_foreign(key, value, ttl));
            }
            Self::Redis(server) => {
                let mut command = redis::cmd("SET");
                command.arg(key).arg(value);
                if let Some(ttl) = ttl {
                    command.arg("PX").arg(u64::try_from(ttl.as_millis()).expect("not that long"));
                }
                let mut connection = server.connection().await;
                command.exec_async(&mut connection).await.expect("the server answers");
            }
        }
    }

    /// Puts a list under the free `key`.
    pub(crate) async fn put_other_type(&self, key: &str) {
        match self {
            Self::Memory(store) => store.insert_foreign_type(key),
            Self::Quorum(nodes) => nodes.iter().for_each(|store| store.insert_foreign_type(key)),
            Self::Redis(server) => {
                let pushed = server.connection().await.rpush(key, "no lock").await;
                let (): () = pushed.expect("the key was free");
            }
        }
    }

    /// Removes `key` as another program could.
    pub(crate) async fn remove(&self, key: &str) {
        match self {
            Self::Memory(store) => store.remove(key),
            Self::Quorum(nodes) => nodes.iter().for_each(|store| store.remove(key)),
            Self::Redis(server) => {
                let (): () = server.connection().await.del(key).await.expect("the server answers");
            }
        }
    }
}

/// Who holds `key` on most of `nodes`: without the number of the round that each value ends in.
pub(crate) fn owner_at(nodes: &[MemoryStore], key: &str) -> Option<String> {
    let owners: Vec<_> = nodes
        .iter()
        .filter_map(|node| node.get(key))
        .map(|value| {
            value.rsplit_once('~').map_or_else(|| value.clone(), |(owner, _)| owner.to_owned())
        })
        .collect();
    let most = |owner: &&String| owners.iter().filter(|other| other == owner).count();
    owners.iter().find(|owner| most(owner) > nodes.len() / 2).cloned()
}
