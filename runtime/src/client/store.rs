//! Which store a client is on, and what it takes to reach it.

use std::sync::Arc;
use std::time::Duration;

use super::builder::{LockClientBuilder, config};
use super::quorum::{self, QuorumNode};
use crate::backend::Backend;
use crate::backend::memory::{MemoryBackend, MemoryStore};
use crate::backend::quorum::QuorumBackend;
#[cfg(feature = "cluster")]
use crate::backend::redis::{ClusterBackend, ClusterConfig, cluster_from_url};
#[cfg(feature = "redis")]
use crate::backend::redis::{RedisBackend, RedisConfig, ReplicatedBackend, config_from_url};
use crate::error::LockError;

pub(super) enum Store {
    Memory(MemoryStore),
    Quorum(Vec<QuorumNode>),
    #[cfg(feature = "redis")]
    Redis(Box<redis::Client>),
    Url(String),
}

impl LockClientBuilder {
    pub(super) fn backend(&self) -> Result<Arc<dyn Backend>, LockError> {
        let store = self.store.as_ref().ok_or_else(|| {
            config(
                "no store: call url(..), memory_store(..), redis_client(..) or quorum(..) on the \
                 builder"
                    .to_owned(),
            )
        })?;
        self.backend_of(store, self.response_timeout)
    }

    fn backend_of(
        &self,
        store: &Store,
        response_timeout: Duration,
    ) -> Result<Arc<dyn Backend>, LockError> {
        match store {
            Store::Memory(store) => self.memory(store),
            Store::Quorum(nodes) => self.quorum_of(nodes),
            #[cfg(feature = "redis")]
            Store::Redis(client) => {
                let redis = RedisConfig::new(client.get_connection_info().clone());
                let redis = redis
                    .map_err(|error| config(format!("the redis client cannot be used: {error}")))?;
                self.redis(redis, response_timeout)
            }
            Store::Url(url) => self.backend_at(url, response_timeout),
        }
    }

    fn backend_at(
        &self,
        url: &str,
        response_timeout: Duration,
    ) -> Result<Arc<dyn Backend>, LockError> {
        let Some((scheme, _)) = url.split_once(':') else {
            return Err(config(format!("{url:?} is no URL: {SCHEMES}")));
        };
        match scheme {
            "memory" => self.memory(&MemoryStore::new()),
            "redlock" => {
                let urls = quorum::node_urls(url).ok_or_else(|| {
                    config("a redlock: URL names no nodes: write redlock://h1,h2,h3/".to_owned())
                })?;
                self.quorum_of(&urls.into_iter().map(Into::into).collect::<Vec<_>>())
            }
            #[cfg(feature = "redis")]
            "redis" | "rediss" | "redis+unix" | "unix" | "redis-sentinel" | "rediss-sentinel" => {
                let redis = config_from_url(url).map_err(|error| config(error.to_string()))?;
                self.redis(redis, response_timeout)
            }
            #[cfg(not(feature = "redis"))]
            "redis" | "rediss" | "redis+unix" | "unix" | "redis-sentinel" | "rediss-sentinel" => {
                let _ = response_timeout;
                Err(config(format!("{scheme}: URLs need the feature \"redis\" of distlock")))
            }
            #[cfg(feature = "cluster")]
            "redis-cluster" | "rediss-cluster" => {
                let cluster = cluster_from_url(url).map_err(|error| config(error.to_string()))?;
                self.cluster(cluster, response_timeout)
            }
            #[cfg(not(feature = "cluster"))]
            "redis-cluster" | "rediss-cluster" => {
                let _ = response_timeout;
                Err(config(format!("{scheme}: URLs need the feature \"cluster\" of distlock")))
            }
            _ => Err(config(format!("{scheme:?} is no known store: {SCHEMES}"))),
        }
    }

    fn memory(&self, store: &MemoryStore) -> Result<Arc<dyn Backend>, LockError> {
        if self.min_replicas > 0 {
            return Err(config("min_replicas: a store in memory has no replicas".to_owned()));
        }
        Ok(Arc::new(MemoryBackend::new(store)))
    }

    fn quorum_of(&self, nodes: &[QuorumNode]) -> Result<Arc<dyn Backend>, LockError> {
        quorum::check(nodes).map_err(config)?;
        // So that a round with silent nodes still ends within one response time-out.
        let node_timeout = self.response_timeout / 4;
        let backends: Result<Vec<_>, _> =
            nodes.iter().map(|node| self.backend_of(&node.0, node_timeout)).collect();
        Ok(Arc::new(QuorumBackend::new(backends?, node_timeout)))
    }

    #[cfg(feature = "redis")]
    fn redis(
        &self,
        config: RedisConfig,
        response_timeout: Duration,
    ) -> Result<Arc<dyn Backend>, LockError> {
        let config = self.settings_of(config, response_timeout)?;
        let main = Arc::new(RedisBackend::new(config.clone()));
        if self.min_replicas == 0 {
            return Ok(main);
        }
        let acks = Arc::new(RedisBackend::new(config));
        Ok(Arc::new(ReplicatedBackend::new(main, acks, self.min_replicas, response_timeout)))
    }

    #[cfg(feature = "cluster")]
    fn cluster(
        &self,
        mut cluster: ClusterConfig,
        response_timeout: Duration,
    ) -> Result<Arc<dyn Backend>, LockError> {
        cluster.node = self.settings_of(cluster.node, response_timeout)?;
        let main = Arc::new(ClusterBackend::new(cluster.clone()));
        if self.min_replicas == 0 {
            return Ok(main);
        }
        let acks = Arc::new(ClusterBackend::new(cluster));
        Ok(Arc::new(ReplicatedBackend::new(main, acks, self.min_replicas, response_timeout)))
    }

    #[cfg(feature = "redis")]
    fn settings_of(
        &self,
        config: RedisConfig,
        response_timeout: Duration,
    ) -> Result<RedisConfig, LockError> {
        #[cfg(feature = "tls")]
        let config = config.secured(&self.pem).map_err(|error| self::config(error.to_string()))?;
        Ok(config.with_timeouts(self.connect_timeout, response_timeout))
    }
}

const SCHEMES: &str = "use redis://host:port/, rediss://host:port/, \
    redis-sentinel://host:port,host:port/service, redis-cluster://host:port,host:port, \
    redlock://h1,h2,h3/ or memory:";
