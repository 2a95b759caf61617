//! Renewal of what is held: one queue of deadlines for all holds of a client.
//!
//! A hold is in here from the moment its caller has it until its release begins or it is lost, and
//! no longer: what is not in here is never renewed.

use std::sync::Arc;
use std::time::Duration;

use crate::backend::{Lock, Renewal, Renewed};
use crate::clock::Timestamp;
use crate::ids::IdMap;
use crate::lease::Lease;
use crate::protocol::hold::{End, Granted, Hold, Step};
use crate::schedule::Schedule;

/// Names a watched hold.
pub(crate) type HoldId = u64;

/// The holds of a client.
#[derive(Debug)]
pub(crate) struct Watchdog {
    holds: IdMap<HoldId, Watched>,
    due: Schedule<HoldId>,
    next_id: HoldId,
}

#[derive(Debug)]
struct Watched {
    hold: Hold,
    lease: Arc<Lease>,
    due: Timestamp,
}

/// Renewals to send in one command.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    pub(crate) ids: Vec<HoldId>,
    pub(crate) renewals: Vec<Renewal>,
    /// How long the answer may take: so that there is time for another try.
    pub(crate) within: Duration,
}

impl Watchdog {
    pub(crate) fn new() -> Self {
        Self { holds: IdMap::default(), due: Schedule::new(), next_id: 0 }
    }

    /// Watches a hold.
    pub(crate) fn insert(&mut self, hold: Hold, lease: Arc<Lease>) -> HoldId {
        let id = self.next_id;
        self.next_id += 1;
        let mut due = Timestamp::NEVER;
        self.due.set(&mut due, id, hold.next_look());
        self.holds.insert(id, Watched { hold, lease, due });
        id
    }

    /// Forgets a hold: it is about to be released. What is confirmed of it, if it was here.
    pub(crate) fn remove(&mut self, id: HoldId) -> Option<Granted> {
        let mut watched = self.holds.remove(&id)?;
        self.due.set(&mut watched.due, id, Timestamp::NEVER);
        Some(watched.hold.granted())
    }

    /// What is due at `now`: marks holds as ended, which are in `ended` then, and collects renewals.
    pub(crate) fn step(
        &mut self,
        now: Timestamp,
        batches: &mut Vec<Batch>,
        ended: &mut Vec<(Lock, End)>,
    ) {
        let mut batch = Batch::default();
        while let Some(id) = self.due.pop(now) {
            let Some(watched) = self.holds.get_mut(&id) else { continue };
            watched.due = Timestamp::NEVER;
            match watched.hold.step(now) {
                Step::End(end) => {
                    watched.lease.end(end);
                    ended.push((watched.lease.lock().clone(), end));
                    self.holds.remove(&id);
                }
                Step::Wait(until) => self.due.set(&mut watched.due, id, until),
                Step::Renew(lease) => {
                    let left = watched.hold.deadline().since(now);
                    batch.add(id, Renewal { lock: watched.lease.lock().clone(), lease }, left);
                    self.due.set(&mut watched.due, id, watched.hold.next_look());
                    if batch.ids.len() == LARGEST_BATCH {
                        batches.push(std::mem::take(&mut batch));
                    }
                }
            }
        }
        if !batch.ids.is_empty() {
            batches.push(batch);
        }
    }

    /// The store answered a renewal sent at `sent_at`, or did not.
    pub(crate) fn renewed(
        &mut self,
        id: HoldId,
        reply: Result<Renewed, ()>,
        (sent_at, lease): (Timestamp, Duration),
        now: Timestamp,
    ) {
        // A hold that is gone was released or lost meanwhile.
        let Some(watched) = self.holds.get_mut(&id) else { return };
        match reply {
            Ok(Renewed::Renewed) => {
                watched.hold.renewed(sent_at, lease);
                watched.lease.extend_to(watched.hold.deadline());
            }
            Ok(Renewed::Foreign | Renewed::Gone | Renewed::Taken) => {
                watched.lease.end(End::Taken);
                self.remove(id);
                return;
            }
            Ok(Renewed::Unanswered) | Err(()) => watched.hold.failed(now),
        }
        self.schedule(id);
    }

    /// The owner renewed its hold by itself, to another lease from now on.
    pub(crate) fn extended(&mut self, id: HoldId, sent_at: Timestamp, lease: Duration) {
        let Some(watched) = self.holds.get_mut(&id) else { return };
        watched.hold.set_lease(lease);
        watched.hold.renewed(sent_at, lease);
        watched.lease.extend_to(watched.hold.deadline());
        self.schedule(id);
    }

    /// The connection to the store ended: what it confirmed so far may not be known where the next one
    /// leads.
    pub(crate) fn interrupted(&mut self, now: Timestamp) {
        for (id, watched) in &mut self.holds {
            watched.hold.doubt(now);
            self.due.set(&mut watched.due, *id, watched.hold.next_look());
        }
    }

    /// The driver died with its answers: what was under way is tried again.
    pub(crate) fn restart(&mut self, now: Timestamp) {
        for (id, watched) in &mut self.holds {
            watched.hold.failed(now);
            self.due.set(&mut watched.due, *id, Timestamp::NOW);
        }
    }

    /// Ends every hold.
    pub(crate) fn shut_down(&mut self) {
        for (id, mut watched) in self.holds.drain() {
            watched.lease.end(End::ShutDown);
            self.due.set(&mut watched.due, id, Timestamp::NEVER);
        }
    }

    pub(crate) fn next_due(&self) -> Timestamp {
        self.due.next()
    }

    fn schedule(&mut self, id: HoldId) {
        if let Some(watched) = self.holds.get_mut(&id) {
            self.due.set(&mut watched.due, id, watched.hold.next_look());
        }
    }
}

impl Batch {
    fn add(&mut self, id: HoldId, renewal: Renewal, left: Duration) {
        let within = left / 3;
        self.within = if self.ids.is_empty() { within } else { self.within.min(within) };
        self.ids.push(id);
        self.renewals.push(renewal);
    }
}

/// A script over 100 keys occupied Redis for up to 1.2 ms where 100 000 locks were held.
const LARGEST_BATCH: usize = 50;
