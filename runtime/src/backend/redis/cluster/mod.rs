//! Locks in a Redis Cluster.
//!
//! Decides which node a request goes to, and what to do when that node does not serve the slot any
//! more. The client crate's own cluster connection is not used: it repeats what was already sent,
//! and keeps no order.
//!
//! A client knows one map of the slots (`atlas`, `topology`), which a `survey` of the nodes renews.
//! Each runtime has its own `nodes`, the lines to those that it needs. A channel is one `generation`:
//! one map, and one line to each node; with a newer map, or when a line is lost, the next channel
//! begins, on the lines that are left. So a node that is down fails its own requests only.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::runtime::Handle;
use uuid::Uuid;

use self::atlas::Atlas;
use self::nodes::{Home, Nodes, Pools};
use super::runtimes::no_runtime;
use crate::backend::{
    Backend, BoxFuture, Channel, DriverHome, Events, StoreError, StoreErrorKind, StoreResult,
};
use crate::clock::Clock;

mod atlas;
mod channel;
mod config;
mod ears;
mod endings;
mod generation;
mod nodes;
mod renew;
mod replicas;
mod survey;
#[cfg(test)]
mod tests;
mod topology;
mod way;

pub(crate) use self::config::{ClusterConfig, cluster_from_url};
pub(in crate::backend::redis) use self::nodes::{Member, Nodes as ClusterNodes};

/// One client's way to a cluster.
#[derive(Debug)]
pub(crate) struct ClusterBackend {
    atlas: Arc<Atlas>,
    pools: Arc<Pools>,
    /// The driver's, as long as a channel of its is alive.
    driver: Mutex<Weak<Nodes>>,
}

impl ClusterBackend {
    /// Connects to nothing yet.
    pub(crate) fn new(config: ClusterConfig) -> Self {
        let name = format!("distlock:{}", Uuid::new_v4()).into();
        Self {
            atlas: Arc::new(Atlas::new(config, name)),
            pools: Arc::default(),
            driver: Mutex::default(),
        }
    }

    /// The driver's lines outlast its channels, each of which holds the next one's.
    fn driver(&self, events: Weak<dyn Events>) -> StoreResult<Arc<Nodes>> {
        let runtime = Handle::try_current().map_err(|_| no_runtime())?.id();
        // One assignment.
        let mut driver = self.driver.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(nodes) = driver.upgrade().filter(|nodes| nodes.belong_to(&events, runtime)) {
            return Ok(nodes);
        }
        let nodes = Nodes::new(&self.atlas, Home::Driver { events, runtime });
        *driver = Arc::downgrade(&nodes);
        Ok(nodes)
    }
}

impl Backend for ClusterBackend {
    fn clock(&self) -> Clock {
        Clock::Boot
    }

    fn driver_home(&self) -> DriverHome {
        DriverHome::OwnThread
    }

    fn channel(&self) -> Option<Arc<dyn Channel>> {
        Some(Arc::new(self.pools.current()?.channel()?))
    }

    fn open(&self) -> BoxFuture<StoreResult<Arc<dyn Channel>>> {
        let (pools, atlas) = (Arc::clone(&self.pools), Arc::clone(&self.atlas));
        Box::pin(async move {
            let nodes = pools.join(&atlas)?;
            nodes.ready().await?;
            channel_of(&nodes)
        })
    }

    fn open_listening(&self, events: Weak<dyn Events>) -> BoxFuture<StoreResult<Arc<dyn Channel>>> {
        let nodes = self.driver(events);
        let atlas = Arc::clone(&self.atlas);
        Box::pin(async move {
            let nodes = nodes?;
            nodes.ready().await?;
            // Once, so that later no node that is down is in the way.
            if !atlas.voice_is_tried() {
                nodes.try_to_hear().await;
            }
            channel_of(&nodes)
        })
    }
}

fn channel_of(nodes: &Arc<Nodes>) -> StoreResult<Arc<dyn Channel>> {
    let channel = nodes.channel().ok_or_else(|| {
        let text = "nobody told yet where the slots of the cluster are";
        StoreError::new(StoreErrorKind::Unavailable, text)
    })?;
    Ok(Arc::new(channel))
}
