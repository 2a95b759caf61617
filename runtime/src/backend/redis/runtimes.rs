//! The connection of each runtime: a connection dies with the runtime that made it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::runtime::{self, Handle};
use tokio::sync::watch;

use super::channel::RedisChannel;
use super::connect::connect;
use super::line::{Duty, Line};
use super::server::Server;
use crate::backend::{Channel, StoreError, StoreErrorKind, StoreResult};
use crate::ids::IdMap;

#[derive(Debug, Default)]
pub(super) struct Runtimes(Mutex<IdMap<runtime::Id, Slot>>);

#[derive(Debug)]
enum Slot {
    Open(Arc<RedisChannel>),
    Opening(Outcome),
}

/// `None` as long as the attempt runs.
type Outcome = watch::Receiver<Option<StoreResult<Arc<RedisChannel>>>>;

impl Runtimes {
    pub(super) fn current(&self) -> Option<Arc<RedisChannel>> {
        let runtime = Handle::try_current().ok()?.id();
        match self.slots().get(&runtime)? {
            Slot::Open(channel) if channel.is_open() => Some(Arc::clone(channel)),
            _ => None,
        }
    }

    /// Opens the calling runtime's channel, or joins whoever does.
    pub(super) async fn open(
        self: Arc<Self>,
        server: Arc<Server>,
    ) -> StoreResult<Arc<RedisChannel>> {
        let handle = Handle::try_current().map_err(|_| no_runtime())?;
        let (mut outcome, attempt) = match self.join(handle.id()) {
            Joined::Done(channel) => return Ok(channel),
            Joined::Follower(outcome) => (outcome, None),
            Joined::Leader(outcome, attempt) => (outcome, Some(attempt)),
        };
        // A task of its own: the one who came first may leave, the others still wait for it.
        if let Some(attempt) = attempt {
            handle.spawn(attempt.run(server));
        }
        let outcome = match outcome.wait_for(Option::is_some).await {
            Ok(outcome) => outcome.clone(),
            Err(_) => None,
        };
        outcome.unwrap_or_else(|| Err(given_up()))
    }

    /// Removes the channel of `line`, and no later one of the same runtime.
    pub(super) fn forget(&self, runtime: runtime::Id, line: &Line) {
        let mut slots = self.slots();
        let is_it = |slot: &Slot| match slot {
            Slot::Open(channel) => std::ptr::eq(channel.line(), line),
            Slot::Opening(_) => false,
        };
        let gone =
            if slots.get(&runtime).is_some_and(is_it) { slots.remove(&runtime) } else { None };
        drop(slots);
        // Not under the mutex: the end of a connection comes back here.
        drop(gone);
    }

    fn join(self: &Arc<Self>, runtime: runtime::Id) -> Joined {
        let mut slots = self.slots();
        match slots.get(&runtime) {
            Some(Slot::Open(channel)) if channel.is_open() => Joined::Done(Arc::clone(channel)),
            Some(Slot::Opening(outcome)) => Joined::Follower(outcome.clone()),
            _ => {
                let (report, outcome) = watch::channel(None);
                let closed = slots.insert(runtime, Slot::Opening(outcome.clone()));
                drop(slots);
                drop(closed);
                let runtimes = Arc::downgrade(self);
                Joined::Leader(outcome, Attempt { runtimes, runtime, report })
            }
        }
    }

    fn slots(&self) -> MutexGuard<'_, IdMap<runtime::Id, Slot>> {
        // Each change is one insertion or removal, so a poisoned map is a whole map.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.slots().len()
    }
}

enum Joined {
    Done(Arc<RedisChannel>),
    Follower(Outcome),
    Leader(Outcome, Attempt),
}

/// The one attempt of a runtime. Wherever it ends, also unfinished with its runtime, its slot does
/// not stay behind.
struct Attempt {
    runtimes: Weak<Runtimes>,
    runtime: runtime::Id,
    report: watch::Sender<Option<StoreResult<Arc<RedisChannel>>>>,
}

impl Attempt {
    async fn run(self, server: Arc<Server>) {
        let duty = Duty::Commands { runtimes: Weak::clone(&self.runtimes), runtime: self.runtime };
        let outcome = connect(&server, duty, None).await.map(Arc::new);
        if let Some(runtimes) = self.runtimes.upgrade() {
            let mut slots = runtimes.slots();
            match &outcome {
                // A channel that closes from here on finds itself in the map.
                Ok(channel) if channel.is_open() => {
                    slots.insert(self.runtime, Slot::Open(Arc::clone(channel)));
                }
                // Removed before anyone hears of it: who tries again starts anew.
                _ => {
                    slots.remove(&self.runtime);
                }
            }
        }
        self.report.send_replace(Some(outcome));
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        let Some(runtimes) = self.runtimes.upgrade() else { return };
        let mut slots = runtimes.slots();
        if matches!(slots.get(&self.runtime), Some(Slot::Opening(_))) {
            slots.remove(&self.runtime);
        }
    }
}

pub(super) fn no_runtime() -> StoreError {
    StoreError::new(
        StoreErrorKind::Refused,
        "redis can be reached from within a tokio runtime only: call this from async code on tokio",
    )
}

pub(super) fn given_up() -> StoreError {
    StoreError::new(
        StoreErrorKind::Unavailable,
        "connecting to redis ended early: the runtime was shut down, or was built without enable_all",
    )
}
