//! Renewals: confirmed by more than half of the nodes, and then planted where the lock was lost.

use std::sync::Arc;
use std::time::Duration;

use super::asked::{Asked, Decide, early};
use super::ballot::Ballot;
use super::channel::Round;
use super::sends::Set;
use super::tally;
use super::trouble::Trouble;
use crate::backend::{Acquired, BoxFuture, Channel, Renewal, Renewed, StoreResult};
use crate::clock::Timestamp;

pub(super) fn renew(round: Round, batch: Vec<Renewal>) -> BoxFuture<StoreResult<Vec<Renewed>>> {
    early(move |mut decide| async move {
        let mut renewing = Renewing::begin(round, batch);
        renewing.collect(&mut decide).await;
    })
}

/// What a node says of the whole batch, and by which connection.
type Answer = StoreResult<(Arc<dyn Channel>, Vec<Renewed>)>;

struct Renewing {
    round: Round,
    begun_at: Timestamp,
    /// As the nodes know them.
    renewals: Arc<Vec<Renewal>>,
    ballots: Vec<Option<Arc<Ballot>>>,
    asked: Asked<Answer>,
    /// What each node that has answered said, or that it did not.
    answers: Vec<Option<Vec<Renewed>>>,
    trouble: Trouble,
    /// Where a lock is gone, and by which connection one can plant it there.
    gone: Vec<(usize, Arc<dyn Channel>, usize)>,
    plants: Asked<()>,
}

impl Renewing {
    fn begin(round: Round, batch: Vec<Renewal>) -> Self {
        let begun_at = round.quorum.now();
        let mut ballots = Vec::with_capacity(batch.len());
        let mut renewals = Vec::with_capacity(batch.len());
        {
            let mut known = round.quorum.ballots();
            for Renewal { lock, lease } in batch {
                known.keep(&lock, begun_at + lease);
                let ballot = known.live(&lock);
                // One that was given up, or never was: the nodes say so.
                let lock = ballot.as_ref().map_or(lock, |ballot| ballot.lock.clone());
                renewals.push(Renewal { lock, lease });
                ballots.push(ballot);
            }
        }
        let renewals = Arc::new(renewals);
        let mut asked = Asked::new();
        for (node, way) in round.ways.iter().enumerate() {
            let (way, renewals) = (Arc::clone(way), Arc::clone(&renewals));
            asked.add(node, async move {
                // A node that comes back is planted by the first renewal after that, so here one
                // waits for it, if only in the background.
                let channel = way.reach().await?;
                let answers = way.ask(channel.renew(&renewals)).await?;
                Ok((channel, answers))
            });
        }
        let trouble = Trouble::new(round.ways.len());
        Self {
            round,
            begun_at,
            renewals,
            ballots,
            asked,
            answers: Vec::new(),
            trouble,
            gone: Vec::new(),
            plants: Asked::new(),
        }
    }

    async fn collect(&mut self, decide: &mut Decide<Vec<Renewed>>) {
        while let Some((node, answer)) = self.asked.next().await {
            match answer {
                Ok((channel, answers)) => {
                    for (index, answer) in answers.iter().enumerate() {
                        if *answer == Renewed::Gone {
                            self.gone.push((node, Arc::clone(&channel), index));
                        }
                    }
                    self.answers.push(Some(answers));
                }
                Err(error) => {
                    self.trouble.add(error);
                    self.answers.push(None);
                }
            }
            let verdicts = self.verdicts();
            if decide.is_open() && verdicts.iter().all(Option::is_some) {
                decide.decide(self.outcome(&verdicts));
            }
            self.plant(&verdicts);
            while self.plants.next().await.is_some() {}
        }
    }

    /// What is known of each lock.
    fn verdicts(&self) -> Vec<Option<Renewed>> {
        let nodes = self.round.ways.len();
        let of_one = |index: usize| {
            // A node that cannot tell says as little as one that does not answer.
            let told = |node: &Option<Vec<Renewed>>| {
                node.as_ref().map(|all| all[index]).filter(|one| *one != Renewed::Unanswered)
            };
            let answers: Vec<_> = self.answers.iter().map(told).collect();
            tally::renewed(nodes, &answers)
        };
        (0..self.renewals.len()).map(of_one).collect()
    }

    fn outcome(&self, verdicts: &[Option<Renewed>]) -> StoreResult<Vec<Renewed>> {
        let verdicts: Vec<_> = verdicts.iter().flatten().copied().collect();
        if verdicts.iter().all(|verdict| *verdict == Renewed::Unanswered) {
            return Err(self.trouble.no_majority());
        }
        Ok(verdicts)
    }

    /// Plants what more than half of the nodes confirmed where it is gone: a node that restarted
    /// without data, or got the lock too late, counts again from the next renewal on.
    fn plant(&mut self, verdicts: &[Option<Renewed>]) {
        let passed = self.round.quorum.now().since(self.begun_at);
        for (node, channel, index) in std::mem::take(&mut self.gone) {
            let Some(verdict) = verdicts[index] else {
                self.gone.push((node, channel, index));
                continue;
            };
            let (Renewed::Renewed, Some(ballot)) = (verdict, &self.ballots[index]) else {
                continue;
            };
            // It must not outlast what was asked for.
            let lease = self.renewals[index].lease.saturating_sub(passed);
            if lease < SHORTEST_PLANT {
                continue;
            }
            ballot.state().found_gone(node, self.begun_at);
            // Not after the release: the ballot is over then.
            let Some(set) = Set::begin(&self.round.quorum, ballot, node, lease) else { continue };
            let (way, lock) = (Arc::clone(&self.round.ways[node]), ballot.lock.clone());
            self.plants.add(node, async move {
                match way.ask(channel.acquire(&lock, lease)).await {
                    Ok(Acquired::Granted) => set.answered(true),
                    Ok(Acquired::HeldBy(holder)) => set.answered(holder == lock.owner),
                    // Whatever it did: until it answers otherwise, it may stand there.
                    Err(_) => drop(set),
                }
            });
        }
    }
}

const SHORTEST_PLANT: Duration = Duration::from_millis(1);
