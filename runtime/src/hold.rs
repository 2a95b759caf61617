//! One ownership of one key, as long as anybody is inside.
//!
//! The number of entries is the number of `Arc`s: whoever drops the last one releases. The release
//! is sent in the background then; a caller that has the last one may send it itself and wait.

use std::sync::Arc;

use crate::backend::{Released, StoreResult};
use crate::backlog::{Proof, Release};
use crate::driver::Core;
use crate::lease::{Lease, Over};
use crate::protocol::hold::End;
use crate::telemetry;
use crate::watchdog::HoldId;

/// A hold; dropping it releases the lock.
#[derive(Debug)]
pub(crate) struct Hold {
    core: Arc<Core>,
    lease: Arc<Lease>,
    id: HoldId,
    /// Whether the store has answered a release.
    released: bool,
}

/// What a release found.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// The hold was over before: so the body was not alone, perhaps.
    Lost(Over),
    Released,
    /// No answer: it is repeated in the background.
    Unknown,
}

impl Hold {
    /// Wraps a hold that the watchdog has just taken on.
    pub(crate) fn new(core: Arc<Core>, lease: Arc<Lease>, id: HoldId) -> Self {
        Self { core, lease, id, released: false }
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
        let reply = self.send_release().await;
        self.released = reply.is_ok();
        self.core.note_release(self.lease.key(), &reply);
        if let Err(error) = &reply {
            telemetry::release_unanswered(self.lease.lock(), error);
        }
        match (over, reply) {
            (Some(over), _) => self.found_gone(over),
            (None, Ok(Released::Freed | Released::Granted { .. })) => Outcome::Released,
            (None, Ok(Released::Foreign | Released::Gone | Released::Taken)) => {
                self.found_gone(Over::Lost(End::Taken))
            }
            (None, Err(_)) => Outcome::Unknown,
        }
    }

    fn found_gone(&self, over: Over) -> Outcome {
        telemetry::release_found_gone(self.lease.lock(), over);
        Outcome::Lost(over)
    }

    async fn send_release(&self) -> StoreResult<Released> {
        let channel = self.core.channel().await?;
        channel.release(self.lease.lock(), self.core.claim()).await
    }

    /// Ends validity and renewal, before anything is sent. How it was over already, if it was.
    fn end(&self) -> Option<Over> {
        let over = self.lease.over();
        self.lease.release();
        self.core.change(|state| state.watchdog.remove(self.id));
        over
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.end();
        let lock = self.lease.lock().clone();
        self.core.change(|state| state.waiting.hold_ended(&lock));
        if !self.released {
            let until = self.lease.deadline();
            self.core.release_later(Release { lock, proof: Proof::AnyAnswer, until });
        }
        self.core.note_quiet();
    }
}
