//! A lock that is ours and that nobody of this process has taken yet.
//!
//! It comes from the store, or from a hold that ended here while others waited. The waiter at the
//! head must take it by a poll while the offer stands: a future that is queued but no longer polled
//! must not own the lock. A hold that goes from one waiter to the next costs no command, but other
//! processes wait meanwhile, so a process's [`Turn`] is bounded in number and in time.

use std::sync::Arc;
use std::time::Duration;

use super::hold::Granted;
use crate::clock::Timestamp;

/// A lock on offer to local waiters.
#[derive(Clone, Debug, Hash)]
pub(crate) struct Offer {
    pub(crate) owner: Arc<str>,
    pub(crate) granted: Granted,
    pub(crate) turn: Turn,
    until: Timestamp,
}

/// What is spent of a process's turn on a lock.
#[derive(Clone, Copy, Debug, Hash)]
pub(crate) struct Turn {
    began_at: Timestamp,
    passes: u32,
}

/// How long a process keeps a lock that it passes from waiter to waiter.
#[derive(Clone, Copy, Debug, Hash)]
pub(crate) struct HandOff {
    pub(crate) passes: u32,
    pub(crate) within: Duration,
}

impl Offer {
    /// Offers what was granted, to be taken within `claim`.
    pub(crate) fn new(
        owner: Arc<str>,
        granted: Granted,
        turn: Turn,
        now: Timestamp,
        claim: Duration,
    ) -> Self {
        let mut offer = Self { owner, granted, turn, until: now };
        offer.renew(now, claim);
        offer
    }

    /// Offers it to the next one, if there is time. False if the lock is to be given back.
    pub(crate) fn renew(&mut self, now: Timestamp, claim: Duration) -> bool {
        self.until = (now + claim).min(self.granted.deadline());
        now < self.until
    }

    /// Whether it may be taken at `now`.
    pub(crate) fn stands(&self, now: Timestamp) -> bool {
        now < self.until
    }

    pub(crate) fn until(&self) -> Timestamp {
        self.until
    }
}

impl Turn {
    /// The process gets the lock from the store.
    pub(crate) const fn begin(now: Timestamp) -> Self {
        Self { began_at: now, passes: 0 }
    }

    /// The turn with one more pass, if the bounds allow it.
    pub(crate) fn pass(self, now: Timestamp, bounds: HandOff) -> Option<Self> {
        let passes = self.passes + 1;
        let goes_on = passes <= bounds.passes && now < self.began_at + bounds.within;
        goes_on.then_some(Self { passes, ..self })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: HandOff = HandOff { passes: 3, within: Duration::from_millis(20) };

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn turn_ends_after_so_many_passes() {
        let mut turn = Turn::begin(at(0));
        for _ in 0..BOUNDS.passes {
            turn = turn.pass(at(1), BOUNDS).unwrap();
        }

        assert!(turn.pass(at(1), BOUNDS).is_none());
    }

    #[test]
    fn turn_ends_after_its_time() {
        let turn = Turn::begin(at(0));

        assert!(turn.pass(at(19), BOUNDS).is_some());
        assert!(turn.pass(at(20), BOUNDS).is_none());
    }

    #[test]
    fn offer_never_stands_past_the_deadline() {
        let granted = Granted::new(at(0), Duration::from_secs(1));
        let claim = Duration::from_secs(5);
        let mut offer = Offer::new("a".into(), granted, Turn::begin(at(0)), at(0), claim);

        assert_eq!(offer.until(), granted.deadline());
        assert!(!offer.renew(granted.deadline(), claim));
    }
}
