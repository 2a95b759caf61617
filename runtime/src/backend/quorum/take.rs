//! A round that takes a lock: from the direct try, a contender, or a draw of a fencing token.

use std::sync::Arc;
use std::time::Duration;

use super::Quorum;
use super::ask::{Answer, Ask, send};
use super::asked::{Asked, Decide, early};
use super::ballot::Ballot;
use super::channel::Round;
use super::draw::settle;
use super::sends::{Delete, Set};
use super::tally::{Verdict, Vote, Votes};
use super::trouble::Trouble;
use super::way::Way;
use crate::backend::{
    Acquired, BoxFuture, Channel, Contended, Drawn, Lock, StoreErrorKind, StoreResult, contender_of,
};
use crate::backoff::{self, Chance};

/// Tries the lock once; leaves no trace if it is not ours.
pub(super) fn acquire(
    round: Round,
    lock: Lock,
    lease: Duration,
) -> BoxFuture<StoreResult<Acquired>> {
    early(move |mut decide| async move {
        let mut taking = Taking::begin(&round, &lock, lease, Ask::Acquire);
        let outcome = match taking.verdict().await {
            Verdict::Granted => Ok(Acquired::Granted),
            Verdict::Mine => Ok(Acquired::HeldBy(lock.owner)),
            Verdict::HeldBy { owner, .. } => {
                taking.give_up();
                Ok(Acquired::HeldBy(owner))
            }
            Verdict::Failed(kind) => {
                taking.give_up();
                Err(taking.trouble.error(kind))
            }
        };
        decide.decide(outcome);
        taking.finish().await;
    })
}

/// Tries the lock, and takes a place in the queues of those nodes that somebody else has.
pub(super) fn contend(
    round: Round,
    lock: Lock,
    lease: Duration,
    keep: Duration,
) -> BoxFuture<StoreResult<Contended>> {
    early(move |mut decide: Decide<Contended>| async move {
        let mut taking = Taking::begin(&round, &lock, lease, Ask::Contend { keep });
        let outcome = match taking.verdict().await {
            Verdict::Granted => Ok(Contended::Granted),
            Verdict::Mine => Ok(Contended::Mine),
            Verdict::HeldBy { owner, whole } => {
                let splits = round.quorum.ballots().lost(&lock, !whole);
                let remaining = match taking.places.last_majority(&owner, &round.quorum) {
                    Some(remaining) if whole => remaining,
                    // Nobody has it: the parts are given back, and all try again, not in step.
                    _ => backoff::pause(splits, FIRST_PAUSE, LONGEST_PAUSE, Chance::roll()),
                };
                let ahead = taking.places.ahead();
                taking.give_up_but_wait();
                Ok(Contended::Queued { holder: owner, remaining, ahead })
            }
            Verdict::Failed(kind) => {
                taking.give_up_but_wait();
                Err(taking.trouble.error(kind))
            }
        };
        let waits_no_more = matches!(outcome, Ok(Contended::Granted | Contended::Mine));
        taking.left_queues = waits_no_more.then_some(keep);
        decide.decide(outcome);
        taking.finish().await;
    })
}

/// Takes the lock with a fencing token.
pub(super) fn draw(round: Round, lock: Lock, lease: Duration) -> BoxFuture<StoreResult<Drawn>> {
    early(move |mut decide: Decide<Drawn>| async move {
        let mut taking = Taking::begin(&round, &lock, lease, Ask::Draw);
        let outcome = match taking.verdict().await {
            Verdict::Granted | Verdict::Mine => {
                let (ballot, drawn) = (Arc::clone(&taking.ballot), taking.drawn.clone());
                settle(&round, &ballot.lock, drawn).await
            }
            Verdict::HeldBy { owner, .. } => {
                taking.give_up();
                Ok(Drawn::HeldBy(owner))
            }
            Verdict::Failed(kind) => {
                taking.give_up();
                Err(taking.trouble.error(kind))
            }
        };
        decide.decide(outcome);
        taking.finish().await;
    })
}

/// What comes of a request to one node, and by which connection it went there.
type Asking = (Set, StoreResult<(Arc<dyn Channel>, Answer)>);

/// The places that a contender's round took.
#[derive(Default)]
struct Places(Vec<(Arc<str>, Duration, usize)>);

impl Places {
    /// When so many of the holder's nodes have run out that the others are too few.
    fn last_majority(&self, owner: &Arc<str>, quorum: &Quorum) -> Option<Duration> {
        let of_owner = self.0.iter().filter(|(holder, ..)| holder == owner);
        let mut remaining: Vec<_> = of_owner.map(|(_, remaining, _)| *remaining).collect();
        remaining.sort_unstable();
        remaining.iter().rev().nth(quorum.majority() - 1).copied()
    }

    fn ahead(&self) -> usize {
        self.0.iter().map(|(_, _, ahead)| *ahead).min().unwrap_or(0)
    }
}

/// A round under way.
struct Taking {
    quorum: Arc<Quorum>,
    ways: Vec<Arc<Way>>,
    owner: Lock,
    ballot: Arc<Ballot>,
    asked: Asked<Asking>,
    votes: Votes,
    trouble: Trouble,
    /// The nodes on which the value stands, and by which connection it got there.
    standing: Vec<(usize, Arc<dyn Channel>)>,
    /// The nodes that did not answer, where it may stand all the same.
    silent: Vec<usize>,
    places: Places,
    queued_at: Vec<usize>,
    /// Set once a contender has no more use for its places, which last so long.
    left_queues: Option<Duration>,
    drawn: Vec<u64>,
    /// Whether what the nodes granted is to be given back.
    given_up: bool,
    deletes: Asked<()>,
}

impl Taking {
    /// Sends nothing yet.
    fn begin(round: &Round, lock: &Lock, lease: Duration, ask: Ask) -> Self {
        let Round { quorum, ways } = round;
        let now = quorum.now();
        let ballot = {
            let mut ballots = quorum.ballots();
            let ballot = ballots.begin(lock, now + lease, now);
            if let Ask::Contend { keep } = ask {
                ballots.queues(lock, keep, now);
            }
            ballot
        };
        let mut taking = Self {
            quorum: Arc::clone(quorum),
            ways: ways.clone(),
            owner: lock.clone(),
            ballot,
            asked: Asked::new(),
            votes: Votes::new(ways.len()),
            trouble: Trouble::new(ways.len()),
            standing: Vec::new(),
            silent: Vec::new(),
            places: Places::default(),
            queued_at: Vec::new(),
            left_queues: None,
            drawn: Vec::new(),
            given_up: false,
            deletes: Asked::new(),
        };
        for (node, way) in ways.iter().enumerate() {
            taking.ask(node, way, lease, ask);
        }
        taking
    }

    fn ask(&mut self, node: usize, way: &Arc<Way>, lease: Duration, ask: Ask) {
        let channel = way.channel_or_open();
        let set =
            channel.as_ref().and_then(|_| Set::begin(&self.quorum, &self.ballot, node, lease));
        let (Some(channel), Some(set)) = (channel, set) else {
            let down = way.node.down();
            self.votes.add(Vote::Failed(down.kind));
            self.trouble.add(down);
            return;
        };
        let (way, lock) = (Arc::clone(way), self.ballot.lock.clone());
        self.asked.add(node, async move {
            let request = send(&channel, &lock, lease, ask);
            let answer = way.ask(request).await;
            (set, answer.map(|answer| (channel, answer)))
        });
    }

    /// Collects answers until the outcome is certain.
    async fn verdict(&mut self) -> Verdict {
        loop {
            if let Some(verdict) = self.votes.verdict() {
                return verdict;
            }
            // All nodes are either asked or have failed, and so the last vote brings a verdict.
            let Some((node, answer)) = self.asked.next().await else {
                return Verdict::Failed(StoreErrorKind::Unavailable);
            };
            self.count(node, answer);
        }
    }

    fn count(&mut self, node: usize, (set, answer): Asking) {
        let vote = match answer {
            Ok((channel, answer)) => {
                let stands = matches!(answer, Answer::Granted(_) | Answer::Mine);
                set.answered(stands);
                if stands {
                    self.standing.push((node, channel));
                    self.give_back();
                }
                match answer {
                    Answer::Granted(token) => {
                        self.drawn.extend(token);
                        Vote::Granted
                    }
                    Answer::Mine => Vote::Mine,
                    Answer::HeldBy(holder) => self.held_by(&holder),
                    Answer::Queued { holder, remaining, ahead } => {
                        self.queued_at.push(node);
                        self.places.0.push((contender_of(&holder).into(), remaining, ahead));
                        self.held_by(&holder)
                    }
                }
            }
            Err(error) => {
                if error.kind == StoreErrorKind::Unavailable {
                    drop(set);
                    self.silent.push(node);
                    self.give_back();
                } else {
                    // It refused, so it did nothing.
                    set.answered(false);
                }
                let vote = Vote::Failed(error.kind);
                self.trouble.add(error);
                vote
            }
        };
        self.votes.add(vote);
    }

    fn held_by(&self, holder: &str) -> Vote {
        if *holder == *self.ballot.lock.owner {
            return Vote::Mine;
        }
        match contender_of(holder) {
            // What an earlier round left, which is being deleted: the node is of no use to this one.
            contender if *contender == *self.owner.owner => {
                Vote::Failed(StoreErrorKind::Unavailable)
            }
            contender => Vote::HeldBy(contender.into()),
        }
    }

    /// The round is lost: what was granted, and what will be, is given back, and the owner forgotten.
    fn give_up(&mut self) {
        self.give_up_but_wait();
        self.quorum.ballots().forget(&self.owner);
    }

    /// The same for an owner that keeps its places, and comes again.
    fn give_up_but_wait(&mut self) {
        self.ballot.state().end();
        self.given_up = true;
        self.give_back();
    }

    fn give_back(&mut self) {
        if !self.given_up {
            return;
        }
        for node in self.silent.drain(..) {
            self.quorum.nodes[node].owe(Arc::clone(&self.ballot));
        }
        for (node, channel) in self.standing.drain(..) {
            let delete = Delete::begin(&self.quorum, Arc::clone(&self.ballot), node);
            let way = Arc::clone(&self.ways[node]);
            let lock = self.ballot.lock.clone();
            self.deletes.add(node, async move {
                let reply = way.ask(channel.release(&lock, Duration::ZERO)).await;
                delete.answered(reply.is_ok());
            });
        }
    }

    /// Gives up the places that a contender has no more use for.
    fn leave_queues(&mut self, keep: Duration) {
        // One that did not answer may have queued us all the same.
        let nodes: Vec<_> = self.queued_at.drain(..).chain(self.silent.drain(..)).collect();
        for node in nodes {
            let place = Ballot::of_place(&self.owner, self.ways.len(), keep);
            let delete = Delete::begin(&self.quorum, place, node);
            let way = Arc::clone(&self.ways[node]);
            // Without a connection the guard has it owed.
            let Some(channel) = way.channel() else { continue };
            let lock = self.owner.clone();
            self.deletes.add(node, async move {
                let reply = way.ask(channel.release(&lock, Duration::ZERO)).await;
                delete.answered(reply.is_ok());
            });
        }
    }

    /// Hears the others out. What they grant stands beside the rest, or is given back.
    async fn finish(mut self) {
        loop {
            if let Some(keep) = self.left_queues {
                self.leave_queues(keep);
            }
            while self.deletes.next().await.is_some() {}
            let Some((node, answer)) = self.asked.next().await else { return };
            self.count(node, answer);
        }
    }
}

const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);
