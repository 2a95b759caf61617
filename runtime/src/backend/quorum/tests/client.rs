//! Clients of a quorum, from outside.

use super::*;
use crate::{LockClient, LockErrorKind, LockKey};

fn client(nodes: &[Faulty]) -> LockClient {
    LockClient::on(quorum(nodes))
}

fn key() -> LockKey {
    LockKey::literal("stock:lock:7")
}

#[tokio::test(start_paused = true)]
async fn validity_counts_from_the_send_whenever_the_last_answer_came() {
    let nodes = nodes::<3>();
    let clients = client(&nodes);
    for (node, back) in nodes.iter().zip([0, 150, 200]) {
        node.all(Fate { to_node: Some(Duration::ZERO), back: Some(ms(back)) });
    }
    let start = Instant::now();
    let guard = clients.lock(key()).lease(ms(1_000)).acquire().await.unwrap();
    assert_eq!(start.elapsed(), ms(150));
    assert!(guard.remaining() <= ms(1_000 - 150 - 10), "{:?}", guard.remaining());
}

#[tokio::test(start_paused = true)]
async fn a_majority_that_is_down_is_an_error_of_the_store_within_the_wait() {
    let nodes = nodes::<3>();
    let clients = client(&nodes);
    nodes[1..].iter().for_each(|node| node.cut(true));
    let start = Instant::now();
    let error = clients.lock(key()).wait(ms(2_000)).acquire().await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Backend);
    assert!(start.elapsed() <= ms(2_000), "{:?}", start.elapsed());
    nodes[1..].iter().for_each(|node| node.cut(false));
    drop(clients.lock(key()).acquire().await.unwrap());
}

/// k154: contention is told from trouble also while a node is down.
#[tokio::test(start_paused = true)]
async fn a_lock_that_is_held_is_held_also_with_a_node_down() {
    let nodes = nodes::<3>();
    let _guard = client(&nodes).lock(key()).acquire().await.unwrap();
    nodes[0].cut(true);
    let other = client(&nodes);
    assert!(other.lock(key()).try_acquire().await.unwrap().is_none());
    let error = other.lock(key()).wait(ms(500)).acquire().await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Timeout);
}

#[tokio::test(start_paused = true)]
async fn a_hold_outlasts_a_node_that_restarts_and_one_that_is_silent() {
    let nodes = nodes::<3>();
    let clients = client(&nodes);
    let guard = clients.lock(key()).lease(ms(3_000)).acquire().await.unwrap();
    for node in &nodes {
        node.store.remove("stock:lock:7");
        sleep(ms(2_000)).await;
        node.all(Fate::UNANSWERED);
        sleep(ms(4_000)).await;
        node.all(Fate::PROMPT);
        sleep(ms(2_000)).await;
        assert!(!guard.is_lost());
        assert_eq!(owners(&nodes, "stock:lock:7"), of(guard.owner(), &[true; 3]));
    }
    guard.release().await.unwrap();
    sleep(ms(4_000)).await;
    assert_eq!(owners(&nodes, "stock:lock:7"), of("", &[false; 3]));
}

#[tokio::test(start_paused = true)]
async fn a_waiter_has_the_lock_moments_after_the_release() {
    let nodes = nodes::<3>();
    let holder = client(&nodes).lock(key()).acquire().await.unwrap();
    let waiting = tokio::spawn({
        let client = client(&nodes);
        async move { client.lock(key()).acquire().await.map(|guard| (guard, Instant::now())) }
    });
    sleep(ms(1_000)).await;
    let released = Instant::now();
    holder.release().await.unwrap();
    let (_guard, got) = waiting.await.unwrap().unwrap();
    assert!(got - released < ms(20), "{:?}", got - released);
}

/// Three contenders split five nodes among them, round after round.
#[tokio::test(start_paused = true)]
async fn split_votes_end() {
    let nodes = nodes::<5>();
    for (index, node) in nodes.iter().enumerate() {
        let delay = Fate { to_node: Some(ms(1 + index as u64 % 3)), back: Some(ms(1)) };
        node.all(delay);
    }
    let start = Instant::now();
    let tasks: Vec<_> = (0..3)
        .map(|_| {
            let client = client(&nodes);
            tokio::spawn(async move {
                for _ in 0..20 {
                    client.lock(key()).wait(ms(60_000)).run(|_| sleep(ms(1))).await.unwrap();
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    // 60 turns, each of a few round trips and pauses.
    assert!(start.elapsed() < ms(60 * 100), "{:?}", start.elapsed());
}
