//! What only a cluster can do to a lock, and what only a look inside can tell.

use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};

use super::*;
use crate::backend::contract::cluster::{Cluster, Visit};
use crate::backend::contract::server::RedisServer;
use crate::backend::contract::{
    CLAIM, Contender, Heard, LEASE, eventually, granted_to, hold, kind_of, lock,
};
use crate::backend::redis::slot::{SideKey, shard_channel, slot};
use crate::backend::redis::{RedisBackend, config_from_url};
use crate::backend::{Contended, Released, Renewal, Renewed};

/// A lock in the share of the node at `index`, for `owner`.
fn lock_at(index: usize, owner: &str) -> crate::backend::Lock {
    let share = 16_384 / 3;
    let keys = (0..).map(|number| format!("{index}:{number}"));
    let is_there = |key: &String| usize::from(slot(key.as_bytes())) / share == index;
    lock(&{ keys }.find(is_there).unwrap(), owner)
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// How often a node ran a command that a client sent.
fn calls_of(node: &RedisServer, command: &str) -> u64 {
    let stats: String = node.run(&["INFO", "commandstats"]);
    let line = format!("cmdstat_{command}:calls=");
    let calls = stats.lines().find_map(|stat| stat.strip_prefix(&line)?.split(',').next());
    calls.map_or(0, |calls| calls.parse().unwrap())
}

#[test]
fn slots_and_side_keys_are_those_of_the_server() {
    let cluster = Visit::begin();
    let node = &cluster.nodes()[0];
    for key in [
        "{",
        "}",
        "{}",
        "{}x",
        "{}{x}",
        "{{}}",
        "{{x}}",
        "x{y}z",
        "x}y",
        "x{y",
        "}{",
        "}{x}",
        "é\n🔒",
        "\0",
        "a b",
        "stock:lock:<7>",
        "{a}{b}",
        "a{}{b}c",
    ] {
        let keyslot = |key: &str| node.run::<u16>(&["CLUSTER", "KEYSLOT", key]);
        let ours = slot(key.as_bytes());
        assert_eq!(keyslot(key), ours, "{key:?}");
        for side in [SideKey::queue(key), SideKey::waiters(key)] {
            assert_eq!(keyslot(&side.text()), ours, "{side:?}");
        }
        assert_eq!(keyslot(&shard_channel(ours, "distlock:x")), ours, "{key:?}");
    }
}

#[tokio::test]
async fn a_batch_of_renewals_costs_one_script_for_each_node() {
    let cluster = Visit::begin();
    let backend = cluster.backend();
    let channel = backend.open().await.unwrap();
    let locks: Vec<_> = (0..99).map(|number| lock(&format!("k{number}"), "ours")).collect();
    for lock in locks.iter().step_by(2) {
        hold(&*channel, lock).await;
    }
    let batch: Vec<_> = locks.into_iter().map(|lock| Renewal { lock, lease: 2 * LEASE }).collect();
    let expected: Vec<_> = [Renewed::Renewed, Renewed::Gone].into_iter().cycle().take(99).collect();
    // The first time it is not known there.
    channel.renew(&batch).await.unwrap();
    let scripts = || cluster.nodes().iter().map(|node| calls_of(node, "evalsha")).sum::<u64>();
    let before = scripts();
    assert_eq!(channel.renew(&batch).await.unwrap(), expected);
    assert_eq!(scripts() - before, 3);
    let ttl_ms: u64 = cluster.run(&["PTTL", "k98"]);
    assert!(Duration::from_millis(ttl_ms) > LEASE);
}

#[tokio::test]
async fn a_silent_node_spoils_no_renewal_of_the_others() {
    let cluster = Cluster::start(&["--cluster-require-full-coverage", "no"]);
    let mut config = cluster_from_url(&cluster.url()).unwrap();
    config.node.response_timeout = Duration::from_millis(300);
    config.node.connect_timeout = Duration::from_millis(300);
    let backend = ClusterBackend::new(config);
    let channel = backend.open().await.unwrap();
    let locks = [0, 1, 2].map(|index| lock_at(index, "ours"));
    for lock in &locks {
        hold(&*channel, lock).await;
    }
    assert_ne!(channel.shard(&locks[0].key), channel.shard(&locks[1].key));
    let batch = locks.each_ref().map(|lock| Renewal { lock: lock.clone(), lease: LEASE });
    cluster.nodes()[0].freeze();
    let renewed = channel.renew(&batch).await.unwrap();
    assert_eq!(renewed, [Renewed::Unanswered, Renewed::Renewed, Renewed::Renewed]);
    let connections = || calls_of(&cluster.nodes()[1], "hello");
    let before = connections();
    // Silent for long enough, it is given up. The lines to the others serve the next channel.
    for _ in 0..3 {
        let outcome = channel.renew(&batch[..1]).await;
        assert_eq!(kind_of(outcome), StoreErrorKind::Unavailable);
    }
    assert!(!channel.is_open());
    let next = backend.open().await.unwrap();
    assert_eq!(next.release(&locks[1], CLAIM).await.unwrap(), Released::Freed);
    assert_eq!(connections(), before);
    cluster.nodes()[0].thaw();
}

#[tokio::test]
async fn a_lost_line_ends_the_channel_but_not_the_other_lines() {
    let cluster = Visit::begin();
    let backend = cluster.backend();
    let channel = backend.open().await.unwrap();
    let locks = [0, 1, 2].map(|index| lock_at(index, "ours"));
    for lock in &locks {
        hold(&*channel, lock).await;
    }
    cluster.nodes()[0].run::<u64>(&["CLIENT", "KILL", "TYPE", "normal"]);
    eventually("it is noticed", || !channel.is_open()).await;
    let lost = channel.release(&locks[0], CLAIM).await;
    assert_eq!(kind_of(lost), StoreErrorKind::Unavailable, "its order is lost with the line");
    // Behind what was sent there before.
    assert_eq!(channel.release(&locks[1], CLAIM).await.unwrap(), Released::Freed);
    let next = backend.channel().unwrap();
    assert!(next.is_open());
    assert_eq!(next.release(&locks[0], CLAIM).await.unwrap(), Released::Freed);
    assert_eq!(next.release(&locks[2], CLAIM).await.unwrap(), Released::Freed);
}

#[tokio::test]
async fn an_acquire_that_waits_for_its_node_is_not_sent_behind_its_release() {
    let cluster = Visit::begin();
    let backend = cluster.backend();
    let channel = backend.open().await.unwrap();
    // Only the first node was asked for the map.
    let lock = lock_at(2, "ours");
    let mut acquire = channel.acquire(&lock, LEASE);
    let once = std::future::poll_fn(|cx| Poll::Ready(acquire.as_mut().poll(cx).is_ready()));
    assert!(!once.await);
    assert_eq!(channel.release(&lock, CLAIM).await.unwrap(), Released::Gone);
    assert_eq!(kind_of(acquire.await), StoreErrorKind::Unavailable);
    assert_eq!(cluster.run::<Option<String>>(&["GET", &lock.key]), None);
}

#[tokio::test]
async fn a_subscription_whose_slot_moves_away_is_told_as_an_interruption() {
    let cluster = Cluster::start(&[]);
    let contender = Contender::on(Arc::new(cluster.backend())).await;
    let [first, second] = ["first", "second"].map(|owner| lock_at(0, owner));
    hold(contender.channel(), &first).await;
    assert!(matches!(contender.contend(&second).await, Contended::Queued { .. }));
    let slot = slot(first.key.as_bytes()).to_string();
    let ids = cluster.nodes().iter().map(|node| node.run::<String>(&["CLUSTER", "MYID"]));
    let ids: Vec<_> = ids.collect();
    let set = |node: usize, what: &str, id: &str| {
        cluster.nodes()[node].run::<()>(&["CLUSTER", "SETSLOT", &slot, what, id]);
    };
    set(1, "IMPORTING", &ids[0]);
    set(0, "MIGRATING", &ids[1]);
    let keys: Vec<String> = cluster.nodes()[0].run(&["KEYS", "*"]);
    let port = cluster.nodes()[1].port().to_string();
    let mut words = vec!["MIGRATE", "127.0.0.1", &port, "", "0", "5000", "KEYS"];
    words.extend(keys.iter().map(String::as_str));
    cluster.nodes()[0].run::<()>(&words);
    set(1, "NODE", &ids[1]);
    set(0, "NODE", &ids[1]);
    contender.hears(Heard::Interrupted).await;
    // It keeps its place, and hears where the slot is now.
    assert!(matches!(contender.contend(&second).await, Contended::Queued { ahead: 0, .. }));
    let released = contender.channel().release(&first, CLAIM).await.unwrap();
    assert_eq!(released, granted_to(&second));
    contender.hears(Heard::granted(&second)).await;
}

#[tokio::test]
async fn the_documented_rights_are_enough() {
    let cluster = Visit::begin();
    for node in cluster.nodes() {
        let words = ["ACL", "SETUSER", "app", "reset", "on", ">secret"];
        node.run::<()>(&[&words[..], &documented_rights()].concat());
        node.run::<()>(&["ACL", "LOG", "RESET"]);
    }
    let url = cluster.url().replace("://", "://app:secret@");
    let backend = Arc::new(ClusterBackend::new(cluster_from_url(&url).unwrap()));
    let contender = Contender::on(Arc::clone(&backend) as Arc<dyn Backend>).await;
    assert!(contender.channel().delivers_events());
    for index in 0..3 {
        let [first, second] =
            ["first", "second"].map(|owner| lock(&format!("stock:{}", 7 * index), owner));
        hold(contender.channel(), &first).await;
        assert!(matches!(contender.contend(&second).await, Contended::Queued { .. }));
        let released = contender.channel().release(&first, CLAIM).await.unwrap();
        assert_eq!(released, granted_to(&second));
        contender.hears(Heard::granted(&second)).await;
        let batch = [Renewal { lock: second.clone(), lease: LEASE }];
        assert_eq!(contender.channel().renew(&batch).await.unwrap(), [Renewed::Renewed]);
        contender.channel().release(&second, CLAIM).await.unwrap();
    }
    for node in cluster.nodes() {
        assert_eq!(node.run::<Vec<redis::Value>>(&["ACL", "LOG"]), []);
    }
}

/// What the docs say that a user needs.
fn documented_rights() -> Vec<&'static str> {
    let docs = include_str!("../../../../docs/cluster.md");
    let line = docs.lines().find_map(|line| line.strip_prefix("ACL SETUSER app on >password "));
    line.expect("a line to copy").split(' ').collect()
}

#[tokio::test]
async fn a_single_server_is_told_from_a_cluster_both_ways() {
    let server = RedisServer::start();
    let config = cluster_from_url(&format!("redis-cluster://{}", server.address())).unwrap();
    let error = ClusterBackend::new(config).open().await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Refused);
    assert!(error.message.contains("redis://"), "{error}");
    let cluster = Visit::begin();
    let url = cluster.nodes()[0].url();
    let single = RedisBackend::new(config_from_url(&url).unwrap());
    let error = single.open().await.unwrap().acquire(&lock_at(1, "ours"), LEASE).await;
    let error = error.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Refused);
    assert!(error.message.contains("redis-cluster://"), "{error}");
}

#[tokio::test]
async fn a_wrong_password_is_refused_at_once() {
    let cluster = Visit::begin();
    let url = cluster.url().replace("://", "://nobody:secret@");
    let backend = ClusterBackend::new(cluster_from_url(&url).unwrap());
    let error = backend.open().await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Refused);
    assert!(!error.message.contains("secret"), "{error}");
}

#[tokio::test]
async fn any_one_of_the_named_nodes_is_enough() {
    let cluster = Visit::begin();
    let url = format!("redis-cluster://127.0.0.1:1,{}", cluster.nodes()[2].address());
    let backend = ClusterBackend::new(cluster_from_url(&url).unwrap());
    let channel = backend.open().await.unwrap();
    hold(&*channel, &lock_at(0, "ours")).await;
}

#[test]
fn each_runtime_has_lines_of_its_own_until_it_ends() {
    let cluster = Visit::begin();
    let backend = cluster.backend();
    let (first, second) = (runtime(), runtime());
    let open = || async {
        let channel = backend.open().await.unwrap();
        let lock = lock(&Uuid::new_v4().to_string(), "ours");
        hold(&*channel, &lock).await;
        channel
    };
    let channels = [first.block_on(open()), second.block_on(open())];
    assert_eq!(backend.pools.len(), 2);
    drop(first);
    assert_eq!(channels.each_ref().map(|channel| channel.is_open()), [false, true]);
    assert_eq!(backend.pools.len(), 1);
    drop(second);
    assert_eq!(backend.pools.len(), 0);
}

#[test]
fn outside_a_runtime_there_is_an_error_and_no_panic() {
    let cluster = Visit::begin();
    let backend = cluster.backend();
    assert!(backend.channel().is_none());
    let ears = Arc::downgrade(&Contender::ears()) as Weak<dyn Events>;
    for mut opening in [backend.open(), backend.open_listening(ears)] {
        let outcome = match opening.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(outcome) => outcome,
            Poll::Pending => panic!("it waits for a runtime that is not there"),
        };
        assert_eq!(kind_of(outcome), StoreErrorKind::Refused);
    }
}
