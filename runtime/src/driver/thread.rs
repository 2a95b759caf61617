//! The driver's own thread, as far as others use it: synchronous calls have their futures run there.

use std::future::Future;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;

use super::{Core, Phase, Place};

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

impl Core {
    /// Runs `future` on the driver's own thread, which is started if need be, and blocks until it is
    /// ready. `None` if there is no thread to be had, or it ends meanwhile.
    pub(crate) fn block_on<T: Send + 'static>(
        &self,
        future: impl Future<Output = T> + Send + 'static,
    ) -> Option<T> {
        let _blocked = Blocked::begin(self);
        let (sender, receiver) = std::sync::mpsc::sync_channel(1);
        self.thread.wait()?.spawn(async move { sender.send(future.await) });
        receiver.recv().ok()
    }
}

/// A caller that blocks. The driver's thread stays for it, also when the client's last handle is
/// gone.
struct Blocked<'a> {
    core: &'a Core,
}

impl<'a> Blocked<'a> {
    fn begin(core: &'a Core) -> Self {
        let start = {
            let mut state = core.lock();
            state.blocked += 1;
            let runs = state.drivers.contains(&Place::OwnThread);
            state.drivers.extend((!runs).then_some(Place::OwnThread));
            !runs
        };
        if start {
            core.start(Place::OwnThread);
        }
        Self { core }
    }
}

impl Drop for Blocked<'_> {
    fn drop(&mut self) {
        let mut state = self.core.lock();
        state.blocked -= 1;
        let may_end = state.blocked == 0 && state.phase != Phase::Open;
        drop(state);
        if may_end {
            self.core.wake.notify_waiters();
        }
    }
}

const STARTS_WITHIN: Duration = Duration::from_secs(1);
