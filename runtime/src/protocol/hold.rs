//! The life of one hold, from its grant to its end.
//!
//! Invariant: a hold is valid only before its local deadline, and the deadline moves only when the
//! store confirmed a renewal, to a point counted from when that renewal was sent. So whatever is
//! late, lost or doubled on the way, the store's own TTL ends later than ours.

use std::time::Duration;

use crate::clock::{Timestamp, nanos};

/// A lock that is ours: for how long, counted from when.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Granted {
    pub(crate) sent_at: Timestamp,
    pub(crate) lease: Duration,
    /// Until when an earlier send for this owner, which was never answered, may still take effect
    /// and leave a lock behind that nobody knows of; long past if there is none.
    pub(crate) uncertain_until: Timestamp,
}

impl Granted {
    /// A grant of `lease` that was sent at `sent_at`, all earlier sends being answered.
    pub(crate) const fn new(sent_at: Timestamp, lease: Duration) -> Self {
        Self { sent_at, lease, uncertain_until: Timestamp::NOW }
    }

    /// Whether a release sent at `at` comes after whatever was sent for the owner before.
    pub(crate) fn is_certain(&self, at: Timestamp) -> bool {
        self.uncertain_until <= at
    }

    /// Where it ends by our clock.
    pub(crate) fn deadline(&self) -> Timestamp {
        local_deadline(self.sent_at, self.lease)
    }

    /// Whether a body may begin under it: it is for `lease`, at least half of which is ahead.
    pub(crate) fn is_fresh(&self, lease: Duration, now: Timestamp) -> bool {
        let half = nanos(lease) / 2;
        self.lease == lease && self.deadline().as_nanos() >= now.as_nanos().saturating_add(half)
    }
}

/// The hold's clock-driven side: when to renew, and when it is over.
#[derive(Clone, Debug, Hash)]
pub(crate) struct Hold {
    /// The confirmed grant or renewal that reaches furthest.
    granted: Granted,
    /// What the next renewal asks for.
    lease: Duration,
    /// Where `max_hold` ends, which no TTL in the store may outlast.
    last_end: Timestamp,
    /// Where the body is stopped: `last_end` less the drift, so that here too our clock is the
    /// conservative one.
    limit: Timestamp,
    renew_at: Timestamp,
    failures: u32,
    renewing: bool,
}

/// Why a hold is over before its release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// Not confirmed by the local deadline.
    Expired,
    /// `max_hold` ran out.
    Limit,
    /// The client was shut down.
    ShutDown,
    /// The store says that we are not the owner.
    Taken,
}

/// What to do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    End(End),
    /// Send a renewal to this lease, and tell the outcome by [`Hold::renewed`] or [`Hold::failed`].
    Renew(Duration),
    /// Nothing before this.
    Wait(Timestamp),
}

impl Hold {
    /// A hold of what was granted, which begins at `now`.
    pub(crate) fn new(granted: Granted, now: Timestamp, max_hold: Option<Duration>) -> Self {
        let last_end = max_hold.map_or(Timestamp::NEVER, |max_hold| now + max_hold);
        let mut hold = Self {
            granted,
            lease: granted.lease,
            last_end,
            limit: last_end - Duration::from_nanos(drift(nanos(granted.lease))),
            renew_at: now,
            failures: 0,
            renewing: false,
        };
        hold.renewed(granted.sent_at, granted.lease);
        hold
    }

    /// The store confirmed a renewal to `lease` that was sent at `sent_at`.
    pub(crate) fn renewed(&mut self, sent_at: Timestamp, lease: Duration) {
        self.renewing = false;
        self.failures = 0;
        let renewed = Granted { sent_at, lease, ..self.granted };
        // The store never shortens a TTL, so what reaches further stays true.
        if renewed.deadline() >= self.granted.deadline() {
            self.granted = renewed;
        }
        self.renew_at = if self.deadline() >= self.limit {
            Timestamp::NEVER
        } else {
            sent_at + Duration::from_nanos(nanos(lease) / RENEWALS_PER_LEASE)
        };
    }

    /// From now on each renewal is for `lease`.
    pub(crate) fn set_lease(&mut self, lease: Duration) {
        self.lease = lease;
    }

    /// A renewal got no answer, or one that may be different next time.
    pub(crate) fn failed(&mut self, now: Timestamp) {
        self.renewing = false;
        // Doubling from a fiftieth of the lease leaves room for several tries before the deadline,
        // for the shortest lease as for the longest.
        let pause = (self.lease / 50) * 2u32.pow(self.failures.min(3));
        self.failures += 1;
        self.renew_at = now + pause;
    }

    /// The store that confirmed it may be another one now, or have lost it: it is asked at once.
    pub(crate) fn doubt(&mut self, now: Timestamp) {
        // What is under way, or failed already, is tried again in its own time: a store that comes and
        // goes must not be asked without a pause.
        if !self.renewing && self.failures == 0 {
            self.renew_at = self.renew_at.min(now);
        }
    }

    /// What to do at `now`.
    pub(crate) fn step(&mut self, now: Timestamp) -> Step {
        if now >= self.limit {
            Step::End(End::Limit)
        } else if now >= self.deadline() {
            Step::End(End::Expired)
        } else if self.renewing || now < self.renew_at {
            Step::Wait(self.next_look())
        } else {
            self.renewing = true;
            Step::Renew(self.lease.min(self.last_end.since(now)))
        }
    }

    /// When there is something to do next; long past if there is something now.
    pub(crate) fn next_look(&self) -> Timestamp {
        let next = if self.renewing { self.deadline() } else { self.renew_at };
        next.min(self.deadline()).min(self.limit)
    }

    pub(crate) fn granted(&self) -> Granted {
        self.granted
    }

    pub(crate) fn deadline(&self) -> Timestamp {
        self.granted.deadline()
    }

    pub(crate) fn limit(&self) -> Timestamp {
        self.limit
    }
}

/// Our clock's conservative view of validity: the store's TTL began after `sent_at`, and its clock
/// may run a little faster than ours.
pub(crate) fn local_deadline(sent_at: Timestamp, lease: Duration) -> Timestamp {
    let lease = nanos(lease);
    Timestamp::from_nanos(sent_at.as_nanos().saturating_add(lease.saturating_sub(drift(lease))))
}

/// How far two clocks may drift apart during a lease. The figures are Redlock's: 1 % for the clocks,
/// 2 ms for the store's granularity.
/// Every call asks several times: so in nanoseconds, with which machines count faster.
fn drift(lease: u64) -> u64 {
    lease / 100 + 2_000_000
}

const RENEWALS_PER_LEASE: u64 = 3;

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(10);

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_nanos(millis * 1_000_000)
    }

    fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn hold_from(now: Timestamp, max_hold: Option<Duration>) -> Hold {
        Hold::new(Granted::new(now, LEASE), now, max_hold)
    }

    #[test]
    fn renews_a_third_into_the_lease() {
        let mut hold = hold_from(at(0), None);

        let Step::Wait(next) = hold.step(at(0)) else { panic!("nothing is due yet") };
        assert_eq!(next.since(at(0)), LEASE / 3);
        assert_eq!(hold.step(next), Step::Renew(LEASE));
    }

    #[test]
    fn store_in_doubt_is_asked_at_once_but_only_once() {
        let mut hold = hold_from(at(0), None);
        hold.doubt(at(100));
        assert_eq!(hold.step(at(100)), Step::Renew(LEASE));

        hold.doubt(at(110));
        hold.failed(at(120));
        hold.doubt(at(121));

        assert!(matches!(hold.step(at(121)), Step::Wait(next) if next > at(200)));
    }

    #[test]
    fn deadline_counts_from_the_send_not_the_reply() {
        let mut hold = hold_from(at(0), None);
        assert_eq!(hold.step(at(4_000)), Step::Renew(LEASE));

        hold.renewed(at(4_000), LEASE);

        assert_eq!(hold.deadline(), at(4_000 + 10_000 - 100 - 2));
    }

    #[test]
    fn late_confirmation_never_shortens_validity() {
        let mut hold = hold_from(at(5_000), None);

        hold.renewed(at(1_000), LEASE);

        assert_eq!(hold.deadline(), local_deadline(at(5_000), LEASE));
    }

    #[test]
    fn failed_renewals_are_tried_again_until_the_deadline_and_then_it_is_over() {
        let mut hold = hold_from(at(0), None);
        let mut now = at(0);
        let mut tries = 0;
        let end = loop {
            match hold.step(now) {
                Step::Wait(next) => now = next,
                Step::Renew(_) => {
                    tries += 1;
                    now = now + millis(1);
                    hold.failed(now);
                }
                Step::End(end) => break end,
            }
        };

        assert_eq!(end, End::Expired);
        assert_eq!(now, local_deadline(at(0), LEASE));
        assert!((4..=12).contains(&tries), "{tries} tries");
    }

    #[test]
    fn no_second_renewal_while_one_is_under_way() {
        let mut hold = hold_from(at(0), None);
        assert_eq!(hold.step(at(4_000)), Step::Renew(LEASE));

        assert_eq!(hold.step(at(5_000)), Step::Wait(hold.deadline()));
    }

    #[test]
    fn renewal_never_reaches_past_the_limit() {
        let limit = at(15_000);
        let mut hold = hold_from(at(0), Some(millis(15_000)));
        let mut now = at(0);
        let end = loop {
            match hold.step(now) {
                Step::Wait(next) => now = next,
                Step::Renew(lease) => {
                    assert!(now + lease <= limit, "renewed to {lease:?} past the limit");
                    hold.renewed(now, lease);
                }
                Step::End(end) => break end,
            }
        };

        assert_eq!(end, End::Limit);
        assert!(now <= limit && limit.since(now) < millis(200), "ended at {now:?}");
    }
}
