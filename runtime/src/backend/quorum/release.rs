//! Releases: a delete on every node, and a word to who is next once more than half are free.

use std::sync::Arc;
use std::time::Duration;

use super::asked::{Asked, Decide, early};
use super::channel::Round;
use super::sends::Delete;
use super::tally;
use super::trouble::Trouble;
use crate::backend::{BoxFuture, Channel, Lock, Released, StoreErrorKind, StoreResult};

pub(super) fn release(
    round: Round,
    lock: Lock,
    claim: Duration,
) -> BoxFuture<StoreResult<Released>> {
    early(move |mut decide: Decide<Released>| async move {
        let Round { quorum, ways } = &round;
        // From here on nothing is planted for it.
        let (ballot, places) = quorum.ballots().end(&lock).unzip();
        let places = places.flatten();
        let at_nodes = ballot.as_ref().map_or_else(|| lock.clone(), |ballot| ballot.lock.clone());
        let mut answers = Vec::with_capacity(ways.len());
        let mut trouble = Trouble::new(ways.len());
        let mut asked: Asked<StoreResult<(Arc<dyn Channel>, Released)>> = Asked::new();
        for (node, way) in ways.iter().enumerate() {
            let deletes = [&ballot, &places].map(|what| {
                what.as_ref().map(|what| Delete::begin(quorum, Arc::clone(what), node))
            });
            let Some(channel) = way.channel_or_open() else {
                // The guards have it owed if something may stand there.
                drop(deletes);
                trouble.add(way.node.down());
                answers.push(None);
                continue;
            };
            let (way, lock) = (Arc::clone(way), at_nodes.clone());
            asked.add(node, async move {
                let reply = way.ask(channel.release(&lock, Duration::ZERO)).await;
                deletes.into_iter().flatten().for_each(|delete| delete.answered(reply.is_ok()));
                Ok((channel, reply?))
            });
        }
        let mut answered_by = Vec::new();
        // Whether others queue on a node that was asked, and are still to be told.
        let mut untold = false;
        let mut verdict = None;
        loop {
            verdict = verdict.or_else(|| tally::released(ways.len(), &answers));
            if let Some(known) = &verdict {
                if known.is_some() && decide.is_open() {
                    quorum.ballots().forget(&lock);
                }
                if untold && known.is_some() {
                    untold = false;
                    // Before the answer: the process may end right after it.
                    wake(&round, &answered_by, &lock.key, claim).await;
                }
                if decide.is_open() {
                    let outcome = known.clone();
                    decide
                        .decide(outcome.ok_or_else(|| trouble.error(StoreErrorKind::Unavailable)));
                }
            }
            match asked.next().await {
                None => return,
                Some((node, Ok((channel, released)))) => {
                    answered_by.push((node, channel));
                    // One that was freed by an earlier try cannot tell any more.
                    untold |= match released {
                        Released::FreedUntold => true,
                        Released::Gone => ballot.is_some(),
                        _ => false,
                    };
                    answers.push(Some(match released {
                        Released::FreedUntold => Released::Freed,
                        released => released,
                    }));
                }
                Some((_, Err(error))) => {
                    trouble.add(error);
                    answers.push(None);
                }
            }
        }
    })
}

/// Tells the contender at the head of the first node's queue that has one. Only now, when more than
/// half are free: who comes earlier finds parts still held. And only one, on one node: several would
/// split the nodes among them.
async fn wake(
    round: &Round,
    answered_by: &[(usize, Arc<dyn Channel>)],
    key: &Arc<str>,
    claim: Duration,
) {
    let mut nodes: Vec<_> = answered_by.iter().collect();
    nodes.sort_unstable_by_key(|(node, _)| *node);
    for (node, channel) in nodes {
        // If this goes wrong, contenders look by their timers.
        if let Ok(true) = round.ways[*node].ask(channel.wake(key, claim)).await {
            return;
        }
    }
}
