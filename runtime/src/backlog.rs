//! Releases that nobody waits for: of dropped guards, of abandoned attempts, of lost replies.
//!
//! A release stays in here until an answer proves its outcome, or until the lease it is about has
//! ended by itself. So the backlog is bounded by what was begun within one lease.

use std::sync::Arc;
use std::time::Duration;

use crate::backend::{Channel, Lock, Released, StoreResult};
use crate::backoff::{self, Chance};
use crate::clock::Timestamp;
use crate::ids::IdMap;
use crate::protocol::contender::Traces;
use crate::protocol::hold::Granted;
use crate::schedule::Schedule;

/// Names a release in the backlog.
pub(crate) type ReleaseId = u64;

/// The releases under way in the background, on channels of the kind `C`.
#[derive(Clone, Debug)]
pub(crate) struct Backlog<C = Arc<dyn Channel>> {
    releases: IdMap<ReleaseId, Pending<C>>,
    due: Schedule<ReleaseId>,
    next_id: ReleaseId,
    /// When the last answer came that settled one.
    settled_at: Timestamp,
}

#[derive(Clone, Debug, Hash)]
struct Pending<C> {
    release: Release<C>,
    /// When it was last sent, whenever the answer comes.
    sent_at: Timestamp,
    failures: u32,
    due: Timestamp,
}

/// Whether a lock that a request met is released here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Parting {
    None,
    /// A release is under way, and was not yet sent in vain.
    OnItsWay,
    /// Perhaps since then: some release was settled.
    Over,
}

/// A release that is owed.
#[derive(Clone, Debug, Hash)]
pub(crate) struct Release<C = Arc<dyn Channel>> {
    pub(crate) lock: Lock,
    pub(crate) proof: Proof<C>,
    /// When the lease has ended at the latest, if the last send took effect.
    pub(crate) until: Timestamp,
}

/// Which answer settles a release.
#[derive(Clone, Debug, Hash)]
pub(crate) enum Proof<C = Arc<dyn Channel>> {
    /// Any answer: all that was sent for the owner before has been answered.
    AnyAnswer,
    /// Any answer on this channel, since it comes after whatever was sent there; elsewhere only that
    /// there was something to release.
    AnswerOn(C),
    /// Only that there was something to release: an earlier send may still take effect.
    FoundOne,
    /// No answer: besides what there is to release, an earlier send may still take effect.
    Nothing,
}

impl<C> Proof<C> {
    fn settles(&self, reply: &StoreResult<Released>) -> bool {
        match reply {
            Ok(
                Released::Freed
                | Released::FreedUntold
                | Released::Granted { .. }
                | Released::Foreign,
            ) => !matches!(self, Self::Nothing),
            Ok(Released::Gone | Released::Taken) => !matches!(self, Self::FoundOne | Self::Nothing),
            Err(_) => false,
        }
    }
}

impl<C> Release<C> {
    /// The release of a grant whose sends were answered, save those that are marked as uncertain.
    pub(crate) fn of_grant(lock: Lock, granted: Granted, now: Timestamp) -> Self {
        // Renewals that were never answered may have moved the end.
        let until = now + granted.lease;
        if granted.is_certain(now) {
            return Self { lock, proof: Proof::AnyAnswer, until };
        }
        Self { lock, proof: Proof::Nothing, until: granted.uncertain_until.max(until) }
    }

    /// The release of what a contender's sends for `lease` may have left, if any were sent.
    pub(crate) fn of_traces(
        lock: Lock,
        lease: Duration,
        traces: Traces,
        now: Timestamp,
    ) -> Option<Self> {
        let (proof, until) = match traces {
            Traces::None => return None,
            Traces::Certain => (Proof::AnyAnswer, now + lease),
            // What is found may be of another send than the one that was never answered.
            Traces::Uncertain { until } => (Proof::Nothing, until),
        };
        Some(Self { lock, proof, until })
    }
}

/// A release to send now.
#[derive(Debug)]
pub(crate) struct Errand<C = Arc<dyn Channel>> {
    pub(crate) id: ReleaseId,
    pub(crate) lock: Lock,
    /// Where to send it; the driver's own channel if there is none.
    pub(crate) channel: Option<C>,
}

impl<C: Clone> Backlog<C> {
    pub(crate) fn new() -> Self {
        Self {
            releases: IdMap::default(),
            due: Schedule::new(),
            next_id: 0,
            settled_at: Timestamp::NOW,
        }
    }

    /// Takes a release over.
    pub(crate) fn add(&mut self, release: Release<C>) {
        self.take(release, Timestamp::NOW, Timestamp::NOW);
    }

    /// Takes over a release that its caller sent at `now`. Unless [`answered_there`] comes before, it
    /// is sent from here after the time that an answer usually takes.
    ///
    /// [`answered_there`]: Self::answered_there
    pub(crate) fn add_sent(&mut self, release: Release<C>, now: Timestamp) -> ReleaseId {
        self.take(release, now, now + ELSEWHERE_WITHIN)
    }

    fn take(&mut self, release: Release<C>, sent_at: Timestamp, due: Timestamp) -> ReleaseId {
        let id = self.next_id;
        self.next_id += 1;
        let mut pending = Pending { release, sent_at, failures: 0, due: Timestamp::NEVER };
        self.due.set(&mut pending.due, id, due);
        self.releases.insert(id, pending);
        id
    }

    /// What is due at `now`.
    pub(crate) fn step(&mut self, now: Timestamp, errands: &mut Vec<Errand<C>>) {
        while let Some(id) = self.due.pop(now) {
            let Some(pending) = self.releases.get_mut(&id) else { continue };
            pending.due = Timestamp::NEVER;
            pending.sent_at = now;
            let channel = match &pending.release.proof {
                Proof::AnswerOn(channel) => Some(channel.clone()),
                Proof::AnyAnswer | Proof::FoundOne | Proof::Nothing => None,
            };
            errands.push(Errand { id, lock: pending.release.lock.clone(), channel });
        }
    }

    /// The store answered a release, or did not.
    pub(crate) fn answered(
        &mut self,
        id: ReleaseId,
        reply: &StoreResult<Released>,
        now: Timestamp,
        chance: Chance,
    ) {
        let Some(pending) = self.releases.get_mut(&id) else { return };
        let proof = &mut pending.release.proof;
        let until = pending.release.until;
        if proof.settles(reply) || pending.sent_at >= until {
            self.releases.remove(&id);
            self.settled_at = now;
            return;
        }
        if matches!(proof, Proof::AnswerOn(_)) {
            // That way is blocked: from now on by the driver's own.
            *proof = Proof::FoundOne;
        }
        let pause = backoff::pause(pending.failures, FIRST_PAUSE, LONGEST_PAUSE, chance);
        pending.failures = pending.failures.saturating_add(1);
        // The last one is sent when the lease has ended: nothing that came before is overlooked.
        self.due.set(&mut pending.due, id, (now + pause).min(until.max(now)));
    }

    /// The store answered a release that its caller had sent, or will not: then it is sent from here
    /// at once. Whether that answer is the first word of it, so that what it found is true of the time
    /// before.
    pub(crate) fn answered_there(
        &mut self,
        id: ReleaseId,
        reply: &StoreResult<Released>,
        now: Timestamp,
    ) -> bool {
        let Some(pending) = self.releases.get_mut(&id) else { return false };
        // Otherwise it was sent from here, too, and that answer decides what comes next.
        let is_first = pending.failures == 0 && pending.due != Timestamp::NEVER;
        if pending.release.proof.settles(reply) {
            self.settle(id, now);
        } else if is_first {
            self.due.set(&mut pending.due, id, Timestamp::NOW);
        }
        is_first
    }

    /// An answer came after all on the channel that counted as blocked.
    pub(crate) fn settle(&mut self, id: ReleaseId, now: Timestamp) {
        self.settled_at = now;
        if let Some(mut pending) = self.releases.remove(&id) {
            self.due.set(&mut pending.due, id, Timestamp::NEVER);
        }
    }

    /// The store may be back, or another one: what was not answered is sent again soon.
    pub(crate) fn interrupted(&mut self, now: Timestamp, chance: Chance) {
        let soon = now + chance.part_of(FIRST_PAUSE);
        for (id, pending) in &mut self.releases {
            // One that is under way has no time yet, and gets it with its answer.
            if pending.due > soon && pending.due != Timestamp::NEVER {
                self.due.set(&mut pending.due, *id, soon);
            }
        }
    }

    /// The driver died with its answers: everything is sent again.
    pub(crate) fn restart(&mut self) {
        for (id, pending) in &mut self.releases {
            self.due.set(&mut pending.due, *id, Timestamp::NOW);
        }
    }

    pub(crate) fn next_due(&self) -> Timestamp {
        self.due.next()
    }

    /// What is known of an `owner` of this process's, whose lock a request met that was sent at `since`.
    pub(crate) fn parting(&self, owner: &str, since: Timestamp) -> Parting {
        let mut releases = self.releases.values();
        if releases.any(|pending| pending.failures == 0 && *pending.release.lock.owner == *owner) {
            Parting::OnItsWay
        } else if self.settled_at >= since {
            Parting::Over
        } else {
            Parting::None
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.releases.len()
    }

    /// Whether a release of `owner` is owed.
    #[cfg(test)]
    pub(crate) fn owes(&self, owner: &str) -> bool {
        self.releases.values().any(|pending| *pending.release.lock.owner == *owner)
    }
}

// For a model checker, which must tell states apart.
#[cfg(test)]
impl<C: std::hash::Hash> std::hash::Hash for Backlog<C> {
    fn hash<H: std::hash::Hasher>(&self, hasher: &mut H) {
        (&self.due, self.next_id, self.settled_at).hash(hasher);
        let mut releases: Vec<_> = self.releases.iter().collect();
        releases.sort_unstable_by_key(|(id, _)| *id);
        releases.hash(hasher);
    }
}

/// How long a caller's own channel gets for the answer to a release, before the driver's is used:
/// nobody may poll that runtime any more.
const ELSEWHERE_WITHIN: Duration = Duration::from_millis(100);
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::{StoreError, StoreErrorKind};

    const LEASE: Duration = Duration::from_secs(3);
    const END: Timestamp = Timestamp::from_nanos(LEASE.as_nanos() as u64);

    /// A backlog with the release of a contender that got no answer to one of its sends.
    fn uncertain() -> Backlog<()> {
        let lock = Lock { key: "stock:lock:7".into(), owner: "test/1".into() };
        let traces = Traces::Uncertain { until: END };
        let mut backlog = Backlog::new();
        backlog.add(Release::of_traces(lock, LEASE, traces, Timestamp::NOW).unwrap());
        backlog
    }

    fn sent(backlog: &mut Backlog<()>, now: Timestamp) -> Option<ReleaseId> {
        let mut errands = Vec::new();
        backlog.step(now, &mut errands);
        errands.pop().map(|errand| errand.id)
    }

    #[test]
    fn release_is_repeated_for_a_lease_since_a_renewal_may_be_under_way() {
        let lock = Lock { key: "stock:lock:7".into(), owner: "test/1".into() };
        let granted = Granted::new(Timestamp::NOW, LEASE);

        let release = Release::<()>::of_grant(lock, granted, Timestamp::NOW + LEASE / 2);

        assert_eq!(release.until, END + LEASE / 2);
    }

    #[test]
    fn release_sent_by_its_caller_is_sent_from_here_only_if_no_answer_comes() {
        let lock = Lock { key: "stock:lock:7".into(), owner: "test/1".into() };
        let granted = Granted::new(Timestamp::NOW, LEASE);
        let release = || Release::of_grant(lock.clone(), granted, Timestamp::NOW);
        let silence = Err(StoreError::new(StoreErrorKind::Unavailable, "cut"));
        let mut backlog = Backlog::<()>::new();
        let answered = backlog.add_sent(release(), Timestamp::NOW);
        let cut = backlog.add_sent(release(), Timestamp::NOW);
        let silent = backlog.add_sent(release(), Timestamp::NOW);
        assert_eq!(sent(&mut backlog, Timestamp::NOW), None);

        assert!(backlog.answered_there(answered, &Ok(Released::Freed), Timestamp::NOW));
        assert!(backlog.answered_there(cut, &silence, Timestamp::NOW));

        assert_eq!(sent(&mut backlog, Timestamp::NOW), Some(cut));
        assert_eq!(backlog.parting(&lock.owner, Timestamp::NOW), Parting::OnItsWay);
        assert_eq!(sent(&mut backlog, Timestamp::NOW + ELSEWHERE_WITHIN), Some(silent));
        let late = backlog.answered_there(silent, &Ok(Released::Gone), Timestamp::NOW);
        assert!(!late, "what it found may be the doing of the one that was sent from here");
        assert_eq!(backlog.len(), 1);
    }

    #[test]
    fn release_of_a_grant_does_not_settle_what_an_earlier_send_may_still_do() {
        let mut backlog = uncertain();
        let id = sent(&mut backlog, Timestamp::NOW).unwrap();

        backlog.answered(id, &Ok(Released::Freed), Timestamp::NOW, Chance::fixed(0.0));

        assert_eq!(backlog.len(), 1);
    }

    #[test]
    fn release_is_sent_a_last_time_when_what_is_late_has_come() {
        let mut backlog = uncertain();
        let mut now = Timestamp::NOW;
        let mut last_sent_at = None;
        while let Some(id) = sent(&mut backlog, now) {
            last_sent_at = Some(now);
            backlog.answered(id, &Ok(Released::Gone), now, Chance::fixed(0.0));
            now = now.max(backlog.next_due());
        }

        assert_eq!((last_sent_at, backlog.len()), (Some(END), 0));
    }

    #[test]
    fn release_that_got_no_answer_is_sent_again_when_the_store_is_back() {
        let mut backlog = uncertain();
        let mut now = Timestamp::NOW;
        for _ in 0..8 {
            let id = sent(&mut backlog, now).unwrap();
            // Nothing is due earlier for what is under way.
            backlog.interrupted(now, Chance::fixed(1.0));
            let failed = StoreError::new(StoreErrorKind::Unavailable, "gone");
            backlog.answered(id, &Err(failed), now, Chance::fixed(1.0));
            now = backlog.next_due();
        }
        let now = now - LONGEST_PAUSE / 2;
        assert_eq!(sent(&mut backlog, now), None);

        backlog.interrupted(now, Chance::fixed(0.0));

        assert!(sent(&mut backlog, now).is_some());
    }

    #[test]
    fn late_answer_tells_nothing_of_the_time_after_its_send() {
        let mut backlog = uncertain();
        let id = sent(&mut backlog, Timestamp::NOW).unwrap();

        backlog.answered(id, &Ok(Released::Gone), END + LEASE, Chance::fixed(0.0));

        assert_eq!(sent(&mut backlog, END + LEASE), Some(id));
    }
}
