//! Reentrancy: which holds the code that runs now is inside of.
//!
//! While a body is polled its hold is in scope, for that poll and nothing else: not by thread, task
//! id or process. Each entry into a hold is a [`Frame`]; a nested call on the same key enters the
//! nearest frame of that key. Siblings inside one frame enter one after the other, through its gate;
//! a descendant stands in a frame of its own, so an ancestor never blocks it.

use std::sync::{Arc, OnceLock, Weak};

use tokio::sync::Semaphore;

use crate::driver::Core;
use crate::hold::Hold;
use crate::lease::Lease;

tokio::task_local! {
    static CURRENT: Option<Arc<Frame>>;
}

/// One entry into a hold, and what it was made inside of.
#[derive(Debug)]
pub(crate) struct Frame {
    core: Weak<Core>,
    /// Weak: being able to look at a hold must not make it last.
    hold: Weak<Hold>,
    lease: Arc<Lease>,
    /// Made by the first nested call: most frames have none.
    gate: OnceLock<Arc<Semaphore>>,
    parent: Option<Arc<Self>>,
}

impl Frame {
    /// A new entry into `hold`, made inside `parent`.
    pub(crate) fn enter(hold: &Arc<Hold>, parent: Option<Arc<Self>>) -> Arc<Self> {
        Arc::new(Self {
            core: Arc::downgrade(hold.core()),
            hold: Arc::downgrade(hold),
            lease: Arc::clone(hold.lease()),
            gate: OnceLock::new(),
            parent,
        })
    }

    /// The nearest entry into a hold of `key` by `core`, from here outwards.
    pub(crate) fn find(self: &Arc<Self>, core: &Arc<Core>, key: &str) -> Option<Arc<Self>> {
        self.outwards()
            .find(|frame| {
                **frame.lease.key() == *key && std::ptr::eq(frame.core.as_ptr(), Arc::as_ptr(core))
            })
            .cloned()
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

    /// Lets one nested entry in at a time.
    pub(crate) fn gate(&self) -> &Arc<Semaphore> {
        self.gate.get_or_init(|| Arc::new(Semaphore::new(1)))
    }
}

/// The innermost entry that the code that runs now is inside of.
pub(crate) fn current() -> Option<Arc<Frame>> {
    CURRENT.try_with(Clone::clone).unwrap_or_default()
}

/// Runs `poll` inside `frame`.
pub(crate) fn inside<R>(frame: Option<Arc<Frame>>, poll: impl FnOnce() -> R) -> R {
    CURRENT.sync_scope(frame, poll)
}
