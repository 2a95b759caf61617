//! A cluster of three redis-servers that the tests of this process share, one after the other.

use std::collections::HashSet;
use std::net::TcpListener;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use redis::{FromRedisValue, RedisResult};

use super::server::RedisServer;
use crate::backend::redis::{ClusterBackend, cluster_from_url};

/// Killed when dropped.
pub(crate) struct Cluster {
    nodes: Vec<RedisServer>,
}

/// A test's time with the shared cluster, which begins empty.
pub(crate) struct Visit {
    cluster: Arc<Cluster>,
    _turn: MutexGuard<'static, ()>,
}

impl Visit {
    pub(crate) fn begin() -> Self {
        static SHARED: Mutex<Weak<Cluster>> = Mutex::new(Weak::new());
        static TURN: Mutex<()> = Mutex::new(());
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        // Before the turn: so it lasts as long as anyone is about to use it.
        let cluster = shared.upgrade().unwrap_or_else(|| {
            let cluster = Arc::new(Cluster::start(&[]));
            *shared = Arc::downgrade(&cluster);
            cluster
        });
        drop(shared);
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        cluster.nodes.iter().for_each(|node| node.run(&["FLUSHALL"]));
        Self { cluster, _turn: turn }
    }
}

impl std::ops::Deref for Visit {
    type Target = Cluster;

    fn deref(&self) -> &Cluster {
        &self.cluster
    }
}

impl Cluster {
    pub(crate) fn start(settings: &[&str]) -> Self {
        let nodes: Vec<_> = (0..NODES).map(|_| node(settings)).collect();
        let share = SLOTS / NODES;
        for (index, node) in nodes.iter().enumerate() {
            let first = index * share;
            let last = if index + 1 == NODES { SLOTS - 1 } else { first + share - 1 };
            let range = [first, last].map(|slot| slot.to_string());
            node.run::<()>(&["CLUSTER", "ADDSLOTSRANGE", &range[0], &range[1]]);
            node.run::<()>(&["CLUSTER", "SET-CONFIG-EPOCH", &(index + 1).to_string()]);
            node.run::<()>(&["CLUSTER", "MEET", "127.0.0.1", &nodes[0].port().to_string()]);
        }
        let deadline = Instant::now() + Duration::from_secs(20);
        let is_ready = |node: &RedisServer| {
            let info: String = node.run(&["CLUSTER", "INFO"]);
            info.contains("cluster_state:ok") && info.contains("cluster_known_nodes:3")
        };
        while !nodes.iter().all(is_ready) {
            assert!(Instant::now() < deadline, "the cluster does not get ready");
            thread::sleep(Duration::from_millis(20));
        }
        Self { nodes }
    }

    pub(crate) fn nodes(&self) -> &[RedisServer] {
        &self.nodes
    }

    pub(crate) fn url(&self) -> String {
        format!("redis-cluster://{},{}", self.nodes[0].address(), self.nodes[1].address())
    }

    pub(crate) fn backend(&self) -> ClusterBackend {
        ClusterBackend::new(cluster_from_url(&self.url()).unwrap())
    }

    /// Runs a command on the node that serves its key.
    pub(crate) fn run<T: FromRedisValue>(&self, words: &[&str]) -> T {
        let replies = self.nodes.iter().map(|node| node.try_run(words));
        let is_ours = |reply: &RedisResult<T>| {
            !reply.as_ref().is_err_and(|error| error.redirect_node().is_some())
        };
        replies.into_iter().find(is_ours).unwrap().unwrap()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.nodes.iter().all(|node| node.run::<u64>(&["DBSIZE"]) == 0)
    }

    /// How many clients hear of grants.
    pub(super) fn listeners(&self) -> usize {
        let mut names = HashSet::new();
        for node in &self.nodes {
            for kind in ["CHANNELS", "SHARDCHANNELS"] {
                let channels: Vec<String> = node.run(&["PUBSUB", kind]);
                names.extend(
                    channels.iter().map(|name| name[name.rfind(':').unwrap()..].to_owned()),
                );
            }
        }
        names.len()
    }
}

/// The bus between nodes has the port above by 10 000.
fn node(settings: &[&str]) -> RedisServer {
    let settings =
        [&["--cluster-enabled", "yes", "--cluster-node-timeout", "2000"], settings].concat();
    for _ in 0..100 {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = socket.local_addr().unwrap().port() / 3;
        drop(socket);
        if let Some(server) = RedisServer::try_start_on(port, &settings) {
            return server;
        }
    }
    panic!("redis-server did not start on any of a hundred ports");
}

const NODES: usize = 3;
const SLOTS: usize = 16_384;
