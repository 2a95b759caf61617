//! The driver's own channel, opened when it is first needed and again when it is lost.

use std::sync::{Arc, Weak};

use tokio::sync::Mutex;

use super::Core;
use crate::backend::{Channel, Events, StoreError, StoreResult};
use crate::clock::Timestamp;
use crate::telemetry;

/// One channel for all that the driver sends.
#[derive(Debug)]
pub(super) struct Link {
    slot: Mutex<Slot>,
}

#[derive(Debug)]
struct Slot {
    channel: Option<Arc<dyn Channel>>,
    /// The last attempt to open one, if it failed: when it ended, and why.
    failure: Option<(Timestamp, StoreError)>,
    /// Whether it was said that the store announces nothing: once is enough.
    told_unannounced: bool,
}

impl Link {
    pub(super) fn new() -> Self {
        Self { slot: Mutex::new(Slot { channel: None, failure: None, told_unannounced: false }) }
    }

    /// The open channel. Many may ask at once: one attempt serves them all, whether it succeeds or
    /// not.
    pub(super) async fn channel(&self, core: &Arc<Core>) -> StoreResult<Arc<dyn Channel>> {
        let asked_at = core.now();
        let mut slot = self.slot.lock().await;
        if let Some(channel) = slot.channel.as_ref().filter(|channel| channel.is_open()) {
            return Ok(Arc::clone(channel));
        }
        if let Some((at, error)) = &slot.failure
            && *at > asked_at
        {
            return Err(error.clone());
        }
        slot.channel = None;
        let weak = Arc::downgrade(core);
        let events: Weak<dyn Events> = weak;
        match core.backend.open_listening(events).await {
            Ok(channel) => {
                let announced = channel.delivers_events();
                if !announced && !slot.told_unannounced {
                    slot.told_unannounced = true;
                    telemetry::unannounced();
                }
                core.change(|state| state.waiting.set_announced(announced));
                slot.channel = Some(Arc::clone(&channel));
                slot.failure = None;
                Ok(channel)
            }
            Err(error) => {
                slot.failure = Some((core.now(), error.clone()));
                Err(error)
            }
        }
    }
}
