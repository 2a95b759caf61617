//! What is owed to one node: deletes of ballots that are over and may stand there.
//!
//! Bounded by what was sent to the node within one lease and not answered.

use std::sync::Arc;
use std::time::Duration;

use super::ballot::Ballot;
use crate::backoff::{self, Chance};
use crate::clock::Timestamp;

#[derive(Debug, Default)]
pub(super) struct Debts {
    owed: Vec<Debt>,
    /// Whether somebody works on them.
    pub(super) collected: bool,
}

/// A delete that is owed.
#[derive(Debug)]
pub(super) struct Debt {
    pub(super) ballot: Arc<Ballot>,
    /// When the value has expired, if what was sent took effect at all.
    until: Timestamp,
    due: Timestamp,
    failures: u32,
    /// How the delete that is under way was sent.
    sent_at: Timestamp,
    certain: bool,
}

impl Debts {
    /// Takes over the delete of a ballot that is over.
    pub(super) fn add(&mut self, ballot: Arc<Ballot>, now: Timestamp) {
        if self.owed.iter().any(|debt| Arc::ptr_eq(&debt.ballot, &ballot)) {
            return;
        }
        let until = ballot.state().until(now);
        let debt = Debt { ballot, until, due: now, failures: 0, sent_at: now, certain: false };
        self.owed.push(debt);
    }

    /// Some of what is due at `now`, to be sent now.
    pub(super) fn take_due(&mut self, node: usize, now: Timestamp) -> Vec<Debt> {
        let (due, later) = std::mem::take(&mut self.owed)
            .into_iter()
            .partition::<Vec<_>, _>(|debt| debt.due <= now);
        self.owed = later;
        let mut due = due;
        if due.len() > LARGEST_BATCH {
            self.owed.extend(due.drain(LARGEST_BATCH..));
        }
        for debt in &mut due {
            debt.sent_at = now;
            debt.certain = debt.ballot.state().is_certain(node, now);
        }
        due
    }

    /// Puts back what was taken and is not settled.
    pub(super) fn put_back(&mut self, debt: Debt) {
        self.owed.push(debt);
    }

    pub(super) fn next_due(&self) -> Option<Timestamp> {
        self.owed.iter().map(|debt| debt.due).min()
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.owed.len()
    }
}

impl Debt {
    /// The node answered the delete, or did not. Whether the debt is settled.
    pub(super) fn answered(
        &mut self,
        node: usize,
        answered: bool,
        now: Timestamp,
        chance: Chance,
    ) -> bool {
        if answered && self.certain {
            self.ballot.state().found_gone(node, self.sent_at);
            return true;
        }
        // A request that was under way may have come to nothing only now.
        self.until = self.until.max(self.ballot.state().last_effect(node, now));
        if self.sent_at >= self.until {
            return true;
        }
        let pause = backoff::pause(self.failures, FIRST_PAUSE, LONGEST_PAUSE, chance);
        self.failures = self.failures.saturating_add(1);
        // The last one is sent when everything has run out: nothing that came before is overlooked.
        self.due = (now + pause).min(self.until.max(now));
        false
    }
}

const LARGEST_BATCH: usize = 64;
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::super::ballot::Ballots;
    use super::*;
    use crate::backend::Lock;

    const LEASE: Duration = Duration::from_secs(10);
    const T0: Timestamp = Timestamp::from_nanos(1);

    fn owed(answer: impl FnOnce(&Ballot)) -> Debts {
        let lock = Lock { key: "k".into(), owner: "a".into() };
        let mut ballots = Ballots::new(1);
        let ballot = ballots.begin(&lock, T0 + LEASE, T0);
        assert!(ballot.state().begin(0, LEASE));
        answer(&ballot);
        ballots.end(&lock);
        let mut debts = Debts::default();
        debts.add(ballot, T0);
        debts
    }

    /// How often a node that always answers is asked, and for how long.
    fn collect(mut debts: Debts) -> (u32, Duration) {
        let (mut now, mut sent) = (T0, 0);
        while let Some(due) = debts.next_due() {
            now = now.max(due);
            for mut debt in debts.take_due(0, now) {
                sent += 1;
                if !debt.answered(0, true, now, Chance::fixed(0.0)) {
                    debts.put_back(debt);
                }
            }
        }
        (sent, now.since(T0))
    }

    #[test]
    fn one_answer_settles_what_was_answered_before() {
        let debts = owed(|ballot| ballot.state().answered(0, true));
        assert_eq!(collect(debts), (1, Duration::ZERO));
    }

    #[test]
    fn what_was_never_answered_is_looked_for_until_its_lease_is_over() {
        let debts = owed(|ballot| ballot.state().unanswered(0, T0));
        let (sent, took) = collect(debts);
        assert_eq!(took, LEASE);
        assert!((5..30).contains(&sent), "{sent}");
    }

    #[test]
    fn a_node_that_never_answers_is_given_up_after_the_lease() {
        let mut debts = owed(|ballot| ballot.state().answered(0, true));
        let mut now = T0;
        while let Some(due) = debts.next_due() {
            now = now.max(due);
            for mut debt in debts.take_due(0, now) {
                if !debt.answered(0, false, now, Chance::fixed(0.0)) {
                    debts.put_back(debt);
                }
            }
        }
        assert_eq!((now, debts.len()), (T0 + LEASE, 0));
    }
}
