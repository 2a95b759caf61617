//! Releases that the next master may not have heard of.
//!
//! A master that is replaced on an operator's order, or cut off, goes on answering for a second or more
//! after another one was promoted. What was released there in that time stands on the new master until
//! its lease ends, with nobody behind it. So what was released lately is released there again: an owner
//! is never used after its release, so that this can only end what is over.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::backend::Lock;
use crate::clock::{Clock, Timestamp};

/// The releases of the last seconds.
#[derive(Debug, Default)]
pub(super) struct Recall(Mutex<Recent>);

#[derive(Debug, Default)]
struct Recent {
    /// Oldest first.
    past: VecDeque<Past>,
    /// Of the latest master that a connection was opened to.
    newest: u64,
    /// How long who is granted a lock by a release has to confirm it: the same for all of a client.
    claim: Duration,
}

#[derive(Debug)]
struct Past {
    answered_at: Timestamp,
    /// Of the master that answered.
    epoch: u64,
    lock: Lock,
}

impl Recall {
    /// A release was confirmed by the master of `epoch`. False if that one was replaced by now, so
    /// that it proves nothing.
    pub(super) fn note(&self, epoch: u64, lock: Lock, claim: Duration) -> bool {
        let now = Clock::Boot.now();
        self.change(now, |recent| {
            if epoch < recent.newest {
                return false;
            }
            if recent.past.len() == MOST {
                recent.past.pop_front();
            }
            recent.past.push_back(Past { answered_at: now, epoch, lock });
            recent.claim = claim;
            true
        })
    }

    /// Takes what was confirmed by earlier masters than the one of `epoch`, which a connection was
    /// opened to.
    pub(super) fn before(&self, epoch: u64) -> (Vec<Lock>, Duration) {
        self.change(Clock::Boot.now(), |recent| {
            recent.newest = recent.newest.max(epoch);
            let is_earlier = |past: &Past| past.epoch < epoch;
            let (earlier, kept): (Vec<_>, _) = recent.past.drain(..).partition(is_earlier);
            recent.past = kept.into();
            (earlier.into_iter().map(|past| past.lock).collect(), recent.claim)
        })
    }

    /// What could not be released again, for the next connection.
    pub(super) fn put_back(&self, locks: &[Lock], claim: Duration) {
        let now = Clock::Boot.now();
        self.change(now, |recent| {
            let again = |lock: &Lock| Past { answered_at: now, epoch: 0, lock: lock.clone() };
            let room = MOST.saturating_sub(recent.past.len());
            recent.past.extend(locks.iter().take(room).map(again));
            recent.claim = claim;
        });
    }

    fn change<R>(&self, now: Timestamp, change: impl FnOnce(&mut Recent) -> R) -> R {
        // Any part of it is as good as the whole.
        let mut recent = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_old = |past: &&Past| now.since(past.answered_at) > KEPT_FOR;
        let old = recent.past.iter().take_while(is_old).count();
        recent.past.drain(..old);
        change(&mut recent)
    }
}

/// Longer than a promotion takes to be noticed.
const KEPT_FOR: Duration = Duration::from_secs(10);
/// For the busiest clients the last moments are what matters: the rest was replicated.
const MOST: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_earlier_master_confirmed_is_taken_once() {
        let recall = Recall::default();
        for (epoch, owner) in [(1, "a"), (2, "b"), (1, "c")] {
            assert!(recall.note(epoch, lock(owner), Duration::from_secs(1)));
        }
        let owners = |epoch| {
            let (before, claim) = recall.before(epoch);
            assert_eq!(claim, Duration::from_secs(1));
            before.iter().map(|lock| lock.owner.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(owners(1), [""; 0]);
        assert_eq!(owners(2), ["a", "c"]);
        assert_eq!(owners(2), [""; 0]);
        assert_eq!(owners(3), ["b"]);
        // What comes in late from there has to be released anew.
        assert!(!recall.note(2, lock("d"), Duration::from_secs(1)));
        assert_eq!(owners(3), [""; 0]);
    }

    #[test]
    fn memory_is_bounded() {
        let recall = Recall::default();
        for _ in 0..=MOST {
            recall.note(1, lock("a"), Duration::from_secs(1));
        }
        assert_eq!(recall.before(2).0.len(), MOST);
    }

    fn lock(owner: &str) -> Lock {
        Lock { key: "k".into(), owner: owner.into() }
    }
}
