//! How a process gets a lock that others have: the one contender it has per key.
//!
//! The contender takes a place in the store's queue, and from then on waits to be told. A release
//! grants it the lock for a short claim, which it confirms by one renewal. With that its work is
//! done: the confirmed lock goes on as an [`Offer`](super::offer::Offer) to the local waiters.
//!
//! Invariant: no wake-up depends on a message. A queued contender always has a time at which it
//! asks the store again, at the latest [`Pace::VERIFY_AT_MOST`] from now, which also keeps its place
//! alive; and whoever asks and finds the lock free has it.
//!
//! The owner string stays the same for the whole contention, whatever is sent again, until it is
//! either a hold's or given up. A given-up owner is never used again.

use std::sync::Arc;
use std::time::Duration;

use super::hold::Granted;
use crate::backend::{Contended, Renewed, StoreError, StoreErrorKind, StoreResult};
use crate::backoff::{self, Chance};
use crate::clock::Timestamp;

/// One process's contention for one key.
#[derive(Clone, Debug, Hash)]
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

#[derive(Clone, Debug, Hash)]
enum State {
    /// About to ask the store.
    Start,
    /// A `contend` is under way; whether a grant was announced meanwhile, and when to look if the
    /// message of who is next was. A message may overtake the answer on its last way.
    Asking { announced: bool, look_at: Timestamp },
    /// In the queue.
    Queued { verify_at: Timestamp },
    /// The lock is ours by claim: about to confirm.
    Claimed,
    /// A confirming renewal is under way.
    Confirming,
    /// Asks (again, if the store gave no answer) at a time.
    Pausing { until: Timestamp },
}

/// What a contender's sends may have left in the store: a place, a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Traces {
    None,
    /// Every send was answered: a release now finds all there is.
    Certain,
    /// A send was never answered: it may take effect even later, but then not after this.
    Uncertain {
        until: Timestamp,
    },
}

/// Who holds the lock, as last seen.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
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
    /// Nothing before this.
    Wait(Timestamp),
}

/// Why no waiter of this process can get the lock.
pub(crate) type Failure = StoreError;

/// How fast a contender moves.
#[derive(Clone, Copy, Debug, Hash)]
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

impl Traces {
    /// What is left of a grant that is given back.
    pub(crate) fn of(granted: Granted, now: Timestamp) -> Self {
        if granted.is_certain(now) {
            Self::Certain
        } else {
            Self::Uncertain { until: granted.uncertain_until }
        }
    }
}

impl Contender {
    /// A contender that has sent nothing yet, and does not before `start_at`.
    pub(crate) fn new(owner: Arc<str>, start_at: Timestamp, pace: Pace) -> Self {
        Self {
            owner,
            pace,
            state: State::Pausing { until: start_at },
            traces: Traces::None,
            lease: Duration::ZERO,
            failures: 0,
            holder: None,
            trouble: None,
        }
    }

    /// A contender that goes on with an owner for which an acquire was sent whose outcome is unknown,
    /// and whose effect would end at `until`.
    pub(crate) fn after_unknown(
        owner: Arc<str>,
        until: Timestamp,
        pace: Pace,
        trouble: StoreError,
    ) -> Self {
        let trouble = Some(trouble);
        Self {
            traces: Traces::Uncertain { until },
            trouble,
            ..Self::new(owner, Timestamp::NOW, pace)
        }
    }

    /// The store answered a `contend` for `granted`, or did not. The grant, if the lock is ours now.
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
    ) -> Result<Option<Granted>, Failure> {
        let (announced, look_at) = match self.state {
            State::Asking { announced, look_at } => (announced, look_at),
            _ => (false, Timestamp::NEVER),
        };
        if reply.is_ok() && self.traces == Traces::None {
            self.traces = Traces::Certain;
        }
        match reply {
            Ok(Contended::Granted) => return Ok(Some(self.won(granted))),
            Ok(Contended::Mine) => self.state = State::Claimed,
            // The grant came between the answer and now.
            Ok(Contended::Held { .. } | Contended::Queued { .. }) if announced => {
                self.state = State::Claimed;
            }
            Ok(Contended::Held { holder, remaining }) => {
                // Nobody is going to tell.
                self.holder = Some(SeenHolder { owner: holder, expected_end: now + remaining });
                let pause = backoff::pause(self.failures, FIRST_PAUSE, UNANNOUNCED_PAUSE, chance);
                self.failures = self.failures.saturating_add(1);
                let verify_at = now + pause.min(remaining + SETTLE);
                self.state = State::Queued { verify_at };
                self.trouble = None;
            }
            Ok(Contended::Queued { holder, remaining, ahead }) => {
                self.holder = Some(SeenHolder { owner: holder, expected_end: now + remaining });
                let verify_at = now + self.verify_after(remaining, ahead, chance);
                self.state = State::Queued { verify_at: verify_at.min(look_at) };
                self.trouble = None;
                if self.pace.announced {
                    self.failures = 0;
                } else {
                    self.failures = self.failures.saturating_add(1);
                }
            }
            Err(error) => self.unanswered(error, now, chance)?,
        }
        Ok(None)
    }

    /// The store answered a confirming renewal for `granted`, or did not. The grant, if it did
    /// confirm.
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
    ) -> Result<Option<Granted>, Failure> {
        match reply {
            Ok(Renewed::Renewed) => return Ok(Some(self.won(granted))),
            // The claim had lapsed, or the message was not for this grant: ask, do not guess.
            Ok(Renewed::Gone | Renewed::Taken | Renewed::Unanswered) => self.state = State::Start,
            Ok(Renewed::Foreign) => {
                let text = "the key holds a value that is no lock";
                self.state = State::Start;
                return Err(StoreError::new(StoreErrorKind::Foreign, text));
            }
            Err(error) => self.unanswered(error, now, chance)?,
        }
        Ok(None)
    }

    /// Whether nothing was sent for its owner yet, so that another one may as well take its place.
    pub(crate) fn has_sent_nothing(&self) -> bool {
        self.traces == Traces::None && matches!(self.state, State::Pausing { .. } | State::Start)
    }

    /// From now on the store announces grants, or does not.
    pub(crate) fn set_announced(&mut self, announced: bool) {
        self.pace.announced = announced;
    }

    /// A message says that the lock is this owner's now.
    pub(crate) fn announced(&mut self) {
        match &mut self.state {
            State::Asking { announced, .. } => *announced = true,
            State::Queued { .. } | State::Pausing { .. } => self.state = State::Claimed,
            State::Start | State::Claimed | State::Confirming => {}
        }
    }

    /// A message says that the lock went to the contender before us, for `claim`.
    pub(crate) fn next_in_line(&mut self, claim: Duration, now: Timestamp) {
        if let State::Queued { verify_at: at } | State::Asking { look_at: at, .. } = &mut self.state
        {
            *at = (*at).min(now + claim + SETTLE);
        }
    }

    /// Messages may have been missed, or what was out of reach is back.
    pub(crate) fn interrupted(&mut self, now: Timestamp, chance: Chance) {
        if let State::Queued { verify_at: at } | State::Pausing { until: at } = &mut self.state {
            *at = (*at).min(now + chance.part_of(REJOIN_SPREAD));
        }
    }

    /// What was under way will never be answered.
    pub(crate) fn abandoned(&mut self, now: Timestamp) {
        if matches!(self.state, State::Asking { .. } | State::Confirming) {
            self.doubt(now);
            self.state = State::Start;
        }
    }

    /// When there is something to do; `wanted` if a local waiter is there.
    pub(crate) fn next_step(&self, wanted: bool) -> Timestamp {
        match self.state {
            State::Asking { .. } | State::Confirming => Timestamp::NEVER,
            State::Queued { verify_at: at } | State::Pausing { until: at } if wanted => at,
            _ => Timestamp::NOW,
        }
    }

    /// What to do at `now`, for the lease that the local waiter at the head wants, if one is there.
    pub(crate) fn step(&mut self, now: Timestamp, wanted: Option<Duration>) -> Step {
        let at = self.next_step(wanted.is_some());
        if now < at {
            return Step::Wait(at);
        }
        let Some(lease) = wanted else { return Step::GiveUp(self.traces) };
        self.lease = self.lease.max(lease);
        if matches!(self.state, State::Claimed) {
            self.state = State::Confirming;
            Step::Confirm(lease)
        } else {
            self.state = State::Asking { announced: false, look_at: Timestamp::NEVER };
            Step::Contend(lease)
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

    /// The lock is ours, with whatever an unanswered send may still do.
    fn won(&self, granted: Granted) -> Granted {
        match self.traces {
            Traces::Uncertain { until } => Granted { uncertain_until: until, ..granted },
            Traces::None | Traces::Certain => granted,
        }
    }

    /// An unanswered send may take effect at any time, and then for a lease.
    fn doubt(&mut self, now: Timestamp) {
        self.traces = Traces::Uncertain { until: now + self.lease };
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
        self.doubt(now);
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

#[cfg(test)]
mod tests {
    use super::*;

    /// On its way to us the answer passes through one task more than a message does.
    #[test]
    fn word_of_who_is_next_counts_also_if_it_overtakes_the_answer() {
        let now = Timestamp::from_nanos(1);
        let (lease, claim) = (Duration::from_secs(10), Duration::from_millis(500));
        let pace = Pace { claim, announced: true };
        let mut contender = Contender::new("a/1".into(), now, pace);
        assert_eq!(contender.step(now, Some(lease)), Step::Contend(lease));

        contender.next_in_line(claim, now);
        let reply = Contended::Queued { holder: "b/1".into(), remaining: lease, ahead: 1 };
        let granted = Granted::new(now, lease);
        contender.contended(Ok(reply), granted, now, Chance::fixed(0.0)).unwrap();

        assert_eq!(contender.step(now, Some(lease)), Step::Wait(now + claim + SETTLE));
    }

    #[test]
    fn contender_without_a_place_asks_again_soon_whatever_is_announced() {
        let pace = Pace { claim: Duration::from_millis(500), announced: true };
        let mut contender = Contender::new("test/1".into(), Timestamp::NOW, pace);
        let lease = Duration::from_secs(10);
        let mut now = Timestamp::NOW;
        for _ in 0..20 {
            assert_eq!(contender.step(now, Some(lease)), Step::Contend(lease));
            let held = Contended::Held { holder: "test/2".into(), remaining: lease };
            let granted = Granted::new(now, lease);
            let won = contender.contended(Ok(held), granted, now, Chance::fixed(0.5)).unwrap();
            assert_eq!(won, None);
            let Step::Wait(until) = contender.step(now, Some(lease)) else { panic!("no pause") };
            assert!(until.since(now) <= UNANNOUNCED_PAUSE, "{:?}", until.since(now));
            now = until;
        }
    }
}
