//! Locks in Redis.
//!
//! Decides how a request becomes a command or a script, when a connection is of no more use, and
//! what an answer means. When to ask, and when to connect again, is up to the levels above.
//!
//! A client has one connection for each runtime that calls it (`runtimes`) and one that listens,
//! for the driver. Each is a `line`, on which a `request` is exchanged for a `reply`; what comes
//! unasked is `news`. Where the server is (`place`) is found out anew for each connection.

use std::sync::{Arc, OnceLock, Weak};

use tokio::runtime::Handle;
use uuid::Uuid;

use self::connect::connect;
use self::line::Duty;
use self::runtimes::{Runtimes, no_runtime};
use self::server::Server;
use super::{Backend, BoxFuture, Channel, DriverHome, Events, StoreResult};
use crate::clock::Clock;

mod acknowledging;
mod acquires;
mod batch;
mod channel;
#[cfg(feature = "cluster")]
mod cluster;
mod config;
mod connect;
mod dial;
mod error;
mod fence;
mod gather;
mod greeting;
mod line;
mod news;
mod place;
mod pulse;
#[cfg(feature = "sentinel")]
mod recall;
mod releases;
mod replicas;
mod reply;
mod request;
mod runtimes;
mod script;
#[cfg(feature = "sentinel")]
mod sentinel;
mod server;
mod slot;
#[cfg(test)]
mod tests;
#[cfg(feature = "tls")]
mod tls;

#[cfg(feature = "cluster")]
pub(crate) use self::cluster::{ClusterBackend, ClusterConfig, cluster_from_url};
pub(crate) use self::config::{RedisConfig, config_from_url};
pub(crate) use self::replicas::ReplicatedBackend;
#[cfg(feature = "tls")]
pub(crate) use self::tls::{ClientPem, Pem};

/// One client's way to a server.
#[derive(Debug)]
pub(crate) struct RedisBackend {
    server: Arc<Server>,
    runtimes: Arc<Runtimes>,
    /// Where this client hears of grants.
    name: Arc<str>,
}

impl RedisBackend {
    /// Connects to nothing yet.
    pub(crate) fn new(config: RedisConfig) -> Self {
        Self {
            server: Arc::new(Server::new(config)),
            runtimes: Arc::default(),
            name: format!("distlock:{}", Uuid::new_v4()).into(),
        }
    }
}

impl Backend for RedisBackend {
    fn clock(&self) -> Clock {
        Clock::Boot
    }

    fn driver_home(&self) -> DriverHome {
        DriverHome::OwnThread
    }

    fn channel(&self) -> Option<Arc<dyn Channel>> {
        self.runtimes.current().map(|channel| channel as Arc<dyn Channel>)
    }

    fn open(&self) -> BoxFuture<StoreResult<Arc<dyn Channel>>> {
        let opening = Arc::clone(&self.runtimes).open(Arc::clone(&self.server));
        Box::pin(async move { opening.await.map(|channel| channel as Arc<dyn Channel>) })
    }

    fn open_listening(&self, events: Weak<dyn Events>) -> BoxFuture<StoreResult<Arc<dyn Channel>>> {
        let (server, name) = (Arc::clone(&self.server), Arc::clone(&self.name));
        Box::pin(async move {
            Handle::try_current().map_err(|_| no_runtime())?;
            let duty = Duty::Listening { events, subscribed: OnceLock::new() };
            let channel = connect(&server, duty, Some(&name)).await?;
            Ok(Arc::new(channel) as Arc<dyn Channel>)
        })
    }
}
