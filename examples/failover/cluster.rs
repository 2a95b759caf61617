//! One shard of a cluster, which fails over while the others go on.

use std::sync::Mutex;

use distlock::{LockClient, LockClientBuilder};

use crate::support::{Cluster, Plan};
use crate::topology::Topology;

/// Three primaries with a replica each, that take a silent node for dead after one second
/// (`cluster-node-timeout`). All keys are in the slots of one primary, which is the one that fails over.
pub(crate) struct ClusterShard {
    cluster: Cluster,
    /// The primary whose replica is frozen, which cannot be asked which of them it is.
    cut_off: Mutex<Option<usize>>,
}

impl ClusterShard {
    pub(crate) fn start() -> Self {
        let cluster = Cluster::planned(Plan { replicas: true, ..Plan::default() });
        Self { cluster, cut_off: Mutex::default() }
    }
}

impl Topology for ClusterShard {
    fn builder(&self) -> LockClientBuilder {
        LockClient::builder().url(self.cluster.url())
    }

    fn keys(&self) -> Vec<String> {
        (0..3).map(|_| self.cluster.key_at(0, "failover")).collect()
    }

    fn ways(&self) -> &'static [&'static str] {
        &["kill", "lag", "order"]
    }

    fn replicas(&self) -> u32 {
        1
    }

    fn cut_off(&self) {
        let primary = self.cluster.primary_of(0);
        self.cluster.server(3 - primary).pause();
        self.cluster.cut_off_replicas(primary);
        *self.cut_off.lock().expect("nothing panics under it") = Some(primary);
    }

    fn fail_over(&self, way: &str) {
        let cut_off = self.cut_off.lock().expect("nothing panics under it").take();
        let primary = cut_off.unwrap_or_else(|| self.cluster.primary_of(0));
        if way == "order" {
            return self.cluster.depose(primary);
        }
        self.cluster.server(primary).kill();
        if cut_off.is_some() {
            self.cluster.server(3 - primary).resume();
        }
        self.cluster.kill_primary(primary);
    }

    fn heal(&self) {
        for index in [0, 3] {
            if !self.cluster.server(index).runs() {
                self.cluster.revive(index);
            }
        }
    }
}
