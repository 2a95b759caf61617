//! A node of a cluster: it refuses every command and script whose keys lie in several slots.

use super::releases::held;
use super::*;
use crate::join::all;

/// A cluster of one node, so that nothing is elsewhere.
async fn cluster() -> RedisServer {
    let server = RedisServer::start_with(&["--cluster-enabled", "yes"]);
    let slots: Vec<String> = (0..16_384).map(|slot: u16| slot.to_string()).collect();
    let words = ["CLUSTER", "ADDSLOTS"].into_iter().chain(slots.iter().map(String::as_str));
    server.run::<()>(&words.collect::<Vec<_>>());
    let state = || server.run::<String>(&["CLUSTER", "INFO"]);
    eventually("the cluster is ready", || state().contains("cluster_state:ok")).await;
    server
}

#[tokio::test]
async fn the_keys_of_a_lock_share_a_slot_whatever_its_key_is() {
    let server = cluster().await;
    let contender = Contender::on(Arc::new(server.backend())).await;
    let channel = contender.channel();
    for key in ["{a}b", "a}b", "a{b", "}{", "{}x", "{}{x}", "a", "stock:<7>", "é\n🔒", "\0", "}"]
    {
        let [first, second] = ["first", "second"].map(|owner| lock(key, owner));
        hold(channel, &first).await;
        assert!(matches!(contender.contend(&second).await, Contended::Queued { .. }), "{key:?}");
        assert_eq!(channel.release(&first, CLAIM).await.unwrap(), granted_to(&second), "{key:?}");
        assert_eq!(channel.release(&second, CLAIM).await.unwrap(), Released::Freed, "{key:?}");
    }
}

#[tokio::test]
async fn a_batch_of_renewals_may_span_slots() {
    let server = cluster().await;
    let backend = server.backend();
    let channel = backend.open().await.unwrap();
    let locks: Vec<_> = (0..100).map(|index| lock(&format!("k{index}"), "ours")).collect();
    for lock in locks.iter().step_by(2) {
        hold(&*channel, lock).await;
    }
    let batch: Vec<_> = locks.into_iter().map(|lock| Renewal { lock, lease: 2 * LEASE }).collect();
    let expected: Vec<_> =
        [Renewed::Renewed, Renewed::Gone].into_iter().cycle().take(100).collect();
    for clustered in [false, true] {
        assert_eq!(backend.server.is_clustered(), clustered);
        assert_eq!(channel.renew(&batch).await.unwrap(), expected);
    }
    let ttl_ms: u64 = server.run(&["PTTL", "k98"]);
    assert!(Duration::from_millis(ttl_ms) > LEASE);
}

#[tokio::test]
async fn releases_of_one_moment_may_span_slots() {
    let server = cluster().await;
    let channel = server.backend().open().await.unwrap();
    for _ in 0..2 {
        let locks = held(&*channel, "stock", 5).await;
        let answers = all(locks.iter().map(|lock| channel.release(lock, CLAIM)).collect()).await;
        assert!(answers.iter().all(|answer| matches!(answer, Ok(Released::Freed))), "{answers:?}");
    }
}
