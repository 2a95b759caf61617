//! One ownership of one key, as long as anybody is inside.
//!
//! The number of entries is the number of `Arc`s: whoever drops the last one releases. The release
//! is sent in the background then; a caller that has the last one may send it itself and wait.

use std::sync::Arc;

use crate::backend::{Released, StoreResult};
use crate::backlog::Release;
use crate::driver::{Core, found_gone};
use crate::lease::{Lease, Over};
use crate::protocol::hold::{End, Granted};
use crate::telemetry;
use crate::watchdog::HoldId;

/// A hold; dropping it releases the lock.
#[derive(Debug)]
pub(crate) struct Hold {
    core: Arc<Core>,
    lease: Arc<Lease>,
    id: HoldId,
    granted: Granted,
    /// Whether the end has begun: nothing is valid or renewed any more.
    ended: bool,
    /// Whether the lock was passed on: what the store and the local queue have under this owner is
    /// the next one's.
    passed: bool,
    /// Whether the store has answered a release, or the backlog has it.
    settled: bool,
}

/// What a release found.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// The hold was over before: so the body was not alone, perhaps.
    Lost(Over),
    Released,
    /// No answer, and it is repeated in the background; or one that tells nothing about the time
    /// before the release.
    Unknown,
}

impl Hold {
    /// Wraps a hold that the watchdog has just taken on.
    pub(crate) fn new(core: Arc<Core>, lease: Arc<Lease>, id: HoldId, granted: Granted) -> Self {
        Self { core, lease, id, granted, ended: false, passed: false, settled: false }
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.core
    }

    pub(crate) fn lease(&self) -> &Arc<Lease> {
        &self.lease
    }

    pub(crate) fn id(&self) -> HoldId {
        self.id
    }

    /// Releases the lock and waits for the answer.
    ///
    /// Awaits: the channel, the answer. A drop at either leaves the release to the background.
    pub(crate) async fn release(mut self) -> Outcome {
        let over = self.end();
        if self.passed {
            return Outcome::Released;
        }
        let asked_at = self.core.now();
        let reply = self.send_release().await;
        // What takes effect after the release is not undone by it, however late its answer comes.
        self.settled = reply.is_ok() && self.granted.is_certain(asked_at);
        self.core.note_release(self.lease.key(), &reply);
        if let Err(error) = &reply {
            telemetry::release_unanswered(self.lease.lock(), error);
        }
        match (over, reply) {
            (Some(over), _) => self.found_gone(over),
            (None, Ok(Released::Freed | Released::FreedUntold | Released::Granted { .. })) => {
                Outcome::Released
            }
            (None, Ok(reply)) if found_gone(&reply, &self.lease, self.core.now()) => {
                self.found_gone(Over::Lost(End::Taken))
            }
            (None, _) => Outcome::Unknown,
        }
    }

    /// Releases the lock without waiting for the answer.
    pub(crate) fn part(mut self) {
        if let Some(over) = self.end() {
            // What there may be left to release is not waited for by anybody here.
            self.found_gone(over);
        } else if !self.passed {
            self.settled = true;
            self.core.release_unawaited(self.owed(), &self.lease);
        }
    }

    fn owed(&self) -> Release {
        let lock = self.lease.lock().clone();
        let release = Release::of_grant(lock, self.granted, self.core.now());
        // Renewals may have moved the end.
        let until = release.until.max(self.lease.deadline());
        Release { until, ..release }
    }

    fn found_gone(&self, over: Over) -> Outcome {
        telemetry::release_found_gone(self.lease.lock(), over);
        Outcome::Lost(over)
    }

    async fn send_release(&self) -> StoreResult<Released> {
        let channel = self.core.channel().await?;
        channel.release(self.lease.lock(), self.core.tuning().claim).await
    }

    /// Ends validity and renewal, and passes the lock on to a local waiter if it can: all in one step,
    /// so that never two holds of one grant are valid. How it was over already, if it was.
    fn end(&mut self) -> Option<Over> {
        if self.ended {
            return None;
        }
        self.ended = true;
        let (lease, id) = (&self.lease, self.id);
        let (over, granted, passed) = self.core.change(|state| {
            let over = lease.over();
            lease.release();
            let granted = state.watchdog.remove(id);
            let valid = granted.filter(|_| over.is_none());
            let passed = valid.is_some_and(|granted| state.waiting.pass_on(lease.lock(), granted));
            (over, granted, passed)
        });
        self.granted = granted.unwrap_or(self.granted);
        self.passed = passed;
        over
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.end();
        if !self.passed && !self.settled {
            self.core.release_later(self.owed());
        }
        self.core.change(|state| {
            if !self.passed {
                state.waiting.hold_ended(self.lease.lock());
            }
            state.hold_is_gone();
        });
    }
}
