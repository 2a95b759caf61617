//! The driver's own thread, as far as others use it: synchronous calls have their futures run there.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;

/// The runtime of the driver's own thread, while there is one.
#[derive(Debug, Default)]
pub(super) struct Thread {
    handle: Mutex<Option<Handle>>,
    changed: Condvar,
}

impl Thread {
    /// The thread has a runtime from now on, or none any more.
    pub(super) fn set(&self, handle: Option<Handle>) {
        *self.lock() = handle;
        self.changed.notify_all();
    }

    /// The runtime of a thread that was just started. Blocks for the moment that this takes.
    pub(super) fn wait(&self) -> Option<Handle> {
        let started =
            self.changed.wait_timeout_while(self.lock(), STARTS_WITHIN, |handle| handle.is_none());
        started.unwrap_or_else(PoisonError::into_inner).0.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Option<Handle>> {
        self.handle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

const STARTS_WITHIN: Duration = Duration::from_secs(1);
