//! Releases that nobody waits for: of dropped guards, of abandoned attempts, of lost replies.
//!
//! A release stays in here until an answer proves its outcome, or until the lease it is about has
//! ended by itself. So the backlog is bounded by what was begun within one lease.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use crate::backend::{Channel, Lock, Released, StoreResult};
use crate::backoff::{self, Chance};
use crate::clock::Timestamp;
use crate::protocol::hold::Granted;
use crate::schedule::Schedule;

/// Names a release in the backlog.
pub(crate) type ReleaseId = u64;

/// The releases under way in the background, on channels of the kind `C`.
#[derive(Clone, Debug)]
pub(crate) struct Backlog<C = Arc<dyn Channel>> {
    releases: HashMap<ReleaseId, Pending<C>>,
    due: Schedule<ReleaseId>,
    next_id: ReleaseId,
}

#[derive(Clone, Debug, Hash)]
struct Pending<C> {
    release: Release<C>,
    failures: u32,
    due: Timestamp,
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

impl<C> Release<C> {
    /// The release of a grant whose sends were answered, save those that are marked as uncertain.
    pub(crate) fn of_grant(lock: Lock, granted: Granted, now: Timestamp) -> Self {
        if granted.uncertain_until > now {
            return Self { lock, proof: Proof::Nothing, until: granted.uncertain_until };
        }
        Self { lock, proof: Proof::AnyAnswer, until: granted.deadline() }
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
        Self { releases: HashMap::new(), due: Schedule::new(), next_id: 0 }
    }

    /// Takes a release over.
    pub(crate) fn add(&mut self, release: Release<C>) {
        let id = self.next_id;
        self.next_id += 1;
        let mut pending = Pending { release, failures: 0, due: Timestamp::NEVER };
        self.due.set(&mut pending.due, id, Timestamp::NOW);
        self.releases.insert(id, pending);
    }

    /// What is due at `now`.
    pub(crate) fn step(&mut self, now: Timestamp, errands: &mut Vec<Errand<C>>) {
        while let Some(id) = self.due.pop(now) {
            let Some(pending) = self.releases.get_mut(&id) else { continue };
            pending.due = Timestamp::NEVER;
            if pending.failures > 0 && now >= pending.release.until {
                self.releases.remove(&id);
                continue;
            }
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
        let settled = match reply {
            Ok(Released::Freed | Released::Granted { .. } | Released::Foreign) => {
                !matches!(proof, Proof::Nothing)
            }
            Ok(Released::Gone | Released::Taken) => {
                !matches!(proof, Proof::FoundOne | Proof::Nothing)
            }
            Err(_) => false,
        };
        if settled {
            self.releases.remove(&id);
            return;
        }
        if matches!(proof, Proof::AnswerOn(_)) {
            // That way is blocked: from now on by the driver's own.
            *proof = Proof::FoundOne;
        }
        let pause = backoff::pause(pending.failures, FIRST_PAUSE, LONGEST_PAUSE, chance);
        pending.failures = pending.failures.saturating_add(1);
        self.due.set(&mut pending.due, id, now + pause);
    }

    /// An answer came after all on the channel that counted as blocked.
    pub(crate) fn settle(&mut self, id: ReleaseId) {
        if let Some(mut pending) = self.releases.remove(&id) {
            self.due.set(&mut pending.due, id, Timestamp::NEVER);
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

    pub(crate) fn len(&self) -> usize {
        self.releases.len()
    }
}

const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
