//! Two processes and a store, and when the next thing is due.

use std::hash::{DefaultHasher, Hash, Hasher};

use super::Explored;
use super::bounds::{Bounds, Budget, LATE, PROMPT, SERVED_BY};
use super::caller::{Attention, Caller};
use super::process::{Life, Process};
use super::store::Store;
use crate::clock::Timestamp;

#[derive(Clone, Debug, Hash)]
#[expect(clippy::derived_hash_with_manual_eq, reason = "what hashes alike is taken as equal")]
pub(super) struct World {
    pub(super) now: Timestamp,
    pub(super) store: Store,
    pub(super) processes: [Process; 2],
    pub(super) left: Budget,
    /// Whether a lock ended by its TTL.
    pub(super) lapsed: bool,
    /// Whether time went on while callers waited and nobody held the lock.
    pub(super) idled: bool,
}

impl World {
    pub(super) fn new(bounds: &Bounds) -> Self {
        Self {
            now: Timestamp::NOW,
            store: Store::new(),
            processes: [0, 1].map(|index| Process::new(index, bounds)),
            left: bounds.budget,
            lapsed: false,
            idled: false,
        }
    }

    /// Whether nothing will happen any more, save that what is left in the store lapses.
    pub(super) fn is_at_rest(&self) -> bool {
        let is_at_rest = |process: &Process| match process.life {
            Life::Dead => process.line.is_idle(),
            Life::Frozen(_) => false,
            Life::Running => {
                let holds = process.holdings().next().is_some();
                process.line.is_idle() && process.next_due() == Timestamp::NEVER && !holds
            }
        };
        !self.is_urgent() && self.processes.iter().all(is_at_rest)
    }

    pub(super) fn had_faults(&self, Explored(bounds): &Explored) -> bool {
        self.left.faults < bounds.budget.faults
    }

    pub(super) fn had_stalls(&self, Explored(bounds): &Explored) -> bool {
        self.left.stalls < bounds.budget.stalls
    }

    /// Whether something must happen before time goes on.
    pub(super) fn is_urgent(&self) -> bool {
        self.processes.iter().any(|process| {
            let busy = process.callers.iter().any(|caller| match caller {
                Caller::Holding(holding) => {
                    !holding.is_valid(self.now) || holding.body_ends_by <= self.now
                }
                Caller::Waiting { attention, .. } => *attention == Attention::Woken,
                _ => false,
            });
            let runs = process.is_running();
            process.line.is_urgent(runs)
                || process.line.delays(runs).any(|until| until <= self.now)
                || runs && (busy || process.next_due() <= self.now)
                || matches!(process.life, Life::Frozen(until) if until <= self.now)
        })
    }

    /// When the next thing is due.
    fn next_due(&self) -> Timestamp {
        let mut next = SERVED_BY + LATE;
        if let Some((_, expires)) = &self.store.holder {
            next = next.min(*expires);
        }
        for process in &self.processes {
            next = process.line.delays(process.is_running()).fold(next, Ord::min);
            match process.life {
                Life::Dead => {}
                Life::Frozen(until) => next = next.min(until),
                Life::Running => {
                    next = next.min(process.next_due());
                    for holding in process.holdings() {
                        next = next.min(holding.body_ends_by).min(holding.hold.deadline());
                    }
                }
            }
        }
        next
    }

    /// Time goes on to the next thing that is due.
    pub(super) fn go_on(&mut self) {
        let next = self.next_due();
        let held = self.processes.iter().any(|process| process.holdings().next().is_some());
        self.idled |= self.has_hope() && !held && next.since(self.now) > PROMPT;
        self.now = next;
        self.lapsed |= self.store.go_on(self.now);
        self.processes.iter_mut().for_each(|process| process.set_now(self.now));
    }
}

// The checker too tells states apart by their hashes alone.
impl PartialEq for World {
    fn eq(&self, other: &Self) -> bool {
        let hash = |world: &Self| {
            let mut hasher = DefaultHasher::new();
            world.hash(&mut hasher);
            hasher.finish()
        };
        hash(self) == hash(other)
    }
}
