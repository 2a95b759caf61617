//! A quorum of real servers, some of them refused, frozen, or restarted without data.
//!
//! What every store promises is tried on a quorum in memory by `on_every_store!`; late and lost requests
//! in every mixture, with the seed that made them, are tried beside the code.

use std::time::Duration;

use distlock::{LockClient, LockClientBuilder, LockErrorKind, MemoryStore};
use redis::AsyncCommands;
use tokio::time::Instant;

use crate::common::{Inside, LockText, SOON, ms};
use crate::support::{Data, RedisServer, eventually, unique_key};

/// One node's time for an answer, of the client's response time-out a quarter.
const NODE_TIMEOUT: Duration = ms(250);

struct Nodes(Vec<RedisServer>);

impl Nodes {
    fn start(count: usize) -> Self {
        Self((0..count).map(|_| RedisServer::start()).collect())
    }

    fn durable(count: usize) -> Self {
        Self((0..count).map(|_| RedisServer::durable()).collect())
    }

    fn url(&self) -> String {
        let hosts: Vec<_> = self.0.iter().map(|node| node.address().to_string()).collect();
        format!("redlock://{}/", hosts.join(","))
    }

    fn builder(&self) -> LockClientBuilder {
        LockClient::builder().url(self.url()).response_timeout(4 * NODE_TIMEOUT)
    }

    fn client(&self) -> LockClient {
        self.builder().build().unwrap()
    }

    /// Waits until nothing is left of any lock on any node.
    async fn are_empty(&self, within: Duration) {
        for node in &self.0 {
            let mut connection = node.connection().await;
            eventually("nothing is left on any node", within, async || {
                let keys: Vec<String> = connection.keys("*").await.unwrap();
                keys.iter().all(|key| key == "distlock:fence")
            })
            .await;
        }
    }

    /// Waits until `owner` has `key` on every node.
    async fn all_have(&self, key: &str, owner: &str, within: Duration) {
        for node in &self.0 {
            let mut connection = node.connection().await;
            eventually("every node has the owner", within, async || {
                let value: Option<String> = connection.get(key).await.unwrap();
                value.is_some_and(|value| value.starts_with(owner))
            })
            .await;
        }
    }
}

/// f90, j150: one node refused, later frozen: nothing waits for it, neither acquire nor release.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_that_is_refused_or_frozen_delays_nobody() {
    let nodes = Nodes::start(3);
    let client = nodes.client();
    client.on("warm").run(|_| async {}).await.unwrap();
    for fault in ["refused", "frozen"] {
        match fault {
            "refused" => nodes.0[1].kill(),
            _ => nodes.0[1].pause(),
        }
        let mut took = Vec::new();
        for round in 0..100 {
            let start = Instant::now();
            let guard = client.on(&format!("{fault} {round}")).acquire().await.unwrap();
            guard.release().await.unwrap();
            took.push(start.elapsed());
        }
        took.sort_unstable();
        assert!(took[98] < NODE_TIMEOUT, "{fault}: p99 {:?} of {took:?}", took[98]);
        match fault {
            "refused" => nodes.0[1].restart(Data::Lost),
            _ => nodes.0[1].resume(),
        }
    }
    nodes.are_empty(SOON).await;
}

/// a3: the owner is planted again on a node that lost it, and the hold outlasts one after the other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hold_outlasts_nodes_that_restart_without_data() {
    let nodes = Nodes::start(3);
    let client = nodes.client();
    let guard = client.on("restarts").lease(ms(1_500)).acquire().await.unwrap();
    for node in &nodes.0 {
        node.restart(Data::Lost);
        nodes.all_have("restarts", guard.owner(), SOON).await;
    }
    assert!(!guard.is_lost());
    let other = nodes.client();
    assert!(other.on("restarts").try_acquire().await.unwrap().is_none());
    guard.release().await.unwrap();
    nodes.are_empty(SOON).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn majority_that_is_down_is_an_error_within_the_wait() {
    let nodes = Nodes::start(3);
    let (client, inside) = (nodes.client(), Inside::default());
    let call = || client.on("majority").wait(ms(700)).run(|_| async { drop(inside.enter()) });
    call().await.unwrap();
    nodes.0[0].kill();
    nodes.0[1].pause();
    for _ in 0..2 {
        let start = Instant::now();
        let error = call().await.unwrap_err();
        assert_eq!(error.kind(), LockErrorKind::Backend, "{error}");
        assert!(start.elapsed() < ms(900), "{:?}", start.elapsed());
    }
    assert_eq!(inside.total(), 1);

    nodes.0[1].resume();
    eventually("the quorum works again", SOON, async || call().await.is_ok()).await;
    nodes.0[0].restart(Data::Lost);
    nodes.are_empty(ms(12_000)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hold_is_lost_in_time_when_a_majority_falls_silent() {
    let nodes = Nodes::start(3);
    let client = nodes.client();
    let lease = ms(1_000);
    let start = Instant::now();
    let call = client.on("silent").lease(lease).run(|_| tokio::time::sleep(ms(30_000)));
    let silence = async {
        tokio::time::sleep(ms(100)).await;
        nodes.0[..2].iter().for_each(RedisServer::pause);
    };
    let (outcome, ()) = tokio::join!(call, silence);
    assert!(matches!(outcome.unwrap_err().kind(), LockErrorKind::Lost { completed: false }));
    // A renewal may have come in just before.
    assert!(start.elapsed() < 3 * lease, "{:?}", start.elapsed());
    nodes.0[..2].iter().for_each(RedisServer::resume);
    nodes.are_empty(SOON).await;
}

/// The holder's lease is far from its end, and so is the next look at a timer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_of_other_clients_are_told_of_a_release() {
    let nodes = Nodes::start(3);
    let (holder, waiter) = (nodes.client(), nodes.client());
    // The one that tells is not the first, which is down.
    nodes.0[0].kill();
    let held = holder.on("told").lease(ms(60_000)).acquire().await.unwrap();
    let waiting = tokio::spawn(async move {
        let guard = waiter.on("told").wait(ms(30_000)).acquire().await.unwrap();
        (Instant::now(), guard)
    });
    let queue = "distlock:{told}:queue";
    for node in &nodes.0[1..] {
        let mut connection = node.connection().await;
        eventually("it waits on each node", SOON, async || {
            connection.zcard::<_, usize>(queue).await.unwrap() == 1
        })
        .await;
    }
    let start = Instant::now();
    held.release().await.unwrap();
    let (got_at, guard) = waiting.await.unwrap();
    assert!(got_at - start < ms(1_500), "{:?}", got_at - start);
    guard.release().await.unwrap();
    nodes.0[0].restart(Data::Lost);
    nodes.are_empty(SOON).await;
}

/// Tokens of a key grow, whichever nodes there are.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fencing_tokens_grow_from_majority_to_majority() {
    let nodes = Nodes::durable(3);
    let client = nodes.client();
    // One whose counter is far ahead of its clock, and so of all others.
    let ahead = 8_000_000_000_000_000_u64;
    let id = format!("{}-{}", ahead / 2048, ahead % 2048);
    redis::cmd("XADD")
        .arg(&["distlock:fence", "MAXLEN", "0", id.as_str(), "", ""])
        .exec_async(&mut nodes.0[0].connection().await)
        .await
        .unwrap();
    let mut last = ahead;
    for down in [2, 0, 1] {
        nodes.0[down].kill();
        let token = client
            .on("fenced")
            .fencing()
            .run(|held| async move { held.fencing_token().await })
            .await
            .unwrap()
            .unwrap();
        assert!(token.get() > last, "{token} after {last}");
        last = token.get();
        nodes.0[down].restart(Data::Kept);
        // Both sides are there again before the next one goes.
        eventually("all nodes are used", SOON, async || {
            let key = unique_key("probe");
            let _guard = client.on(&key).acquire().await.unwrap();
            nodes.0[down].connection().await.exists::<_, bool>(&key).await.unwrap()
        })
        .await;
    }
}

/// Nodes freeze and come back, one or two of five at a time, and bodies never meet.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bodies_never_meet_while_nodes_come_and_go() {
    let nodes = Nodes::durable(5);
    let inside = Inside::default();
    let until = Instant::now() + ms(8_000);
    let workers: Vec<_> = (0..3)
        .map(|_| {
            let (client, inside) = (nodes.client(), inside.clone());
            tokio::spawn(async move {
                while Instant::now() < until {
                    let call = client.on("nemesis").lease(ms(900)).wait(ms(3_000)).run(|_| async {
                        let _visit = inside.enter();
                        tokio::time::sleep(ms(5)).await;
                    });
                    // Trouble is no wonder here; only meeting is a fault.
                    drop(call.await);
                }
            })
        })
        .collect();
    let mut victim = 0;
    while Instant::now() < until {
        let [first, second] = [victim % 5, (victim + 2) % 5];
        nodes.0[first].pause();
        nodes.0[second].kill();
        tokio::time::sleep(ms(600)).await;
        nodes.0[second].restart(Data::Kept);
        nodes.0[first].resume();
        tokio::time::sleep(ms(200)).await;
        victim += 1;
    }
    for worker in workers {
        worker.await.unwrap();
    }
    assert_eq!(inside.most(), 1);
    assert!(inside.total() > 20, "{} bodies", inside.total());
    // A place that was asked for of a frozen node may come late, and lasts for 15 seconds.
    nodes.are_empty(ms(20_000)).await;
}

#[tokio::test]
async fn what_makes_no_quorum_is_refused_at_once() {
    let config = |builder: LockClientBuilder| {
        let error = builder.build().unwrap_err();
        assert_eq!(error.kind(), LockErrorKind::Config, "{error}");
        error.to_string()
    };
    let store = MemoryStore::new();
    let builder = LockClient::builder;
    assert!(config(builder().url("redlock://a,b/")).contains("3 to 15"));
    assert!(config(builder().url("redlock://")).contains("redlock://h1,h2,h3"));
    assert!(config(builder().url("redlock://a,b,a/")).contains("node 3"));
    assert!(config(builder().url("redlock://:secret@a,b,/x")).contains("redis://"));
    assert!(!config(builder().url("redlock://:secret@a,b,/x")).contains("secret"));
    let twice = [store.clone(), MemoryStore::new(), store];
    assert!(config(builder().quorum(twice)).contains("node 3"));
    assert!(
        config(builder().quorum(["redis://a", "redis://b", "redlock://c,d,e"])).contains("itself")
    );
}

/// N stores of any kind.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_may_be_of_several_kinds() {
    let servers = [RedisServer::start(), RedisServer::start()];
    let memory = MemoryStore::new();
    let client = redis::Client::open(servers[1].url()).unwrap();
    let builder = LockClient::builder().quorum([
        distlock::QuorumNode::from(servers[0].url()),
        distlock::QuorumNode::from(client),
        distlock::QuorumNode::from(memory.clone()),
    ]);
    let locks = builder.build().unwrap();
    let guard = locks.on("mixed").acquire().await.unwrap();
    assert!(memory.get("mixed").is_some_and(|value| value.starts_with(guard.owner())));
    servers[0].kill();
    guard.release().await.unwrap();
    eventually("it is gone", SOON, async || memory.get("mixed").is_none()).await;
}
