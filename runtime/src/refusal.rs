//! Why a caller gets no hold, and how that reads.

use std::sync::Arc;
use std::time::Duration;

use crate::backend::{StoreError, StoreErrorKind};
use crate::clock::Timestamp;
use crate::error::{LockError, LockErrorKind};
use crate::instance::Instance;
use crate::wait::{Report, Verdict};

/// Why a caller gets no hold.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// Held, and there is no time to wait: by this owner, as far as known.
    Held(Option<Arc<str>>),
    /// The call was made outside of a tokio runtime.
    NoRuntime,
    QueueFull,
    ShutDown,
    Store(StoreError),
    TimedOut,
    /// Granted, but half of the lease was over each time when the answer was here.
    TooSlow {
        lease: Duration,
    },
}

impl Refusal {
    /// The error for a call on `key` that took `waited`.
    pub(crate) fn error(
        self,
        instance: &Instance,
        key: &Arc<str>,
        now: Timestamp,
        waited: Duration,
        report: &Report,
    ) -> LockError {
        let error = match self {
            Self::Held(owner) => match (owner.or_else(|| report.owner.clone()), &report.trouble) {
                // Others of this process wait, and all that is known is why they do.
                (None, Some(trouble)) => store(trouble.clone()),
                (owner, _) => timeout("lock is held", instance, owner, report, now),
            },
            Self::NoRuntime => LockError::new(
                LockErrorKind::Config,
                "locks need a tokio runtime with time and I/O enabled: call this from one",
            ),
            Self::QueueFull => LockError::new(
                LockErrorKind::QueueFull,
                "max_waiters callers of this process wait for the lock already",
            ),
            Self::ShutDown => {
                LockError::new(LockErrorKind::ShutDown, "the lock client was shut down")
            }
            Self::Store(error) => store(error),
            Self::TimedOut => match &report.trouble {
                Some(trouble) => store(trouble.clone()),
                None if report.owner.is_none() => LockError::new(
                    LockErrorKind::Backend,
                    "the store did not answer within the whole wait",
                ),
                None => {
                    let owner = report.owner.clone();
                    timeout("lock not obtained in time", instance, owner, report, now)
                }
            },
            Self::TooSlow { lease } => LockError::new(
                LockErrorKind::Backend,
                format!(
                    "lease too short for this round trip: half of {lease:?} was over when the \
                     grant arrived, so it was given back; use a longer lease"
                ),
            ),
        };
        error.with_key(key).with_waited(waited)
    }
}

impl From<StoreError> for Refusal {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<Verdict> for Refusal {
    fn from(verdict: Verdict) -> Self {
        match verdict {
            Verdict::ShutDown => Self::ShutDown,
            Verdict::Store(error) => Self::Store(error),
        }
    }
}

/// The error for a store that gave no answer.
pub(crate) fn store(error: StoreError) -> LockError {
    match error.kind {
        StoreErrorKind::Foreign => LockError::new(
            LockErrorKind::ForeignValue,
            "the key holds a value that is no lock, which is left untouched: choose another key \
             or remove the value",
        ),
        StoreErrorKind::Refused | StoreErrorKind::Unavailable => {
            LockError::new(LockErrorKind::Backend, "lock store unavailable")
        }
    }
    .with_source(error)
}

fn timeout(
    text: &'static str,
    instance: &Instance,
    owner: Option<Arc<str>>,
    report: &Report,
    now: Timestamp,
) -> LockError {
    let ours = owner.as_ref().is_some_and(|owner| instance.made(owner));
    let error = if ours || report.held_here {
        let text = format!(
            "{text}: this process itself holds it, a likely self-deadlock if the holder waits for \
             this call (a spawned task does not inherit a lock: \
             LockScope::current().instrument(..))"
        );
        LockError::new(LockErrorKind::Timeout, text)
    } else {
        LockError::new(LockErrorKind::Timeout, text)
    };
    let retry_after = report.expected_end.map(|end| end.since(now));
    error.with_owner(owner).with_retry_after(retry_after)
}
