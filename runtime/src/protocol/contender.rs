//! How a process gets a lock that others have: the one contender it has per key.
//!
//! The contender takes a place in the store's queue, and from then on waits to be told. A release
//! grants it the lock for a short claim, which it confirms by one renewal; the confirmed lock is
//! offered to the local waiter at the head, who must take it by a poll while the offer stands.
//!
//! Invariant: no wake-up depends on a message. A queued contender always has a time at which it
//! asks the store again, at the latest [`Pace::VERIFY_AT_MOST`] from now, which also keeps its place
//! alive; and whoever asks and finds the lock free has it.
//!
//! The owner string stays the same for the whole contention, whatever is sent again, until it is
//! either a hold's or given up. A given-up owner is never used again.

use std::sync::Arc;
use std::time::Duration;

use super::hold::local_deadline;
use crate::backend::{Contended, Renewed, StoreError, StoreErrorKind, StoreResult};
use crate::backoff::{self, Chance};
use crate::clock::Timestamp;

/// One process's contention for one key.
#[derive(Clone, Debug)]
pub(crate) struct Contender {
    owner: Arc<str>,
    pace: Pace,
    state: State,
    /// What earlier sends may have left in the store, so that giving up needs a release.
    traces: Traces,
    /// The longest lease that any send asked for.
    lease: Duration,
    failures: u32,
    /// What is known of the holder, for the error of a waiter whose time runs out.
    holder: Option<SeenHolder>,
    /// Why the store could not be asked the last time.
    trouble: Option<StoreError>,
}

#[derive(Clone, Debug)]
enum State {
    /// About to ask the store.
    Start,
    /// A `contend` is under way; whether a grant was announced meanwhile.
    Asking { announced: bool },
    /// In the queue.
    Queued { verify_at: Timestamp },
    /// The lock is ours by claim: about to confirm.
    Claimed,
    /// A confirming renewal is under way.
    Confirming,
    /// The lock is ours, and nobody here has taken it yet.
    Offered { granted: Granted, until: Timestamp },
    /// The store gave no answer: asks again at a time.
    Pausing { until: Timestamp },
}

/// What a contender's sends may have left in the store: a place, a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Traces {
    None,
    /// Every send was answered: a release now finds all there is.
    Certain,
    /// A send was never answered: it may take effect even later.
    Uncertain,
}

/// A lock that is ours: for how long, counted from when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Granted {
    pub(crate) sent_at: Timestamp,
    pub(crate) lease: Duration,
}

/// Who holds the lock, as last seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SeenHolder {
    pub(crate) owner: Arc<str>,
    pub(crate) expected_end: Timestamp,
}

/// What to do now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Send a `contend` for this lease, and tell the outcome by [`Contender::contended`].
    Contend(Duration),
    /// Send a renewal to this lease, and tell the outcome by [`Contender::confirmed`].
    Confirm(Duration),
    /// Nobody waits any more: drop the contender, and release what it may have.
    GiveUp(Traces),
    /// The waiter at the head did not take the offer in time: offer it to the next one by
    /// [`Contender::offer_again`], or give up.
    PassOn,
    /// Nothing before this.
    Wait(Timestamp),
}

/// Why no waiter of this process can get the lock.
pub(crate) type Failure = StoreError;

/// How fast a contender moves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// How long a grant stands before it is confirmed, and an offer before it is taken.
    pub(crate) claim: Duration,
    /// Whether the store announces grants; without, the contender asks more often.
    pub(crate) announced: bool,
}

impl Pace {
    /// A queued contender asks again after this at the latest.
    pub(crate) const VERIFY_AT_MOST: Duration = Duration::from_secs(5);

    /// How long a place in the queue stays without being refreshed: two refreshes may get lost.
    pub(crate) const KEEP_PLACE: Duration = Duration::from_secs(15);
}

impl Contender {
    /// A contender that has sent nothing yet.
    pub(crate) fn new(owner: Arc<str>, pace: Pace) -> Self {
        Self {
            owner,
            pace,
            state: State::Start,
            traces: Traces::None,
            lease: Duration::ZERO,
            failures: 0,
            holder: None,
            trouble: None,
        }
    }

    /// A contender that goes on with an owner for which an acquire to `lease` was sent whose outcome
    /// is unknown.
    pub(crate) fn after_unknown(
        owner: Arc<str>,
        lease: Duration,
        pace: Pace,
        trouble: StoreError,
    ) -> Self {
        let trouble = Some(trouble);
        Self { traces: Traces::Uncertain, lease, trouble, ..Self::new(owner, pace) }
    }

    /// The store answered a `contend` for `lease` that was sent at `sent_at`, or did not.
    ///
    /// # Errors
    ///
    /// Asking again does not help: the failure of every waiter.
    pub(crate) fn contended(
        &mut self,
        reply: StoreResult<Contended>,
        granted: Granted,
        now: Timestamp,
        chance: Chance,
    ) -> Result<(), Failure> {
        let announced = matches!(self.state, State::Asking { announced: true });
        if reply.is_ok() && self.traces == Traces::None {
            self.traces = Traces::Certain;
        }
        match reply {
            Ok(Contended::Granted) => self.offer(granted, now),
            Ok(Contended::Mine) => self.state = State::Claimed,
            // The grant came between the answer and now.
            Ok(Contended::Queued { .. }) if announced => self.state = State::Claimed,
            Ok(Contended::Queued { holder, remaining, ahead }) => {
                self.holder = Some(SeenHolder { owner: holder, expected_end: now + remaining });
                let verify_at = now + self.verify_after(remaining, ahead, chance);
                self.state = State::Queued { verify_at };
                self.trouble = None;
                if self.pace.announced {
                    self.failures = 0;
                } else {
                    self.failures = self.failures.saturating_add(1);
                }
            }
            Err(error) => return self.unanswered(error, now, chance),
        }
        Ok(())
    }

    /// The store answered a confirming renewal for `granted.lease` sent at `granted.sent_at`, or did
    /// not.
    ///
    /// # Errors
    ///
    /// Asking again does not help: the failure of every waiter.
    pub(crate) fn confirmed(
        &mut self,
        reply: StoreResult<Renewed>,
        granted: Granted,
        now: Timestamp,
        chance: Chance,
    ) -> Result<(), Failure> {
        match reply {
            Ok(Renewed::Renewed) => self.offer(granted, now),
            // The claim had lapsed, or the message was not for this grant: ask, do not guess.
            Ok(Renewed::Gone | Renewed::Taken) => self.state = State::Start,
            Ok(Renewed::Foreign) => {
                let text = "the key holds a value that is no lock";
                self.state = State::Start;
                return Err(StoreError::new(StoreErrorKind::Foreign, text));
            }
            Err(error) => return self.unanswered(error, now, chance),
        }
        Ok(())
    }

    /// A message says that the lock is this owner's now.
    pub(crate) fn announced(&mut self) {
        match &mut self.state {
            State::Asking { announced } => *announced = true,
            State::Queued { .. } | State::Pausing { .. } => self.state = State::Claimed,
            State::Start | State::Claimed | State::Confirming | State::Offered { .. } => {}
        }
    }

    /// A message says that the lock went to the contender before us, for `claim`.
    pub(crate) fn next_in_line(&mut self, claim: Duration, now: Timestamp) {
        if let State::Queued { verify_at } = &mut self.state {
            *verify_at = (*verify_at).min(now + claim + SETTLE);
        }
    }

    /// Messages may have been missed.
    pub(crate) fn interrupted(&mut self, now: Timestamp, chance: Chance) {
        if let State::Queued { verify_at } = &mut self.state {
            *verify_at = (*verify_at).min(now + chance.part_of(REJOIN_SPREAD));
        }
    }

    /// What was under way will never be answered.
    pub(crate) fn abandoned(&mut self) {
        if matches!(self.state, State::Asking { .. } | State::Confirming) {
            self.traces = Traces::Uncertain;
            self.state = State::Start;
        }
    }

    /// Offers the lock to the next waiter.
    pub(crate) fn offer_again(&mut self, now: Timestamp) {
        if let State::Offered { granted, .. } = self.state {
            self.offer(granted, now);
        }
    }

    /// A waiter takes the offered lock; the contender has done its work.
    pub(crate) fn take(&self, now: Timestamp) -> Option<Granted> {
        match self.state {
            State::Offered { granted, .. }
                if now < local_deadline(granted.sent_at, granted.lease) =>
            {
                Some(granted)
            }
            _ => None,
        }
    }

    /// What to do at `now`, for the lease that the local waiter at the head wants, if one is there.
    pub(crate) fn step(&mut self, now: Timestamp, wanted: Option<Duration>) -> Step {
        if matches!(self.state, State::Asking { .. } | State::Confirming) {
            return Step::Wait(Timestamp::NEVER);
        }
        let Some(lease) = wanted else { return Step::GiveUp(self.traces) };
        match self.state {
            State::Queued { verify_at: at } | State::Pausing { until: at } if now < at => {
                Step::Wait(at)
            }
            State::Offered { until, .. } if now < until => Step::Wait(until),
            State::Offered { .. } => Step::PassOn,
            State::Claimed => {
                self.lease = self.lease.max(lease);
                self.state = State::Confirming;
                Step::Confirm(lease)
            }
            _ => {
                self.lease = self.lease.max(lease);
                self.state = State::Asking { announced: false };
                Step::Contend(lease)
            }
        }
    }

    /// The longest lease that a send asked for: what is released late is gone by then.
    pub(crate) fn lease(&self) -> Duration {
        self.lease
    }

    pub(crate) fn owner(&self) -> &Arc<str> {
        &self.owner
    }

    pub(crate) fn holder(&self) -> Option<&SeenHolder> {
        self.holder.as_ref()
    }

    pub(crate) fn trouble(&self) -> Option<&StoreError> {
        self.trouble.as_ref()
    }

    /// Whether a lock is on offer to local waiters.
    pub(crate) fn is_offering(&self) -> bool {
        matches!(self.state, State::Offered { .. })
    }

    fn offer(&mut self, granted: Granted, now: Timestamp) {
        self.failures = 0;
        self.trouble = None;
        // An offer ends while at least half of the lease is left, so that the taker can start.
        let half_left = local_deadline(granted.sent_at, granted.lease) - granted.lease / 2;
        self.state = State::Offered { granted, until: (now + self.pace.claim).min(half_left) };
    }

    fn unanswered(
        &mut self,
        error: StoreError,
        now: Timestamp,
        chance: Chance,
    ) -> Result<(), Failure> {
        if error.kind != StoreErrorKind::Unavailable {
            self.state = State::Start;
            return Err(error);
        }
        self.traces = Traces::Uncertain;
        let pause = backoff::pause(self.failures, FIRST_PAUSE, LONGEST_PAUSE, chance);
        self.failures = self.failures.saturating_add(1);
        self.trouble = Some(error);
        self.state = State::Pausing { until: now + pause };
        Ok(())
    }

    /// The holder's end is when the lock is free if nobody releases it. Those further back look a
    /// little later, so that after a crash the order of the queue is kept.
    fn verify_after(&self, remaining: Duration, ahead: usize, chance: Chance) -> Duration {
        let ahead = u32::try_from(ahead).unwrap_or(u32::MAX);
        let turn = SETTLE + STAGGER.saturating_mul(ahead).min(LONGEST_STAGGER);
        let at_end = remaining + turn + chance.part_of(SETTLE);
        let at_most = if self.pace.announced {
            Pace::VERIFY_AT_MOST - chance.part_of(Pace::VERIFY_AT_MOST / 4)
        } else {
            backoff::pause(self.failures, FIRST_PAUSE, UNANNOUNCED_PAUSE, chance)
        };
        at_end.min(at_most)
    }
}

/// A store's TTL ends within its millisecond.
const SETTLE: Duration = Duration::from_millis(2);
const STAGGER: Duration = Duration::from_millis(5);
const LONGEST_STAGGER: Duration = Duration::from_millis(200);
const REJOIN_SPREAD: Duration = Duration::from_millis(20);
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
const UNANNOUNCED_PAUSE: Duration = Duration::from_millis(500);
