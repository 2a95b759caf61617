//! What a body that is made before its lock finds in there: the lock, or why there is none.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crate::entered::Entered;
use crate::error::LockError;
use crate::held::HeldLock;

/// Where a body finds the lock that it was made before.
#[derive(Debug)]
pub struct HeldSlot(Arc<OnceLock<HeldLock>>);

/// Where a body that answers for a refusal itself finds the error.
#[derive(Debug)]
pub struct Refusal(Arc<Mutex<Option<LockError>>>);

/// The other ends of both, as far as the body has them.
#[derive(Debug, Default)]
pub(crate) struct Slots {
    held: Option<Arc<OnceLock<HeldLock>>>,
    refusal: Option<Arc<Mutex<Option<LockError>>>>,
}

impl HeldSlot {
    /// The lock that the body runs under.
    ///
    /// # Panics
    ///
    /// Never as the macros use it: in a body, and where it may run unlocked they ask
    /// [`held_if_locked`](Self::held_if_locked).
    #[must_use]
    pub fn held(self) -> HeldLock {
        self.held_if_locked().expect("a body that cannot run unlocked has a lock")
    }

    /// The lock that the body runs under, if there is one.
    #[must_use]
    pub fn held_if_locked(self) -> Option<HeldLock> {
        self.0.get().cloned()
    }
}

impl Refusal {
    /// The error, if the lock was refused: then the body runs without it, only to answer.
    #[must_use]
    pub fn take(self) -> Option<LockError> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Slots {
    pub(crate) fn held(&mut self) -> HeldSlot {
        HeldSlot(Arc::clone(self.held.get_or_insert_default()))
    }

    pub(crate) fn refusal(&mut self) -> Refusal {
        Refusal(Arc::clone(self.refusal.get_or_insert_default()))
    }

    /// Tells the body of its lock, or of the error if it is the body that answers for it.
    pub(crate) fn fill(&self, outcome: Result<Entered, LockError>) -> Result<Entered, LockError> {
        match (outcome, &self.refusal) {
            (Ok(entered), _) => {
                if let Some(slot) = &self.held
                    && let Some(held) = entered.held_if_locked()
                {
                    // Empty until now: there is one outcome.
                    let _ = slot.set(held);
                }
                Ok(entered)
            }
            (Err(error), Some(refusal)) => {
                *refusal.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                Ok(Entered::unlocked())
            }
            (Err(error), None) => Err(error),
        }
    }
}
