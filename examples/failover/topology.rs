//! What fails over, and how. A further topology is a further implementation, named in `main`.

use std::thread;
use std::time::Duration;

use distlock::{LockClient, LockClientBuilder};

use crate::support::{Data, RedisServer, SentinelSetup};

/// Servers that the locks are on. All methods but `builder` may block for seconds.
pub(crate) trait Topology: Send + Sync {
    /// A client's settings, with the store set.
    fn builder(&self) -> LockClientBuilder;

    /// The keys of the locks: where a failover concerns only some keys, those.
    fn keys(&self) -> Vec<String> {
        (0..3).map(|number| format!("failover:{number}")).collect()
    }

    /// The ways in which it can fail over, by the names that the table shows.
    fn ways(&self) -> &'static [&'static str];

    /// Begins a failover; whether it returns before or after its end does not matter.
    fn fail_over(&self, way: &str);

    /// Brings back what was killed, and returns when the next failover can begin.
    fn heal(&self);
}

/// One server, which writes all to disk and is gone for a second: what others are compared with.
pub(crate) struct Single(RedisServer);

/// A master with two replicas, and three sentinels that take it for dead after 500 ms of silence.
pub(crate) struct Sentinel(SentinelSetup);

impl Single {
    pub(crate) fn start() -> Self {
        Self(RedisServer::durable())
    }
}

impl Topology for Single {
    fn builder(&self) -> LockClientBuilder {
        LockClient::builder().url(self.0.url())
    }

    fn ways(&self) -> &'static [&'static str] {
        &["kill"]
    }

    fn fail_over(&self, _way: &str) {
        self.0.kill();
        thread::sleep(Duration::from_secs(1));
        self.0.restart(Data::Kept);
    }

    fn heal(&self) {}
}

impl Sentinel {
    pub(crate) fn start() -> Self {
        Self(SentinelSetup::start())
    }
}

impl Topology for Sentinel {
    fn builder(&self) -> LockClientBuilder {
        LockClient::builder().url(self.0.url())
    }

    fn ways(&self) -> &'static [&'static str] {
        &["kill", "order"]
    }

    fn fail_over(&self, way: &str) {
        let former = if way == "kill" { self.0.kill_master() } else { self.0.order_failover() };
        self.0.wait_for_master(Some(former));
    }

    fn heal(&self) {
        self.0.heal();
    }
}
