//! The driver's own channel, opened when it is first needed and again when it is lost.

use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::Poll;

use tokio::sync::watch;

use super::Core;
use crate::backend::{BoxFuture, Channel, Events, StoreError, StoreErrorKind, StoreResult};
use crate::telemetry;

/// One channel for all that the driver sends.
#[derive(Debug)]
pub(super) struct Link(Mutex<Slot>);

#[derive(Debug)]
struct Slot {
    channel: Option<Arc<dyn Channel>>,
    /// The attempt under way to open one.
    opening: Option<Outcome>,
    /// Whether it was said that the store announces nothing: once is enough.
    told_unannounced: bool,
}

/// `None` as long as the attempt runs.
type Outcome = watch::Receiver<Option<StoreResult<Arc<dyn Channel>>>>;

impl Link {
    pub(super) fn new() -> Self {
        Self(Mutex::new(Slot { channel: None, opening: None, told_unannounced: false }))
    }

    /// The open channel. Many may ask at once: one attempt serves them all, whether it succeeds or
    /// not. Who gives up early, as a renewal does, leaves it to go on for the next one.
    pub(super) async fn channel(
        self: &Arc<Self>,
        core: &Arc<Core>,
    ) -> StoreResult<Arc<dyn Channel>> {
        let (mut outcome, attempt) = match self.join(core) {
            Joined::Done(channel) => return Ok(channel),
            Joined::Follower(outcome) => (outcome, None),
            Joined::Leader(outcome, attempt) => (outcome, Some(attempt)),
        };
        if let Some(mut attempt) = attempt {
            // A store in this process is open at once, and starts no task.
            if poll_fn(|cx| Poll::Ready(attempt.as_mut().poll(cx))).await.is_pending() {
                drop(tokio::spawn(attempt));
            }
        }
        let outcome = match outcome.wait_for(Option::is_some).await {
            Ok(outcome) => outcome.clone(),
            Err(_) => None,
        };
        outcome.unwrap_or_else(|| {
            let text = "the attempt to connect ended with its runtime";
            Err(StoreError::new(StoreErrorKind::Unavailable, text))
        })
    }

    fn join(self: &Arc<Self>, core: &Arc<Core>) -> Joined {
        let mut slot = self.slot();
        if let Some(channel) = slot.channel.as_ref().filter(|channel| channel.is_open()) {
            return Joined::Done(Arc::clone(channel));
        }
        // One whose sender is gone was dropped with its runtime.
        if let Some(outcome) = slot.opening.as_ref().filter(|outcome| outcome.has_changed().is_ok())
        {
            return Joined::Follower(outcome.clone());
        }
        let (report, outcome) = watch::channel(None);
        slot.opening = Some(outcome.clone());
        let closed = slot.channel.take();
        drop(slot);
        let (link, core) = (Arc::clone(self), Arc::clone(core));
        let attempt = Box::pin(async move {
            let opened = link.open(&core).await;
            // Only now: what is left of it may serve the next one. Not under the mutex: the end of a
            // connection may come back here.
            drop(closed);
            report.send_replace(Some(opened));
        });
        Joined::Leader(outcome, attempt)
    }

    async fn open(&self, core: &Arc<Core>) -> StoreResult<Arc<dyn Channel>> {
        let weak = Arc::downgrade(core);
        let events: Weak<dyn Events> = weak;
        let opened = core.backend.open_listening(events).await;
        let mut slot = self.slot();
        // Before anyone hears of it: who tries again starts anew.
        slot.opening = None;
        let channel = opened?;
        let announced = channel.delivers_events();
        let tell = !announced && !std::mem::replace(&mut slot.told_unannounced, !announced);
        slot.channel = Some(Arc::clone(&channel));
        drop(slot);
        if tell {
            telemetry::unannounced();
        }
        core.change(|state| state.waiting.set_announced(announced));
        Ok(channel)
    }

    fn slot(&self) -> MutexGuard<'_, Slot> {
        // Each change is one assignment, so a poisoned slot is a whole slot.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

enum Joined {
    Done(Arc<dyn Channel>),
    Follower(Outcome),
    Leader(Outcome, BoxFuture<()>),
}
