//! A real cluster of redis-servers: three primaries, each with a replica if so wanted, and each behind
//! a proxy if so wanted. Slots can be moved, primaries deposed, killed and frozen.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, Weak};
use std::thread;
use std::time::{Duration, Instant};

use redis::{FromRedisValue, RedisResult};

use super::proxy::Proxy;
use super::redis_server::{Data, RedisServer};

/// A cluster; its servers end with it. Its methods block for some milliseconds.
#[derive(Debug)]
pub(crate) struct Cluster {
    /// The primaries of the beginning, then a replica for each in the same order.
    servers: Vec<RedisServer>,
    ids: Vec<String>,
    /// In front of each server, by the addresses of which the nodes are known.
    proxies: Vec<Proxy>,
}

/// What a cluster is made of.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Plan {
    pub(crate) replicas: bool,
    pub(crate) proxies: bool,
}

/// A slot that is on its way to another primary.
#[derive(Debug)]
#[must_use]
pub(crate) struct Migration<'a> {
    cluster: &'a Cluster,
    slot: u16,
    from: usize,
    to: usize,
}

impl Cluster {
    /// Three primaries.
    pub(crate) fn start() -> Self {
        Self::planned(Plan::default())
    }

    /// The cluster that the tests of this process share: for tests that keep to keys of their own and
    /// neither disturb it nor count its commands. It ends with its last user.
    pub(crate) fn shared() -> Arc<Self> {
        static SHARED: Mutex<Weak<Cluster>> = Mutex::new(Weak::new());
        let mut shared = SHARED.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        shared.upgrade().unwrap_or_else(|| {
            let cluster = Arc::new(Self::start());
            *shared = Arc::downgrade(&cluster);
            cluster
        })
    }

    pub(crate) fn planned(plan: Plan) -> Self {
        let count = if plan.replicas { 2 * PRIMARIES } else { PRIMARIES };
        let servers: Vec<_> = (0..count)
            .map(|_| {
                RedisServer::with_arguments(&[
                    "--cluster-enabled",
                    "yes",
                    "--cluster-node-timeout",
                    "1000",
                    // A slot without a primary is nothing to the others.
                    "--cluster-require-full-coverage",
                    "no",
                    "--repl-diskless-sync-delay",
                    "0",
                ])
            })
            .collect();
        let proxies: Vec<_> = servers
            .iter()
            .filter(|_| plan.proxies)
            .map(|server| {
                let proxy = Proxy::start(server.address());
                let port = proxy.address().port().to_string();
                run_on::<()>(server, &["CONFIG", "SET", "cluster-announce-port", &port]);
                proxy
            })
            .collect();
        let ids = servers.iter().map(|server| run_on(server, &["CLUSTER", "MYID"])).collect();
        let cluster = Self { servers, ids, proxies };
        cluster.join();
        cluster
    }

    fn join(&self) {
        let first = &self.servers[0];
        for (index, server) in self.servers.iter().enumerate() {
            let epoch = (index + 1).to_string();
            run_on::<()>(server, &["CLUSTER", "SET-CONFIG-EPOCH", &epoch]);
            if let Some([first, last]) = share(index) {
                let (first, last) = (first.to_string(), last.to_string());
                run_on::<()>(server, &["CLUSTER", "ADDSLOTSRANGE", &first, &last]);
            }
            if index > 0 {
                let [port, bus] =
                    [first.port(), first.port() + 10_000].map(|port| port.to_string());
                run_on::<()>(server, &["CLUSTER", "MEET", "127.0.0.1", &port, &bus]);
            }
        }
        for (index, replica) in self.servers.iter().enumerate().skip(PRIMARIES) {
            // It may not have heard of its primary yet.
            let words = ["CLUSTER", "REPLICATE", &self.ids[index - PRIMARIES]];
            wait("the replica knows its primary", || try_on::<()>(replica, &words).is_ok());
        }
        let all = format!("cluster_known_nodes:{}\r", self.servers.len());
        wait("every node knows all of the cluster", || {
            self.servers.iter().all(|server| {
                let info: String = run_on(server, &["CLUSTER", "INFO"]);
                info.contains("cluster_state:ok") && info.contains(&all) && self.agrees(server)
            })
        });
        for replica in &self.servers[PRIMARIES..] {
            wait("the replica is in step", || {
                run_on::<String>(replica, &["INFO", "replication"])
                    .contains("master_link_status:up")
            });
        }
    }

    /// Whether the node tells the addresses that all are to know.
    fn agrees(&self, server: &RedisServer) -> bool {
        let nodes: String = run_on(server, &["CLUSTER", "NODES"]);
        (0..self.servers.len()).all(|index| nodes.contains(&format!("{}@", self.address(index))))
            && nodes.matches("slave").count() == self.servers.len() - PRIMARIES
    }

    /// The URL for a client, which names two of the nodes.
    pub(crate) fn url(&self) -> String {
        format!("redis-cluster://{},{}", self.address(0), self.address(1))
    }

    /// Where clients reach a node.
    pub(crate) fn address(&self, index: usize) -> SocketAddr {
        self.proxies.get(index).map_or_else(|| self.servers[index].address(), Proxy::address)
    }

    pub(crate) fn server(&self, index: usize) -> &RedisServer {
        &self.servers[index]
    }

    pub(crate) fn proxy(&self, index: usize) -> &Proxy {
        &self.proxies[index]
    }

    /// The primaries of the beginning.
    pub(crate) fn primaries(&self) -> &[RedisServer] {
        &self.servers[..PRIMARIES]
    }

    /// A key of the test's own that the primary at `index` serves at the beginning.
    pub(crate) fn key_at(&self, index: usize, prefix: &str) -> String {
        let [first, last] = share(index).expect("a primary");
        loop {
            let key = super::unique_key(prefix);
            if (first..=last).contains(&self.slot(&key)) {
                return key;
            }
        }
    }

    pub(crate) fn slot(&self, key: &str) -> u16 {
        let bytes = key.as_bytes();
        let tag = bytes.iter().position(|byte| *byte == b'{').and_then(|start| {
            let rest = &bytes[start + 1..];
            let length = rest.iter().position(|byte| *byte == b'}')?;
            (length > 0).then(|| &rest[..length])
        });
        let crc = tag.unwrap_or(bytes).iter().fold(0_u16, |crc, byte| {
            (0..8).fold(crc ^ u16::from(*byte) << 8, |crc, _| {
                if crc & 0x8000 == 0 { crc << 1 } else { crc << 1 ^ 0x1021 }
            })
        });
        crc % SLOTS
    }

    /// Runs a command about a key on the node that serves it.
    pub(crate) fn run<T: FromRedisValue>(&self, words: &[&str]) -> T {
        let mut last = None;
        for server in &self.servers {
            match try_on(server, words) {
                Ok(reply) => return reply,
                Err(error) => last = Some(error),
            }
        }
        panic!("no node runs {words:?}: {last:?}");
    }

    /// What stands under `key`.
    pub(crate) fn get(&self, key: &str) -> Option<String> {
        self.run(&["GET", key])
    }

    /// How often the servers ran a command, scripts included.
    pub(crate) fn calls_of(&self, command: &str) -> u64 {
        (0..self.servers.len()).map(|index| self.calls_at(index, command)).sum()
    }

    /// How often one server did.
    pub(crate) fn calls_at(&self, index: usize, command: &str) -> u64 {
        let stats: String = run_on(&self.servers[index], &["INFO", "commandstats"]);
        let line = format!("cmdstat_{command}:calls=");
        let count = stats.lines().find_map(|stat| stat.strip_prefix(&line)?.split(',').next());
        count.map_or(0, |count| count.parse().expect("a number"))
    }

    /// The slot of `key` is on its way from one primary to another, with nothing moved yet.
    pub(crate) fn begin_to_move(&self, key: &str, from: usize, to: usize) -> Migration<'_> {
        let migration = Migration { cluster: self, slot: self.slot(key), from, to };
        // A moment ago the slot may have come here, and not every node knows of it.
        wait("the slot can be taken in", || {
            migration.set(to, "IMPORTING", from).is_ok()
                && migration.set(from, "MIGRATING", to).is_ok()
        });
        migration
    }

    /// Makes the replica of the primary at `index` its successor, in agreement with it.
    pub(crate) fn depose(&self, index: usize) {
        let replica = peer(index);
        run_on::<()>(&self.servers[replica], &["CLUSTER", "FAILOVER"]);
        self.wait_for_primary(replica);
    }

    /// Ends the links of the primary at `index` to its replicas, which come back at once if they can.
    pub(crate) fn cut_off_replicas(&self, index: usize) {
        run_on::<()>(&self.servers[index], &["CLIENT", "KILL", "TYPE", "replica"]);
    }

    /// Kills the primary at `index`, and waits until its replica has taken over.
    pub(crate) fn kill_primary(&self, index: usize) {
        self.servers[index].kill();
        self.wait_for_primary(peer(index));
    }

    /// Brings a killed primary back, as the replica of its successor, in step with it.
    pub(crate) fn revive(&self, index: usize) {
        self.servers[index].restart(Data::Kept);
        wait("it is a replica in step", || {
            let info: String = run_on(&self.servers[index], &["INFO", "replication"]);
            info.contains("role:slave") && info.contains("master_link_status:up")
        });
        wait("no node takes it for dead", || {
            self.servers
                .iter()
                .all(|server| !run_on::<String>(server, &["CLUSTER", "NODES"]).contains("fail"))
        });
    }

    /// Of a primary of the beginning and its replica, the one that is the primary now.
    pub(crate) fn primary_of(&self, index: usize) -> usize {
        if self.is_primary(index) { index } else { peer(index) }
    }

    fn wait_for_primary(&self, index: usize) {
        wait("the replica has taken over", || self.is_primary(index));
    }

    pub(crate) fn is_primary(&self, index: usize) -> bool {
        run_on::<String>(&self.servers[index], &["INFO", "replication"]).contains("role:master")
    }
}

impl Migration<'_> {
    /// Moves the keys that stand in the slot by now.
    pub(crate) fn move_keys(&self) {
        let (from, to) = (&self.cluster.servers[self.from], &self.cluster.servers[self.to]);
        loop {
            let slot = self.slot.to_string();
            let keys: Vec<String> = run_on(from, &["CLUSTER", "GETKEYSINSLOT", &slot, "10"]);
            if keys.is_empty() {
                return;
            }
            let port = to.port().to_string();
            let mut words = vec!["MIGRATE", "127.0.0.1", &port, "", "0", "5000", "REPLACE", "KEYS"];
            words.extend(keys.iter().map(String::as_str));
            run_on::<()>(from, &words);
        }
    }

    /// Moves what is left, and the slot with it.
    pub(crate) fn finish(self) {
        loop {
            self.move_keys();
            // Refused as long as a key came in between.
            if self.set(self.to, "NODE", self.to).is_ok()
                && self.set(self.from, "NODE", self.to).is_ok()
            {
                break;
            }
        }
        for index in 0..PRIMARIES {
            if index != self.from && index != self.to {
                let _ = self.set(index, "NODE", self.to);
            }
        }
    }

    fn set(&self, at: usize, what: &str, node: usize) -> RedisResult<()> {
        let slot = self.slot.to_string();
        let words = ["CLUSTER", "SETSLOT", &slot, what, &self.cluster.ids[node]];
        try_on(&self.cluster.servers[at], &words)
    }
}

/// The other one that has the data of the server at `index`.
fn peer(index: usize) -> usize {
    (index + PRIMARIES) % (2 * PRIMARIES)
}

fn share(index: usize) -> Option<[u16; 2]> {
    let size = SLOTS / PRIMARIES as u16;
    let first = index as u16 * size;
    match index + 1 {
        PRIMARIES => Some([first, SLOTS - 1]),
        1..PRIMARIES => Some([first, first + size - 1]),
        _ => None,
    }
}

fn run_on<T: FromRedisValue>(server: &RedisServer, words: &[&str]) -> T {
    try_on(server, words).unwrap_or_else(|error| panic!("{words:?}: {error}"))
}

fn try_on<T: FromRedisValue>(server: &RedisServer, words: &[&str]) -> RedisResult<T> {
    let client = redis::Client::open(server.url())?;
    let mut connection = client.get_connection_with_timeout(Duration::from_secs(5))?;
    redis::cmd(words[0]).arg(&words[1..]).query(&mut connection)
}

fn wait(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < LIMIT, "not within {LIMIT:?}: {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

const PRIMARIES: usize = 3;
const SLOTS: u16 = 16_384;
const LIMIT: Duration = Duration::from_secs(30);
