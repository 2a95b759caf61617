//! What a caller may have in the store before it has a hold.
//!
//! Nothing that was sent is forgotten: each of these is made before its lock can be granted, and hands
//! the lock to the backlog if it is dropped.

use std::sync::Arc;
use std::time::Duration;

use crate::backend::{Channel, Lock, Renewal, Renewed};
use crate::backlog::{Proof, Release};
use crate::driver::{Core, State, grant_is_gone};
use crate::hold::Hold;
use crate::options::Settings;
use crate::protocol::hold::Granted;
use crate::refusal::Refusal;

/// An acquire that was sent and not answered; dropping it undoes what it may have done.
pub(crate) struct Sent<'a> {
    core: &'a Arc<Core>,
    lock: &'a Lock,
    channel: &'a Arc<dyn Channel>,
    lease: Duration,
    /// Whether nothing is to be undone.
    pub(crate) settled: bool,
}

impl<'a> Sent<'a> {
    pub(crate) fn new(
        core: &'a Arc<Core>,
        lock: &'a Lock,
        channel: &'a Arc<dyn Channel>,
        lease: Duration,
    ) -> Self {
        Self { core, lock, channel, lease, settled: false }
    }
}

impl Drop for Sent<'_> {
    fn drop(&mut self) {
        if !self.settled {
            self.core.release_later(Release {
                lock: self.lock.clone(),
                proof: Proof::AnswerOn(Arc::clone(self.channel)),
                // It may have taken effect only just now.
                until: self.core.now() + self.lease,
            });
        }
    }
}

/// A lock that is ours but not yet a hold; dropping it releases.
#[derive(Debug)]
pub(crate) struct Claim {
    core: Arc<Core>,
    lock: Lock,
    granted: Granted,
    token: Option<u64>,
    stage: Stage,
}

/// What the local queue knows of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// That somebody tries.
    Trying,
    /// That this process has the lock.
    Queued,
    /// That the hold has it.
    Taken,
}

impl Claim {
    /// What a direct try was granted.
    pub(crate) fn of_try(mut sent: Sent<'_>, granted: Granted, token: Option<u64>) -> Self {
        sent.settled = true;
        let (core, lock) = (Arc::clone(sent.core), sent.lock.clone());
        Self { core, lock, granted, token, stage: Stage::Trying }
    }

    /// What a waiter took from the queue.
    pub(crate) fn of_queue(core: &Arc<Core>, lock: Lock, granted: Granted) -> Self {
        Self { core: Arc::clone(core), lock, granted, token: None, stage: Stage::Queued }
    }

    /// Awaits what is missing before the hold: at least half of the lease must be ahead, for which one
    /// renewal may be spent.
    pub(crate) async fn confirm(&mut self, settings: &Settings) -> Result<(), Refusal> {
        self.queue_up();
        if settings.fencing && self.token.is_none() {
            self.token = Some(self.core.draw(&self.lock).await?);
        }
        // Last: nothing is awaited between this and the first poll of the body.
        if !self.is_fresh(settings.lease()) {
            self.renew(settings.lease()).await?;
            if !self.is_fresh(settings.lease()) {
                return Err(Refusal::TooSlow { lease: settings.lease() });
            }
        }
        Ok(())
    }

    /// Whether nothing is to be awaited before the hold.
    pub(crate) fn is_settled(&self, settings: &Settings) -> bool {
        self.token.is_some() == settings.fencing && self.is_fresh(settings.lease())
    }

    pub(crate) fn begin(mut self, settings: &Settings) -> Result<Arc<Hold>, Refusal> {
        let core = Arc::clone(&self.core);
        // One step, for the usual call's sake: the queue and the watchdog learn of it together.
        let hold = core.change(|state| {
            if state.is_shut_down() {
                return Err(Refusal::ShutDown);
            }
            self.queue_up_in(state);
            self.stage = Stage::Taken;
            let grant = (self.granted, self.token);
            Ok(Hold::begin(&core, state, self.lock.clone(), grant, settings.max_hold()))
        })?;
        Ok(Arc::new(hold))
    }

    /// Lets the queue know that this process has the lock.
    fn queue_up(&mut self) {
        let core = Arc::clone(&self.core);
        core.change(|state| self.queue_up_in(state));
    }

    fn queue_up_in(&mut self, state: &mut State) {
        if self.stage == Stage::Trying {
            state.waiting.tried(&self.lock.key, Some(Arc::clone(&self.lock.owner)));
            self.stage = Stage::Queued;
        }
    }

    fn is_fresh(&self, lease: Duration) -> bool {
        self.granted.is_fresh(lease, self.core.now())
    }

    async fn renew(&mut self, lease: Duration) -> Result<(), Refusal> {
        let channel = self.core.channel().await?;
        let sent_at = self.core.now();
        let renewal = Renewal { lock: self.lock.clone(), lease };
        match channel.renew(&[renewal]).await?.first() {
            Some(Renewed::Renewed) => {
                self.granted = Granted { sent_at, lease, ..self.granted };
                Ok(())
            }
            _ => Err(grant_is_gone().into()),
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if self.stage != Stage::Taken {
            let lock = self.lock.clone();
            self.core.release_later(Release::of_grant(lock, self.granted, self.core.now()));
            self.core.change(|state| match self.stage {
                Stage::Trying => state.waiting.tried(&self.lock.key, None),
                Stage::Queued | Stage::Taken => state.waiting.hold_ended(&self.lock),
            });
        }
    }
}
