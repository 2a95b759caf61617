//! Exclusion and tidiness under a network that does its worst, a seed at a time.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::*;
use crate::{LockClient, LockKey};

/// A small generator, the same in every run of a seed.
#[derive(Debug)]
struct Dice(AtomicU64);

impl Dice {
    fn below(&self, end: u64) -> u64 {
        let step = |seed: u64| {
            seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407)
        };
        let last = self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |seed| Some(step(seed)));
        (step(last.unwrap()) >> 33) % end
    }
}

const SHORT_LEASE: Duration = Duration::from_millis(2_000);

/// A request is late by up to a part of the lease, or lost, and so is its reply.
fn fate(dice: &Dice) -> Fate {
    match dice.below(20) {
        0 => Fate::LOST,
        1 => Fate { to_node: Some(ms(dice.below(1_500))), back: None },
        2 => Fate { to_node: Some(ms(dice.below(400))), back: Some(ms(dice.below(100))) },
        _ => Fate { to_node: Some(ms(dice.below(4))), back: Some(ms(dice.below(4))) },
    }
}

async fn run(seed: u64, count: usize) {
    let dice = Arc::new(Dice(AtomicU64::new(seed)));
    let nodes: Vec<_> = (0..count).map(|_| Faulty::new()).collect();
    for node in &nodes {
        let dice = Arc::clone(&dice);
        node.fates(move |_| fate(&dice));
    }
    let inside = Arc::new(AtomicUsize::new(0));
    let turns = Arc::new(AtomicUsize::new(0));
    let quorums: Vec<_> = (0..3).map(|_| quorum(&nodes)).collect();
    let workers: Vec<_> = quorums
        .iter()
        .flat_map(|quorum| {
            let client = LockClient::on(Arc::clone(quorum) as Arc<dyn Backend>);
            [client.clone(), client]
        })
        .map(|client| {
            let (dice, inside, turns) =
                (Arc::clone(&dice), Arc::clone(&inside), Arc::clone(&turns));
            tokio::spawn(async move {
                for _ in 0..15 {
                    let wait = ms(dice.below(3_000));
                    let lock = client.lock(LockKey::literal("k")).lease(SHORT_LEASE).wait(wait);
                    let stay = ms(dice.below(3_000) * dice.below(2));
                    let (inside, turns) = (Arc::clone(&inside), Arc::clone(&turns));
                    let body = move |_| async move {
                        let _inside = Inside::enter(&inside);
                        turns.fetch_add(1, Ordering::SeqCst);
                        sleep(stay).await;
                    };
                    if dice.below(8) == 0 {
                        drop(tokio::time::timeout(ms(dice.below(500)), lock.run(body)).await);
                    } else {
                        drop(lock.run(body).await);
                    }
                }
            })
        })
        .collect();
    let nemesis = tokio::spawn({
        let (nodes, dice) = (nodes.clone(), Arc::clone(&dice));
        async move {
            loop {
                sleep(ms(200 + dice.below(2_000))).await;
                let victim = usize::try_from(dice.below(count as u64)).unwrap();
                nodes[victim].cut(dice.below(2) == 0);
                sleep(ms(dice.below(2_000))).await;
                nodes[victim].cut(false);
            }
        }
    });
    for worker in workers {
        worker.await.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
    nemesis.abort();
    assert!(turns.load(Ordering::SeqCst) > 5, "seed {seed}: {turns:?} turns");
    for node in &nodes {
        node.cut(false);
        node.all(Fate::PROMPT);
    }
    sleep(2 * SHORT_LEASE).await;
    assert!(nodes.iter().all(|node| node.store.get("k").is_none()), "seed {seed}");
    // A place that a late request took goes with its time.
    sleep(crate::protocol::contender::Pace::KEEP_PLACE).await;
    assert!(nodes.iter().all(|node| node.store.is_empty()), "seed {seed}");
    assert_eq!(quorums.iter().map(|quorum| owed(quorum)).sum::<usize>(), 0, "seed {seed}");
}

struct Inside<'a>(&'a AtomicUsize);

impl<'a> Inside<'a> {
    fn enter(count: &'a AtomicUsize) -> Self {
        assert_eq!(count.fetch_add(1, Ordering::SeqCst), 0, "two bodies at once");
        Self(count)
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// How many runs; `DISTLOCK_SEEDS` asks for more.
fn seeds(usual: u64) -> u64 {
    std::env::var("DISTLOCK_SEEDS").map_or(usual, |seeds| seeds.parse().expect("a number"))
}

#[tokio::test(start_paused = true)]
async fn three_nodes_exclude_whatever_the_network_does() {
    for seed in 0..seeds(8) {
        run(seed, 3).await;
    }
}

#[tokio::test(start_paused = true)]
async fn five_nodes_exclude_whatever_the_network_does() {
    for seed in 0..seeds(6) {
        run(seed, 5).await;
    }
}
