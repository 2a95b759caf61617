//! What one round put to the nodes, and what may still stand there of it.
//!
//! Each round that takes a lock asks by a value of its own, `<owner>~<round>`. Invariants:
//!
//! 1. Once a delete of a value may have been sent, no request that could set it is begun: a ballot that
//!    is over begins nothing. So a delete that arrives late, on whatever connection, hits nothing that
//!    anybody counts on.
//! 2. A ballot that is over and may stand on a node is owed there: it is deleted until an answer proves
//!    that nothing is left and nothing can come, or its lease has passed.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::backend::Lock;
use crate::clock::Timestamp;

/// One value, put to all nodes.
#[derive(Debug)]
pub(super) struct Ballot {
    /// The lock as the nodes know it.
    pub(super) lock: Lock,
    state: Mutex<State>,
}

/// What is known of one value on each node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct State {
    over: bool,
    /// The longest lease that was asked for.
    lease: Duration,
    traces: Vec<Trace>,
}

/// What is known of one value on one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Trace {
    /// Requests that may set it and are not answered yet.
    under_way: u32,
    /// Until when one that was never answered may take effect.
    doubt_until: Timestamp,
    stands: bool,
}

impl State {
    pub(super) fn new(nodes: usize) -> Self {
        let nothing = Trace { under_way: 0, doubt_until: Timestamp::NOW, stands: false };
        Self { over: false, lease: Duration::ZERO, traces: vec![nothing; nodes] }
    }

    /// Whether a request for `lease` may be sent to `node` that sets the value there.
    #[must_use]
    pub(super) fn begin(&mut self, node: usize, lease: Duration) -> bool {
        if self.over {
            return false;
        }
        self.lease = self.lease.max(lease);
        self.traces[node].under_way += 1;
        true
    }

    /// The node answered such a request: the value stands there now, or not.
    pub(super) fn answered(&mut self, node: usize, stands: bool) {
        let trace = &mut self.traces[node];
        trace.under_way -= 1;
        trace.stands |= stands;
    }

    /// The node never will answer: the request may take effect for as long as its lease.
    pub(super) fn unanswered(&mut self, node: usize, now: Timestamp) {
        let until = now + self.lease;
        let trace = &mut self.traces[node];
        trace.under_way -= 1;
        trace.doubt_until = trace.doubt_until.max(until);
        // If it does so late, it stands longer than the doubt.
        trace.stands = true;
    }

    /// Nothing is set from now on, so that it may be deleted.
    pub(super) fn end(&mut self) {
        self.over = true;
    }

    pub(super) fn is_over(&self) -> bool {
        self.over
    }

    /// The node said that the value is not there, in answer to something that was sent at `now`.
    pub(super) fn found_gone(&mut self, node: usize, now: Timestamp) {
        let trace = &mut self.traces[node];
        let may_come = trace.under_way > 0 || trace.doubt_until > now;
        trace.stands &= may_come;
    }

    /// Whether a delete must reach `node` at or after `now`.
    pub(super) fn may_stand(&self, node: usize, now: Timestamp) -> bool {
        self.traces[node].stands || !self.is_certain(node, now)
    }

    /// Whether a delete sent to `node` at `now` finds whatever there will ever be.
    pub(super) fn is_certain(&self, node: usize, now: Timestamp) -> bool {
        let trace = self.traces[node];
        self.over && trace.under_way == 0 && trace.doubt_until <= now
    }

    /// Until when something that was sent to `node` may still take effect.
    pub(super) fn last_effect(&self, node: usize, now: Timestamp) -> Timestamp {
        let trace = self.traces[node];
        if trace.under_way > 0 { now + self.lease } else { trace.doubt_until }
    }

    /// Until when it may stand anywhere, if no more is sent.
    pub(super) fn until(&self, now: Timestamp) -> Timestamp {
        now + self.lease
    }
}

impl Ballot {
    fn new(lock: Lock, nodes: usize) -> Self {
        Self { lock, state: Mutex::new(State::new(nodes)) }
    }

    /// An owner's place in the queues, which is to go like a value that is over.
    pub(super) fn of_place(owner: &Lock, nodes: usize, keep: Duration) -> Arc<Self> {
        let mut state = State::new(nodes);
        state.over = true;
        state.lease = keep;
        state.traces.iter_mut().for_each(|trace| trace.stands = true);
        Arc::new(Self { lock: owner.clone(), state: Mutex::new(state) })
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        // Each change is whole when its function returns, and none of them calls out.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The ballot that stands for each owner.
#[derive(Debug)]
pub(super) struct Ballots {
    nodes: usize,
    owners: HashMap<Lock, Entry>,
    next_round: u64,
    /// How many more may come before those are looked for that were never released.
    until_sweep: usize,
}

#[derive(Debug)]
struct Entry {
    ballot: Option<Arc<Ballot>>,
    /// Rounds in a row that nobody won.
    splits: u32,
    /// How long its places last, if it took any.
    place: Option<Duration>,
    /// When nothing of it can stand any more, released or not.
    until: Timestamp,
}

impl Ballots {
    pub(super) fn new(nodes: usize) -> Self {
        Self { nodes, owners: HashMap::new(), next_round: 1, until_sweep: MIN_SWEEP }
    }

    /// The ballot to put to the nodes for `lock`: that of a round before, if it still may win.
    pub(super) fn begin(&mut self, lock: &Lock, until: Timestamp, now: Timestamp) -> Arc<Ballot> {
        self.make_room(now);
        let entry = self.owners.entry(lock.clone()).or_insert(Entry {
            ballot: None,
            splits: 0,
            place: None,
            until,
        });
        entry.until = entry.until.max(until);
        if let Some(ballot) = entry.ballot.as_ref().filter(|ballot| !ballot.state().over) {
            return Arc::clone(ballot);
        }
        let owner = format!("{}~{}", lock.owner, self.next_round).into();
        self.next_round += 1;
        let ballot = Arc::new(Ballot::new(Lock { key: Arc::clone(&lock.key), owner }, self.nodes));
        entry.ballot = Some(Arc::clone(&ballot));
        ballot
    }

    /// The ballot under which the owner has the lock, or may have it.
    pub(super) fn live(&self, lock: &Lock) -> Option<Arc<Ballot>> {
        let ballot = self.owners.get(lock)?.ballot.as_ref()?;
        (!ballot.state().over).then(|| Arc::clone(ballot))
    }

    /// The owner is renewed, and lasts until then at least.
    pub(super) fn keep(&mut self, lock: &Lock, until: Timestamp) {
        if let Some(entry) = self.owners.get_mut(lock) {
            entry.until = entry.until.max(until);
        }
    }

    /// A contender asks, and leaves places that last for `keep`.
    pub(super) fn queues(&mut self, lock: &Lock, keep: Duration, now: Timestamp) {
        if let Some(entry) = self.owners.get_mut(lock) {
            entry.place = Some(keep);
            entry.until = entry.until.max(now + keep);
        }
    }

    /// A contender's round was lost. With `split`, to nobody in particular: how many in a row.
    pub(super) fn lost(&mut self, lock: &Lock, split: bool) -> u32 {
        let Some(entry) = self.owners.get_mut(lock) else { return 0 };
        let before = entry.splits;
        entry.splits = if split { before.saturating_add(1) } else { 0 };
        before
    }

    /// The owner gives up what it has: its last ballot, which is over from now on, and its places.
    pub(super) fn end(&self, lock: &Lock) -> Option<(Arc<Ballot>, Option<Arc<Ballot>>)> {
        let entry = self.owners.get(lock)?;
        let ballot = Arc::clone(entry.ballot.as_ref()?);
        ballot.state().end();
        Some((ballot, entry.place.map(|keep| Ballot::of_place(lock, self.nodes, keep))))
    }

    /// Nothing will be asked for this owner any more, or it begins anew.
    pub(super) fn forget(&mut self, lock: &Lock) {
        self.owners.remove(lock);
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.owners.len()
    }

    fn make_room(&mut self, now: Timestamp) {
        if let Some(rest) = self.until_sweep.checked_sub(1) {
            self.until_sweep = rest;
            return;
        }
        self.owners.retain(|_, entry| entry.until > now);
        self.until_sweep = self.owners.len().max(MIN_SWEEP);
        self.owners.shrink_to(2 * self.until_sweep);
    }
}

const MIN_SWEEP: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(10);
    const T0: Timestamp = Timestamp::from_nanos(1);

    fn lock(owner: &str) -> Lock {
        Lock { key: "k".into(), owner: owner.into() }
    }

    #[test]
    fn a_round_after_a_delete_has_a_new_value() {
        let mut ballots = Ballots::new(3);
        let first = ballots.begin(&lock("a"), T0 + LEASE, T0);
        assert!(Arc::ptr_eq(&first, &ballots.begin(&lock("a"), T0 + LEASE, T0)));
        ballots.end(&lock("a"));

        let second = ballots.begin(&lock("a"), T0 + LEASE, T0);

        assert_ne!(first.lock.owner, second.lock.owner);
        assert!(!first.state().begin(0, LEASE) && second.state().begin(0, LEASE));
    }

    #[test]
    fn owners_that_were_never_released_are_forgotten_after_their_lease() {
        let mut ballots = Ballots::new(3);
        for number in 0..10 * MIN_SWEEP {
            let now = T0 + LEASE * u32::try_from(number).unwrap();
            ballots.begin(&lock(&number.to_string()), now + LEASE, now);
        }
        assert!(ballots.len() <= MIN_SWEEP + 2, "{}", ballots.len());
    }

    /// Everything that can happen between a client and one node on two connections, in every order:
    /// sets that arrive late or never, answers that get lost, the end, deletes, time. At the end of
    /// each path, what the client believes to be settled must be so.
    #[test]
    fn nothing_stands_where_nothing_is_owed_in_every_order() {
        let mut seen = std::collections::HashSet::new();
        let mut open = vec![Path::default()];
        while let Some(path) = open.pop() {
            if !seen.insert(path.clone()) {
                continue;
            }
            path.check();
            open.extend(path.next());
        }
        assert!(seen.len() > 1_000, "only {} states", seen.len());
    }

    #[derive(Clone, Debug, PartialEq, Eq, Hash)]
    struct Path {
        state: State,
        clock: u64,
        /// Sets on their way to the node, with when they were given up; and answered ones.
        sets: Vec<Set>,
        begun: u32,
        /// When each delete was sent that may still arrive, and whether it was certain then.
        deletes: Vec<(u64, bool)>,
        sent_deletes: u32,
        /// Until when the value stands on the node.
        stands_until: u64,
        settled: bool,
    }

    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    enum Set {
        /// On its way; given up at this time, if it was.
        OnItsWay(Option<u64>),
        /// Has taken effect, or found the key taken, and the answer is on its way.
        Answering(bool),
    }

    const TTL: u64 = 2;

    impl Default for Path {
        fn default() -> Self {
            Self {
                state: State::new(1),
                clock: 1,
                sets: Vec::new(),
                begun: 0,
                deletes: Vec::new(),
                sent_deletes: 0,
                stands_until: 0,
                settled: false,
            }
        }
    }

    impl Path {
        fn now(&self) -> Timestamp {
            Timestamp::from_nanos(self.clock)
        }

        fn with(&self, change: impl FnOnce(&mut Self)) -> Self {
            let mut next = self.clone();
            change(&mut next);
            next
        }

        fn next(&self) -> Vec<Self> {
            let mut next = Vec::new();
            if self.begun < 2 {
                next.push(self.with(|path| {
                    path.begun += 1;
                    if path.state.begin(0, Duration::from_nanos(TTL)) {
                        path.sets.push(Set::OnItsWay(None));
                    }
                }));
            }
            for (index, set) in self.sets.iter().copied().enumerate() {
                match set {
                    Set::OnItsWay(given_up) => {
                        // It arrives. One that was given up does so within its lease, or never.
                        if given_up.is_none_or(|at| self.clock < at + TTL) {
                            next.push(self.with(|path| {
                                let free = path.stands_until <= path.clock;
                                path.stands_until =
                                    if free { path.clock + TTL } else { path.stands_until };
                                match given_up {
                                    None => path.sets[index] = Set::Answering(true),
                                    Some(_) => {
                                        path.sets.remove(index);
                                    }
                                }
                            }));
                        }
                        if given_up.is_none() {
                            next.push(self.with(|path| {
                                path.state.unanswered(0, path.now());
                                path.sets[index] = Set::OnItsWay(Some(path.clock));
                            }));
                        } else {
                            next.push(self.with(|path| {
                                path.sets.remove(index);
                            }));
                        }
                    }
                    Set::Answering(stands) => {
                        next.push(self.with(|path| {
                            path.state.answered(0, stands);
                            path.sets.remove(index);
                        }));
                        next.push(self.with(|path| {
                            path.state.unanswered(0, path.now());
                            path.sets.remove(index);
                        }));
                    }
                }
            }
            if !self.state.over {
                next.push(self.with(|path| path.state.end()));
            } else if self.sent_deletes < 2 && !self.settled {
                next.push(self.with(|path| {
                    path.sent_deletes += 1;
                    let certain = path.state.is_certain(0, path.now());
                    path.deletes.push((path.clock, certain));
                    if !path.state.may_stand(0, path.now()) {
                        path.settled = true;
                    }
                }));
            }
            for (index, (sent, certain)) in self.deletes.iter().copied().enumerate() {
                // It takes effect, and its answer arrives or not.
                for answered in [true, false] {
                    next.push(self.with(|path| {
                        path.deletes.remove(index);
                        path.stands_until = 0;
                        if answered && certain {
                            path.state.found_gone(0, Timestamp::from_nanos(sent));
                            path.settled = true;
                        }
                    }));
                }
            }
            if self.clock < 6 {
                next.push(self.with(|path| path.clock += 1));
            }
            next
        }

        fn check(&self) {
            if self.settled {
                assert!(self.stands_until <= self.clock, "stands though settled: {self:?}");
                let can_come = self.sets.iter().any(|set| {
                    matches!(set, Set::OnItsWay(None))
                        || matches!(set, Set::OnItsWay(Some(at)) if self.clock < at + TTL)
                });
                assert!(!can_come, "may stand again though settled: {self:?}");
            }
        }
    }
}
