//! One fencing token from the counters of several nodes.
//!
//! Each node draws a token of its own, and the highest one counts. Before it is handed out it is
//! written back to more than half of the nodes: whatever majority draws next has one of those, and so
//! gets a higher one.

use std::sync::Arc;

use super::asked::{Asked, Decide, early};
use super::channel::Round;
use super::trouble::Trouble;
use crate::backend::{
    BoxFuture, Drawn, Lock, StoreError, StoreErrorKind, StoreResult, contender_of,
};

/// Draws a token for a lock that the owner has.
pub(super) fn draw(round: Round, lock: Lock) -> BoxFuture<StoreResult<Drawn>> {
    early(move |mut decide: Decide<Drawn>| async move {
        let ballot = round.quorum.ballots().live(&lock);
        let at_nodes = ballot.map_or(lock, |ballot| ballot.lock.clone());
        let mut tally = Tally::new(round.ways.len());
        let mut asked = Asked::new();
        for (node, way) in round.ways.iter().enumerate() {
            let Some(channel) = way.channel_or_open() else {
                tally.add(Err(way.node.down()));
                continue;
            };
            let (way, lock) = (Arc::clone(way), at_nodes.clone());
            asked.add(node, async move { way.ask(channel.draw(&lock, None)).await });
        }
        let outcome = tally.collect(&mut asked, round.quorum.majority()).await;
        decide.decide(match outcome {
            Ok(Drawn::Token(_)) => settle(&round, &at_nodes, tally.tokens).await,
            other => other,
        });
        while asked.next().await.is_some() {}
    })
}

/// Makes one token of those that more than half of the nodes drew, and makes sure that no later one
/// is lower.
pub(super) async fn settle(round: &Round, at_nodes: &Lock, drawn: Vec<u64>) -> StoreResult<Drawn> {
    let Some(token) = drawn.into_iter().max() else { return Ok(Drawn::Gone) };
    let mut tally = Tally::new(round.ways.len());
    let mut asked = Asked::new();
    for (node, way) in round.ways.iter().enumerate() {
        let Some(channel) = way.channel_or_open() else {
            tally.add(Err(way.node.down()));
            continue;
        };
        let (way, lock) = (Arc::clone(way), at_nodes.clone());
        asked.add(node, async move { way.ask(channel.raise(&lock, token)).await });
    }
    let outcome = tally.collect(&mut asked, round.quorum.majority()).await?;
    // Who is late may still raise its counter, which does no harm.
    Ok(match outcome {
        Drawn::Token(_) => Drawn::Token(token),
        other => other,
    })
}

/// The nodes' answers to a draw.
struct Tally {
    nodes: usize,
    tokens: Vec<u64>,
    others: Vec<Drawn>,
    trouble: Trouble,
}

impl Tally {
    fn new(nodes: usize) -> Self {
        Self { nodes, tokens: Vec::new(), others: Vec::new(), trouble: Trouble::new(nodes) }
    }

    fn add(&mut self, answer: StoreResult<Drawn>) {
        match answer {
            Ok(Drawn::Token(token)) => self.tokens.push(token),
            Ok(other) => self.others.push(other),
            Err(error) => self.trouble.add(error),
        }
    }

    /// Whether more than half have it, as soon as that is certain.
    async fn collect(
        &mut self,
        asked: &mut Asked<StoreResult<Drawn>>,
        majority: usize,
    ) -> StoreResult<Drawn> {
        loop {
            if self.tokens.len() >= majority {
                return Ok(Drawn::Token(0));
            }
            if self.others.len() + majority > self.nodes {
                return Ok(self.other());
            }
            let Some((_, answer)) = asked.next().await else {
                return Err(match self.others.is_empty() {
                    true => self.trouble.no_majority(),
                    false => self.unknown(),
                });
            };
            self.add(answer);
        }
    }

    fn other(&self) -> Drawn {
        let held_by = self.others.iter().find_map(|other| match other {
            Drawn::HeldBy(owner) => Some(contender_of(owner)),
            Drawn::Gone | Drawn::Token(_) => None,
        });
        held_by.map_or(Drawn::Gone, |owner| Drawn::HeldBy(owner.into()))
    }

    fn unknown(&self) -> StoreError {
        self.trouble.error(StoreErrorKind::Unavailable)
    }
}
