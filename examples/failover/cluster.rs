//! One shard of a cluster, which fails over while the others go on.

use distlock::{LockClient, LockClientBuilder};

use crate::support::{Cluster, Plan};
use crate::topology::Topology;

/// Three primaries with a replica each, that take a silent node for dead after one second
/// (`cluster-node-timeout`). All keys are in the slots of one primary, which is the one that fails over.
pub(crate) struct ClusterShard(Cluster);

impl ClusterShard {
    pub(crate) fn start() -> Self {
        Self(Cluster::planned(Plan { replicas: true, ..Plan::default() }))
    }
}

impl Topology for ClusterShard {
    fn builder(&self) -> LockClientBuilder {
        LockClient::builder().url(self.0.url())
    }

    fn keys(&self) -> Vec<String> {
        (0..3).map(|_| self.0.key_at(0, "failover")).collect()
    }

    fn ways(&self) -> &'static [&'static str] {
        &["kill", "order"]
    }

    fn fail_over(&self, way: &str) {
        let primary = self.0.primary_of(0);
        if way == "kill" { self.0.kill_primary(primary) } else { self.0.depose(primary) }
    }

    fn heal(&self) {
        for index in [0, 3] {
            if !self.0.server(index).runs() {
                self.0.revive(index);
            }
        }
    }
}
