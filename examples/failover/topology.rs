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

    /// How many replicas of a master or primary may be promoted.
    fn replicas(&self) -> u32;

    /// The settings of a client that stays at the master of this moment, as one does that is cut off from
    /// its successor. For the way `lag`.
    fn stranded(&self) -> Option<LockClientBuilder> {
        None
    }

    /// From now on no replica gets what is written, until the failover that comes at once. For the way
    /// `lag`.
    fn cut_off(&self) {}

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

    fn replicas(&self) -> u32 {
        0
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
        &["kill", "lag", "order"]
    }

    fn replicas(&self) -> u32 {
        2
    }

    fn stranded(&self) -> Option<LockClientBuilder> {
        Some(LockClient::builder().url(self.0.wait_for_master(None).url()))
    }

    fn cut_off(&self) {
        let master = self.0.wait_for_master(None);
        let replicas = self.0.servers().iter().filter(|server| server.port() != master.port());
        replicas.for_each(RedisServer::pause);
        // What is on its way to a frozen replica would be there when it goes on.
        self.0.run_at::<()>(master, &["CLIENT", "KILL", "TYPE", "replica"]);
    }

    fn fail_over(&self, way: &str) {
        let former = if way == "order" { self.0.order_failover() } else { self.0.kill_master() };
        if way == "lag" {
            self.0.servers().iter().filter(|server| server.runs()).for_each(RedisServer::resume);
        }
        self.0.wait_for_master(Some(former));
    }

    fn heal(&self) {
        self.0.heal();
    }
}
