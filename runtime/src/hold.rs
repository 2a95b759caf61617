//! One ownership of one key, as long as anybody is inside.
//!
//! The number of entries is the number of `Arc`s: whoever drops the last one releases. The release
//! is sent in the background then; a caller that has the last one may send it itself and wait.

use std::sync::Arc;
use std::time::Duration;

use crate::backend::{Lock, Released, StoreResult};
use crate::backlog::Release;
use crate::driver::{Core, State, found_gone};
use crate::error::LockError;
use crate::lease::{Lease, Over};
use crate::protocol::hold::{self, End, Granted};
use crate::telemetry;
use crate::watchdog::HoldId;

/// A hold; dropping it releases the lock.
#[derive(Debug)]
pub(crate) struct Hold {
    core: Arc<Core>,
    lease: Arc<Lease>,
    id: HoldId,
    granted: Granted,
    ending: Ending,
    /// Whether the store has answered a release, or the backlog has it.
    settled: bool,
}

/// How far the end of a hold is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    NotBegun,
    /// Nothing is valid or renewed any more. How it was over before, if it was.
    Begun(Option<Over>),
    /// The lock was passed on: what the store and the local queue have under this owner is the next
    /// one's.
    Passed,
}

/// What a release found.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// The hold was over before: so the body was not alone, perhaps. What `strict` makes of it.
    Lost(LockError),
    Released,
    /// No answer, and it is repeated in the background; or one that tells nothing about the time
    /// before the release.
    Unknown,
}

impl Hold {
    /// Begins a hold of a lock that is ours, within a change of the `state`. There it must not be
    /// dropped.
    pub(crate) fn begin(
        core: &Arc<Core>,
        state: &mut State,
        lock: Lock,
        (granted, token): (Granted, Option<u64>),
        max_hold: Option<Duration>,
    ) -> Self {
        let hold = hold::Hold::new(granted, core.now(), max_hold);
        let lease = Arc::new(Lease::new(lock, core.clock(), &hold, token));
        let id = state.hold_begins(hold, Arc::clone(&lease));
        let core = Arc::clone(core);
        Self { core, lease, id, granted, ending: Ending::NotBegun, settled: false }
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

    /// Leaves at once if the lock passes to a local waiter, or if it is over already; then what there
    /// may be left to release is left to the background.
    pub(crate) fn leave(mut self) -> Result<Outcome, Self> {
        match self.end() {
            Ending::Passed => Ok(Outcome::Released),
            // How it was lost was said when it was noticed.
            Ending::Begun(Some(over)) => Ok(self.lost(over)),
            Ending::NotBegun | Ending::Begun(None) => Err(self),
        }
    }

    /// Releases the lock and waits for the answer.
    ///
    /// Awaits: the channel, the answer. A drop at either leaves the release to the background.
    pub(crate) async fn release(self) -> Outcome {
        let mut hold = match self.leave() {
            Ok(outcome) => return outcome,
            Err(hold) => hold,
        };
        let asked_at = hold.core.now();
        let reply = hold.send_release().await;
        // What takes effect after the release is not undone by it, however late its answer comes.
        hold.settled = reply.is_ok() && hold.granted.is_certain(asked_at);
        hold.core.note_release(hold.lease.key(), &reply);
        if let Err(error) = &reply {
            telemetry::release_unanswered(hold.lease.lock(), error);
        }
        match reply {
            Ok(Released::Freed | Released::FreedUntold | Released::Granted { .. }) => {
                Outcome::Released
            }
            Ok(reply) if found_gone(&reply, &hold.lease, hold.core.now()) => {
                let over = Over::Lost(End::Taken);
                telemetry::release_found_gone(hold.lease.lock(), over);
                hold.lost(over)
            }
            _ => Outcome::Unknown,
        }
    }

    /// Releases the lock without waiting for the answer.
    pub(crate) fn part(self) {
        if let Err(mut hold) = self.leave() {
            hold.settled = true;
            hold.core.release_unawaited(hold.owed(), &hold.lease);
        }
    }

    fn owed(&self) -> Release {
        let lock = self.lease.lock().clone();
        let release = Release::of_grant(lock, self.granted, self.core.now());
        // Renewals may have moved the end.
        let until = release.until.max(self.lease.deadline());
        Release { until, ..release }
    }

    fn lost(&self, over: Over) -> Outcome {
        Outcome::Lost(over.error(self.lease.key(), true))
    }

    async fn send_release(&self) -> StoreResult<Released> {
        let channel = self.core.channel().await?;
        channel.release(self.lease.lock(), self.core.tuning().claim).await
    }

    /// Ends validity and renewal, and passes the lock on to a local waiter if it can: all in one step,
    /// so that never two holds of one grant are valid.
    fn end(&mut self) -> Ending {
        if self.ending != Ending::NotBegun {
            return self.ending;
        }
        let (lease, id) = (&self.lease, self.id);
        let (ending, granted) = self.core.change(|state| {
            let over = lease.over();
            lease.release();
            let granted = state.watchdog.remove(id);
            let valid = granted.filter(|_| over.is_none());
            if valid.is_some_and(|granted| state.waiting.pass_on(lease.lock(), granted)) {
                state.hold_is_gone();
                return (Ending::Passed, granted);
            }
            (Ending::Begun(over), granted)
        });
        self.ending = ending;
        self.granted = granted.unwrap_or(self.granted);
        ending
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if self.end() == Ending::Passed {
            return;
        }
        if !self.settled {
            self.core.release_later(self.owed());
        }
        self.core.change(|state| {
            state.waiting.hold_ended(self.lease.lock());
            state.hold_is_gone();
        });
    }
}
