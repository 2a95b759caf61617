//! When things are due: a set ordered by time.

use std::collections::BTreeSet;

use crate::clock::Timestamp;

/// Which of many things is due next. Each thing keeps its own [`Timestamp`] in step with this.
#[derive(Clone, Debug, Hash)]
pub(crate) struct Schedule<K> {
    entries: BTreeSet<(Timestamp, K)>,
}

impl<K: Ord> Schedule<K> {
    pub(crate) const fn new() -> Self {
        Self { entries: BTreeSet::new() }
    }

    /// Moves `key` from `slot`, where it stands, to `at`. What is never due is not kept.
    pub(crate) fn set(&mut self, slot: &mut Timestamp, key: K, at: Timestamp) {
        if *slot == at {
            return;
        }
        let mut entry = (*slot, key);
        if *slot != Timestamp::NEVER {
            self.entries.remove(&entry);
        }
        *slot = at;
        if at != Timestamp::NEVER {
            entry.0 = at;
            self.entries.insert(entry);
        }
    }

    /// Takes one that is due at `now` out; its owner must mark its slot as [`Timestamp::NEVER`].
    pub(crate) fn pop(&mut self, now: Timestamp) -> Option<K> {
        if self.next() > now {
            return None;
        }
        self.entries.pop_first().map(|(_, key)| key)
    }

    pub(crate) fn next(&self) -> Timestamp {
        self.entries.first().map_or(Timestamp::NEVER, |(at, _)| *at)
    }
}
