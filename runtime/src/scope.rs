//! Reentrancy: which holds the code that runs now is inside of.
//!
//! While a body is polled its hold is in scope, for that poll and nothing else: not by thread, task
//! id or process. Each entry into a hold is a [`Frame`]; a nested call on the same key enters the
//! nearest frame of that key. Siblings inside one frame enter one after the other, through its gate;
//! a descendant stands in a frame of its own, so an ancestor never blocks it.

use std::sync::{Arc, OnceLock, Weak};

use tokio::sync::{Semaphore, SemaphorePermit};

use crate::driver::Core;
use crate::hold::Hold;
use crate::lease::Lease;

tokio::task_local! {
    static CURRENT: Option<Arc<Frame>>;
}

/// One entry into a hold, and what it was made inside of.
#[derive(Debug)]
pub(crate) struct Frame {
    /// Whose hold it is.
    client: u128,
    /// Weak: being able to look at a hold must not make it last.
    hold: Weak<Hold>,
    lease: Arc<Lease>,
    /// Made by the first nested call: most frames have none.
    gate: OnceLock<Box<Semaphore>>,
    parent: Option<Arc<Self>>,
}

impl Frame {
    /// A new entry into `hold`, made inside `parent`.
    pub(crate) fn enter(hold: &Arc<Hold>, parent: Option<Arc<Self>>) -> Arc<Self> {
        Arc::new(Self {
            client: hold.core().instance().id(),
            hold: Arc::downgrade(hold),
            lease: Arc::clone(hold.lease()),
            gate: OnceLock::new(),
            parent,
        })
    }

    /// The nearest entry into a hold of `key` by `core`, from here outwards.
    fn find(self: &Arc<Self>, core: &Arc<Core>, key: &str) -> Option<Arc<Self>> {
        let client = core.instance().id();
        self.outwards().find(|frame| frame.client == client && **frame.lease.key() == *key).cloned()
    }

    /// This entry and those around it.
    pub(crate) fn outwards<'a>(self: &'a Arc<Self>) -> impl Iterator<Item = &'a Arc<Self>> + 'a {
        std::iter::successors(Some(self), |frame| frame.parent.as_ref())
    }

    pub(crate) fn hold(&self) -> Option<Arc<Hold>> {
        self.hold.upgrade()
    }

    pub(crate) fn lease(&self) -> &Arc<Lease> {
        &self.lease
    }

    /// Lets a nested entry in, unless one is in.
    pub(crate) fn try_pass(self: Arc<Self>) -> Result<Permit, Arc<Self>> {
        // The permit stands for the semaphore's own.
        let passes = self.gate().try_acquire().map(SemaphorePermit::forget).is_ok();
        if passes { Ok(Permit(self)) } else { Err(self) }
    }

    /// Lets a nested entry in when no other one is. A drop gives up the place at the gate.
    pub(crate) async fn pass(self: Arc<Self>) -> Permit {
        // The gate is never closed.
        if let Ok(permit) = self.gate().acquire().await {
            permit.forget();
        }
        Permit(self)
    }

    fn gate(&self) -> &Semaphore {
        self.gate.get_or_init(|| Box::new(Semaphore::new(1)))
    }
}

/// The one nested entry that its frame lets in at a time; dropped, it lets the next one in.
#[derive(Debug)]
pub(crate) struct Permit(Arc<Frame>);

impl Permit {
    /// Through whose gate it let.
    pub(crate) fn frame(&self) -> &Arc<Frame> {
        &self.0
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.gate().add_permits(1);
    }
}

/// The innermost entry that the code that runs now is inside of.
pub(crate) fn current() -> Option<Arc<Frame>> {
    CURRENT.try_with(Clone::clone).unwrap_or_default()
}

/// The nearest entry into a hold of `key` by `core` that the code that runs now is inside of.
pub(crate) fn find(core: &Arc<Core>, key: &str) -> Option<Arc<Frame>> {
    CURRENT.try_with(|frame| frame.as_ref()?.find(core, key)).unwrap_or_default()
}

/// Runs `poll` inside `frame`.
pub(crate) fn inside<R>(frame: Option<Arc<Frame>>, poll: impl FnOnce() -> R) -> R {
    CURRENT.sync_scope(frame, poll)
}
