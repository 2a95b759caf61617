//! Judges what the bodies reported: how many were at work at once, and whether that may be.
//!
//! Bodies overlap when one of them shows by a report that it is at work after another one began. A
//! report shows that only if its process was not frozen during the poll that sent it: what runs
//! inside of one poll cannot be stopped, by no lock, so such reports are counted apart, and there the
//! fenced store must refuse what is written.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use crate::clock::{Moment, between, nanos};
use crate::fault::Kind;
use crate::plan::LEASE;
use crate::report::{Call, Outcome, Poll, Report, What};

/// Everything that was seen so far.
#[derive(Debug, Default)]
pub(crate) struct Judge {
    /// When the drill began.
    origin: Moment,
    keys: HashMap<u32, Key>,
    calls: HashMap<Call, Asked>,
    freezes: HashMap<u32, Vec<Stretch>>,
    faults: Vec<(Kind, Stretch)>,
    losses: Vec<Loss>,
    period: Option<Kind>,
    completed_by_process: HashMap<u32, Moment>,
    pub(crate) tallies: BTreeMap<Option<Kind>, Tally>,
    pub(crate) outcomes: BTreeMap<Outcome, u64>,
    /// Ticks that count as frozen since the machine itself held their thread up.
    pub(crate) held_up: u64,
    /// What must not have happened.
    pub(crate) findings: Vec<String>,
}

/// What happened in the periods of one kind of fault, or in those without a fault.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) faults: u64,
    pub(crate) sections: u64,
    /// Calls that learnt that their lock was lost.
    pub(crate) losses: u64,
    /// The highest number of bodies at work at once on one key.
    pub(crate) at_once: usize,
    /// How long an overlap went on at most.
    pub(crate) overlap: Duration,
    /// Ticks beside another body from inside of a poll in which the process was frozen.
    pub(crate) frozen_ticks: u64,
    pub(crate) accepted: u64,
    /// Writes with a stale token.
    pub(crate) refused: u64,
    pub(crate) recoveries: Vec<Duration>,
}

/// A stretch of time; the end is open until it is known.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    from: Moment,
    to: Moment,
}

/// The store lost locks.
#[derive(Clone, Copy, Debug)]
struct Loss {
    kind: Kind,
    /// Which; `None` for all.
    key: Option<u32>,
    when: Stretch,
}

#[derive(Debug, Default)]
struct Key {
    /// Those inside, and those that have left a short while ago.
    bodies: Vec<Body>,
    /// When the hold of an owner began at the earliest.
    holds: HashMap<String, Moment>,
    /// The highest token that was drawn.
    drawn: u64,
    /// The highest token that the fenced store has seen.
    written: u64,
    completed: Moment,
}

#[derive(Clone, Copy, Debug)]
struct Asked {
    at: Moment,
    /// The highest token that had been drawn by then.
    drawn: u64,
}

#[derive(Clone, Debug)]
struct Body {
    call: Call,
    asked: Asked,
    entered: Moment,
    hold_since: Moment,
    /// From when on it was at work for certain: the first report outside of a frozen poll.
    present: Option<Moment>,
    seen: Moment,
    left: Option<Moment>,
    has_written: bool,
}

impl Judge {
    pub(crate) fn new(origin: Moment) -> Self {
        Self { origin, ..Self::default() }
    }

    /// Takes a report in.
    pub(crate) fn hear(&mut self, report: Report) {
        let Report { call, key: number, at, poll, what } = report;
        let key = self.keys.entry(number).or_default();
        match what {
            What::Began => {
                self.calls.insert(call, Asked { at, drawn: key.drawn });
            }
            What::Entered(owner) => {
                let asked = self.calls.get(&call).copied().unwrap_or(Asked { at, drawn: 0 });
                key.forget(at);
                let hold_since = *key.holds.entry(owner).or_insert(asked.at);
                key.bodies.push(Body {
                    call,
                    asked,
                    entered: at,
                    hold_since,
                    present: None,
                    seen: at,
                    left: None,
                    has_written: false,
                });
                self.at_work(number, call, at, poll);
            }
            What::Drew(token) => {
                let floor = key.body(call).map_or(0, |body| body.asked.drawn);
                key.drawn = key.drawn.max(token);
                if token <= floor {
                    self.find(
                        at,
                        &format!(
                            "call {call} on key {number} drew token {token} after {floor} was drawn"
                        ),
                    );
                }
            }
            What::Ticked => self.at_work(number, call, at, poll),
            What::Wrote(token) => {
                self.at_work(number, call, at, poll);
                self.write(number, call, at, token);
            }
            What::Returned => {
                self.at_work(number, call, at, poll);
                self.leave(number, call, at);
                self.tally().sections += 1;
            }
            What::Dropped => {
                if let Some(body) = key.body(call) {
                    body.left = Some(at);
                }
            }
            What::Ended(outcome) => self.end(number, call, at, outcome),
            What::Hangs => self.find(at, &format!("call {call} on key {number} hangs")),
        }
    }

    /// A process has gone with everything in it.
    pub(crate) fn gone(&mut self, process: u32, start: u32, at: Moment) {
        let of_process = |call: &Call| call.process == process && call.start == start;
        self.calls.retain(|call, _| !of_process(call));
        for key in self.keys.values_mut() {
            for body in key.bodies.iter_mut().filter(|body| of_process(&body.call)) {
                body.left.get_or_insert(at);
            }
        }
    }

    /// A process is about to be frozen.
    pub(crate) fn freeze(&mut self, process: u32, at: Moment) {
        self.freezes.entry(process).or_default().push(Stretch { from: at, to: Moment::MAX });
    }

    /// A process is about to run on, or has gone.
    pub(crate) fn thaw(&mut self, process: u32, at: Moment) {
        if let Some(last) = self.freezes.get_mut(&process).and_then(|all| all.last_mut()) {
            last.to = last.to.min(at);
        }
    }

    pub(crate) fn fault_begins(&mut self, kind: Kind, at: Moment) {
        self.faults.push((kind, Stretch { from: at, to: Moment::MAX }));
        self.period = Some(kind);
        self.tally().faults += 1;
    }

    /// Everything works again.
    pub(crate) fn all_recovered(&mut self, at: Moment) {
        for (_, when) in &mut self.faults {
            when.to = when.to.min(at);
        }
        self.period = None;
    }

    /// The store lost the locks of one key, or all, within this time.
    pub(crate) fn locks_lost(&mut self, kind: Kind, key: Option<u32>, from: Moment, to: Moment) {
        self.losses.push(Loss { kind, key, when: Stretch { from, to } });
    }

    /// Whether these processes, and callers of these keys, have done work that began after `since`.
    pub(crate) fn have_worked(
        &self,
        since: Moment,
        mut processes: impl Iterator<Item = u32>,
        mut keys: impl Iterator<Item = u32>,
    ) -> bool {
        processes
            .all(|process| self.completed_by_process.get(&process).is_some_and(|at| *at > since))
            && keys.all(|key| self.keys.get(&key).is_some_and(|key| key.completed > since))
    }

    pub(crate) fn tally(&mut self) -> &mut Tally {
        self.tallies.entry(self.period).or_default()
    }

    pub(crate) fn tally_of(&mut self, kind: Kind) -> &mut Tally {
        self.tallies.entry(Some(kind)).or_default()
    }

    /// Notes what must not happen.
    pub(crate) fn find(&mut self, at: Moment, what: &str) {
        let period = self.period.map_or("no fault", Kind::word);
        let seconds = between(self.origin, at).as_secs_f64();
        self.findings.push(format!("{seconds:.1} s, {period}: {what}"));
    }

    /// How many bodies are inside, on all keys.
    pub(crate) fn inside(&self) -> usize {
        let bodies = self.keys.values().flat_map(|key| &key.bodies);
        bodies.filter(|body| body.left.is_none()).count()
    }

    /// The body showed that it is at work.
    fn at_work(&mut self, number: u32, call: Call, at: Moment, poll: Poll) {
        let freezes = self.freezes.get(&call.process).map_or(&[][..], |all| all);
        let stopped = freezes.iter().any(|freeze| poll.begun < freeze.to && freeze.from < at);
        let held_up = poll.stalled >= nanos(HELD_UP);
        let Some(key) = self.keys.get_mut(&number) else { return };
        key.forget(at);
        let Some(index) = key.bodies.iter().rposition(|body| body.call == call) else {
            return self
                .find(at, &format!("call {call} is at work on key {number} but not inside"));
        };
        if !poll.valid {
            self.find(
                at,
                &format!("call {call} on key {number}: a poll began after the local deadline"),
            );
        }
        if stopped || held_up {
            self.at_work_in_frozen_poll(number, index, at, stopped);
            return;
        }
        let Some(key) = self.keys.get_mut(&number) else { return };
        let body = &mut key.bodies[index];
        body.seen = body.seen.max(at);
        let first = body.present.is_none();
        let present = *body.present.get_or_insert(at);
        let body = body.clone();
        let others = key.bodies.iter().enumerate().filter(|(other, _)| *other != index);
        // Reports of different processes may arrive out of order by a little.
        let (after, before): (Vec<_>, Vec<_>) = others
            .filter_map(|(_, other)| Some((other.present?, other)))
            .filter(|(since, _)| *since < at)
            .map(|(since, other)| (since, other.clone()))
            .partition(|(since, _)| *since > present);
        let later: Vec<Body> = after.into_iter().map(|(_, other)| other).collect();
        if !later.is_empty() {
            self.overlap(number, &body, &later, at);
        }
        if first {
            for (_, earlier) in before.into_iter().filter(|(_, earlier)| earlier.seen > at) {
                let seen = earlier.seen;
                self.overlap(number, &earlier, std::slice::from_ref(&body), seen);
            }
        }
        let tally = self.tally();
        tally.at_once = tally.at_once.max(1);
        self.check_told(number, &body, at);
    }

    fn at_work_in_frozen_poll(&mut self, number: u32, index: usize, at: Moment, stopped: bool) {
        let Some(key) = self.keys.get(&number) else { return };
        let body = &key.bodies[index];
        let beside = key.bodies.iter().enumerate().any(|(other, its)| {
            let Some(since) = its.present.filter(|since| other != index && *since < at) else {
                return false;
            };
            let unseen = body.present.is_none() && its.left.is_none_or(|left| left > at);
            since > body.entered || unseen
        });
        if beside {
            self.tally().frozen_ticks += 1;
            self.held_up += u64::from(!stopped);
        }
    }

    /// `body` was at work at `at`, after the `later` ones began.
    fn overlap(&mut self, number: u32, body: &Body, later: &[Body], at: Moment) {
        let at_once = 1 + most_at_once(later);
        let last = later.iter().filter_map(|other| other.present).max().unwrap_or(at);
        let allowed = later.iter().map(|other| self.loss_between(number, body, other, at));
        let kind = match allowed.collect::<Option<Vec<_>>>() {
            Some(losses) => losses.last().map(|loss| loss.kind),
            None => {
                let others: Vec<_> = later.iter().map(|other| other.call.to_string()).collect();
                self.find(at, &format!(
                    "{at_once} bodies at once on key {number}: call {} worked {:?} after {} began",
                    body.call,
                    between(last, at),
                    others.join(", ")
                ));
                self.period
            }
        };
        let tally = self.tallies.entry(kind).or_default();
        tally.at_once = tally.at_once.max(at_once);
        tally.overlap = tally.overlap.max(between(last, at));
    }

    /// The loss by the store that explains why two bodies were at work at `at`.
    fn loss_between(&self, number: u32, one: &Body, other: &Body, at: Moment) -> Option<Loss> {
        let began = one.present.max(other.present)?;
        let found = self.losses.iter().rev().find(|loss| {
            let of_key = loss.key.is_none_or(|key| key == number);
            let held = |body: &Body| body.hold_since <= loss.when.to;
            of_key
                && loss.when.from <= began
                && (held(one) || held(other))
                && at <= loss.when.to + nanos(LEASE)
        });
        found.copied()
    }

    /// A holder whose lock the store has lost learns of it at its next renewal; if other faults keep
    /// the renewal from the store, by its deadline.
    fn check_told(&mut self, number: u32, body: &Body, at: Moment) {
        let late = self.losses.iter().rev().find(|loss| {
            let held = body.present.is_some_and(|present| present < loss.when.from);
            let of_key = loss.key.is_none_or(|key| key == number);
            let alone = !self.faults.iter().any(|(kind, when)| {
                *kind != loss.kind && when.from < at && loss.when.from < when.to
            });
            let alone = alone && loss.kind != Kind::RestartEmpty;
            let limit = if alone { LEASE / 3 + SLACK } else { LEASE };
            held && of_key && at > loss.when.to + nanos(limit)
        });
        if let Some(loss) = late.copied() {
            self.find(
                at,
                &format!(
                    "call {} on key {number} works on {:?} after {} took its lock",
                    body.call,
                    between(loss.when.to, at),
                    loss.kind.word()
                ),
            );
        }
    }

    /// The fenced store: takes a write unless it has seen a higher token.
    fn write(&mut self, number: u32, call: Call, at: Moment, token: u64) {
        let Some(key) = self.keys.get_mut(&number) else { return };
        if token < key.written {
            self.tally().refused += 1;
            return;
        }
        key.written = token;
        let Some(body) = key.body(call) else { return };
        body.has_written = true;
        let entered = body.entered;
        let newer = key.bodies.iter().find(|other| other.has_written && other.asked.at > entered);
        if let Some(newer) = newer {
            let text = format!(
                "the fenced store of key {number} took a write of {call}, which is stale since {}",
                newer.call
            );
            self.find(at, &text);
        }
        self.tally().accepted += 1;
    }

    fn leave(&mut self, number: u32, call: Call, at: Moment) {
        let Some(key) = self.keys.get_mut(&number) else { return };
        let Some(body) = key.body(call) else { return };
        body.left = Some(at);
        let entered = body.entered;
        key.completed = key.completed.max(entered);
        let completed = self.completed_by_process.entry(call.process).or_default();
        *completed = (*completed).max(entered);
    }

    fn end(&mut self, number: u32, call: Call, at: Moment, outcome: Outcome) {
        self.calls.remove(&call);
        *self.outcomes.entry(outcome).or_default() += 1;
        let ran = self.keys.get_mut(&number).and_then(|key| key.body(call)).is_some();
        match outcome {
            Outcome::Lost => self.tally().losses += 1,
            Outcome::Busy | Outcome::Backend | Outcome::Foreign if ran => {
                self.find(at, &format!("call {call} ran its body and was then refused: {outcome}"));
            }
            Outcome::Late | Outcome::Unexpected => {
                self.find(at, &format!("call {call} on key {number} ended: {outcome}"));
            }
            Outcome::Done if !ran => {
                self.find(at, &format!("call {call} on key {number} is done without its body"));
            }
            Outcome::Busy
            | Outcome::Backend
            | Outcome::Done
            | Outcome::Foreign
            | Outcome::GaveUp => {}
        }
    }
}

impl Key {
    fn body(&mut self, call: Call) -> Option<&mut Body> {
        self.bodies.iter_mut().rev().find(|body| body.call == call)
    }

    /// Forgets who left long ago.
    fn forget(&mut self, at: Moment) {
        let memory = at.saturating_sub(nanos(MEMORY));
        self.bodies.retain(|body| body.left.is_none_or(|left| left > memory));
        if self.holds.len() > 10_000 {
            let oldest = self.bodies.iter().map(|body| body.hold_since).min().unwrap_or(memory);
            self.holds.retain(|_, since| *since >= oldest.min(memory));
        }
    }
}

fn most_at_once(bodies: &[Body]) -> usize {
    let inside = |at: Moment| {
        bodies.iter().filter(move |body| {
            body.present.is_some_and(|since| since <= at) && body.left.is_none_or(|left| left > at)
        })
    };
    let begins = bodies.iter().filter_map(|body| body.present);
    begins.map(|at| inside(at).count()).max().unwrap_or(0).max(1)
}

/// A thread that was held up for longer than this inside of a poll counts as frozen. Between the
/// local deadline and the end of the lease in the store lie 17 ms.
const HELD_UP: Duration = Duration::from_millis(5);
/// How long after they left bodies may still be heard of.
const MEMORY: Duration = Duration::from_secs(5);
/// What a renewal may take on a busy machine.
const SLACK: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use super::*;

    const MILLISECOND: u64 = 1_000_000;
    const A: Call = Call { process: 0, start: 0, number: 1 };
    const B: Call = Call { process: 1, start: 0, number: 1 };

    fn tell(judge: &mut Judge, call: Call, milliseconds: u64, what: What) {
        tell_from(judge, call, milliseconds, milliseconds, what);
    }

    /// From a poll that began at `begun`.
    fn tell_from(judge: &mut Judge, call: Call, begun: u64, milliseconds: u64, what: What) {
        let poll = Poll { begun: begun * MILLISECOND, stalled: 0, valid: true };
        judge.hear(Report { call, key: 0, at: milliseconds * MILLISECOND, poll, what });
    }

    fn enter(judge: &mut Judge, call: Call, milliseconds: u64) {
        tell(judge, call, milliseconds, What::Began);
        tell(judge, call, milliseconds, What::Entered(call.to_string()));
    }

    fn most(judge: &Judge) -> usize {
        judge.tallies.values().map(|tally| tally.at_once).max().unwrap_or(0)
    }

    #[test]
    fn bodies_one_after_the_other_are_one_at_once() {
        let mut judge = Judge::default();
        enter(&mut judge, A, 1);
        tell(&mut judge, A, 2, What::Returned);
        enter(&mut judge, B, 3);
        tell(&mut judge, B, 4, What::Returned);

        assert_eq!((most(&judge), &judge.findings[..]), (1, &[][..]));
    }

    #[test]
    fn tick_after_another_began_is_found() {
        let mut judge = Judge::default();
        enter(&mut judge, A, 1);
        enter(&mut judge, B, 2);
        tell(&mut judge, A, 3, What::Ticked);

        assert_eq!((most(&judge), judge.findings.len()), (2, 1));
    }

    #[test]
    fn reports_out_of_order_are_found_all_the_same() {
        let mut judge = Judge::default();
        enter(&mut judge, A, 1);
        tell(&mut judge, A, 5, What::Ticked);
        enter(&mut judge, B, 3);

        assert_eq!((most(&judge), judge.findings.len()), (2, 1));
    }

    #[test]
    fn body_that_is_dropped_after_a_freeze_was_not_at_work() {
        let mut judge = Judge::default();
        enter(&mut judge, A, 1);
        judge.freeze(A.process, 2 * MILLISECOND);
        enter(&mut judge, B, 2000);
        judge.thaw(A.process, 3000 * MILLISECOND);
        tell(&mut judge, A, 3001, What::Dropped);
        tell(&mut judge, B, 3002, What::Ticked);

        assert_eq!((most(&judge), &judge.findings[..]), (1, &[][..]));
    }

    #[test]
    fn ticks_from_a_frozen_poll_are_counted_apart_and_later_ones_found() {
        let mut judge = Judge::default();
        enter(&mut judge, A, 1);
        judge.freeze(A.process, 3 * MILLISECOND);
        enter(&mut judge, B, 2000);
        judge.thaw(A.process, 3000 * MILLISECOND);
        tell_from(&mut judge, A, 2, 3001, What::Ticked);
        assert_eq!((most(&judge), judge.findings.len()), (1, 0));
        assert_eq!(judge.tally().frozen_ticks, 1);

        tell(&mut judge, A, 3002, What::Ticked);

        assert_eq!((most(&judge), judge.findings.len()), (2, 1));
    }

    #[test]
    fn overlap_after_the_store_lost_the_lock_is_measured_and_bounded() {
        let mut judge = Judge::default();
        enter(&mut judge, A, 1);
        judge.locks_lost(Kind::Delete, Some(0), 2 * MILLISECOND, 3 * MILLISECOND);
        enter(&mut judge, B, 4);
        tell(&mut judge, A, 100, What::Ticked);
        assert_eq!(judge.findings, &[] as &[String]);
        assert_eq!(judge.tally_of(Kind::Delete).at_once, 2);

        tell(&mut judge, A, 1400, What::Ticked);

        assert_eq!(judge.findings.len(), 1, "{:?}", judge.findings);
    }

    #[test]
    fn stale_write_is_refused() {
        let mut judge = Judge::default();
        enter(&mut judge, A, 1);
        tell(&mut judge, A, 1, What::Drew(1));
        judge.freeze(A.process, 2 * MILLISECOND);
        enter(&mut judge, B, 2000);
        tell(&mut judge, B, 2000, What::Drew(2));
        tell(&mut judge, B, 2001, What::Wrote(2));
        judge.thaw(A.process, 3000 * MILLISECOND);
        tell_from(&mut judge, A, 1, 3001, What::Wrote(1));

        assert_eq!((judge.tally().refused, judge.tally().accepted), (1, 1));
        assert_eq!(judge.findings, &[] as &[String]);
    }

    #[test]
    fn token_that_does_not_grow_is_found() {
        let mut judge = Judge::default();
        enter(&mut judge, A, 1);
        tell(&mut judge, A, 1, What::Drew(5));
        tell(&mut judge, A, 2, What::Returned);
        enter(&mut judge, B, 3);
        tell(&mut judge, B, 3, What::Drew(5));

        assert_eq!(judge.findings.len(), 1);
    }
}
