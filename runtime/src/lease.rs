//! What is held: one grant of one key, shared by the body's wrapper, the watchdog and whoever looks.
//!
//! All atomics of the crate are here. The deadline only ever grows while the hold lives, and the
//! first end is final: a hold that was lost, or released, never becomes valid again.

use std::fmt;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering, fence};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::sync::futures::OwnedNotified;

use crate::backend::Lock;
use crate::clock::{Clock, Timestamp};
use crate::error::{LockError, LockErrorKind};
use crate::protocol::hold::{End, Hold};

/// The shared view of one hold.
pub(crate) struct Lease {
    lock: Lock,
    clock: Clock,
    /// The local deadline in nanoseconds of `clock`.
    ///
    /// Relaxed: it publishes nothing but itself. A reader that misses a renewal sees an earlier
    /// deadline, which errs on the safe side.
    deadline: AtomicU64,
    /// One of the constants below.
    ///
    /// AcqRel on the one transition away from HELD, so that whoever sees the end also sees what was
    /// done before it.
    state: AtomicU8,
    /// The fencing token, zero while none is drawn.
    ///
    /// AcqRel on the one transition away from zero: the first draw counts for the whole hold.
    token: AtomicU64,
    /// Where `max_hold` ends.
    limit: Timestamp,
    /// Made by the first one that waits for the end.
    ///
    /// Whoever makes it looks at `state` afterwards, and whoever changes `state` looks here
    /// afterwards, each past a fence: so one of the two sees the other.
    over: OnceLock<Arc<Notify>>,
}

impl Lease {
    pub(crate) fn new(lock: Lock, clock: Clock, hold: &Hold, token: Option<u64>) -> Self {
        Self {
            lock,
            clock,
            deadline: AtomicU64::new(hold.deadline().as_nanos()),
            state: AtomicU8::new(HELD),
            token: AtomicU64::new(token.unwrap_or(0)),
            limit: hold.limit(),
            over: OnceLock::new(),
        }
    }

    /// The store confirmed a renewal.
    pub(crate) fn extend_to(&self, deadline: Timestamp) {
        self.deadline.fetch_max(deadline.as_nanos(), Ordering::Relaxed);
    }

    /// Ends the hold; only the first end counts.
    pub(crate) fn end(&self, end: End) {
        self.finish(match end {
            End::Expired => EXPIRED,
            End::Limit => LIMIT,
            End::ShutDown => SHUT_DOWN,
            End::Taken => TAKEN,
        });
    }

    /// Marks the hold as released by its owner. False if it had ended before.
    pub(crate) fn release(&self) -> bool {
        self.finish(RELEASED)
    }

    /// Why the hold is over, if it is: looks at the clock first, so that nobody who woke late goes
    /// on.
    pub(crate) fn over(&self) -> Option<Over> {
        let mut state = self.state.load(Ordering::Acquire);
        if state == HELD {
            let now = self.clock.now();
            if now >= self.limit {
                self.end(End::Limit);
            } else if now >= self.deadline() {
                self.end(End::Expired);
            } else {
                return None;
            }
            state = self.state.load(Ordering::Acquire);
        }
        Some(match state {
            LIMIT => Over::Lost(End::Limit),
            SHUT_DOWN => Over::Lost(End::ShutDown),
            TAKEN => Over::Lost(End::Taken),
            RELEASED => Over::Released,
            _ => Over::Lost(End::Expired),
        })
    }

    /// How long the hold is valid without another renewal.
    pub(crate) fn remaining(&self) -> Duration {
        match self.over() {
            None => self.deadline().min(self.limit).since(self.clock.now()),
            Some(_) => Duration::ZERO,
        }
    }

    /// The fencing token, if one is drawn.
    pub(crate) fn token(&self) -> Option<u64> {
        Some(self.token.load(Ordering::Acquire)).filter(|token| *token != 0)
    }

    /// Notes a drawn token; the one that counts.
    pub(crate) fn set_token(&self, drawn: u64) -> u64 {
        match self.token.compare_exchange(0, drawn, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => drawn,
            Err(first) => first,
        }
    }

    pub(crate) fn deadline(&self) -> Timestamp {
        Timestamp::from_nanos(self.deadline.load(Ordering::Relaxed))
    }

    /// Wakes once the hold is over; check [`over`](Self::over) after creating it.
    pub(crate) fn ended(&self) -> OwnedNotified {
        let over = Arc::clone(self.over.get_or_init(Arc::default));
        fence(Ordering::SeqCst);
        over.notified_owned()
    }

    /// Where `max_hold` ends.
    pub(crate) fn limit(&self) -> Timestamp {
        self.limit
    }

    pub(crate) fn lock(&self) -> &Lock {
        &self.lock
    }

    pub(crate) fn key(&self) -> &Arc<str> {
        &self.lock.key
    }

    fn finish(&self, state: u8) -> bool {
        let first =
            self.state.compare_exchange(HELD, state, Ordering::AcqRel, Ordering::Acquire).is_ok();
        fence(Ordering::SeqCst);
        if first && let Some(over) = self.over.get() {
            over.notify_waiters();
        }
        first
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease")
            .field("lock", &self.lock)
            .field("remaining", &self.remaining())
            .finish_non_exhaustive()
    }
}

/// How a hold ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Over {
    Lost(End),
    Released,
}

impl Over {
    /// The error for a body that was stopped by this end, or, with `completed`, ran past it.
    pub(crate) fn error(self, key: &Arc<str>, completed: bool) -> LockError {
        let (kind, message) = match self {
            Self::Lost(End::Expired) => {
                (LockErrorKind::Lost { completed }, "lock lost: not confirmed by its deadline")
            }
            Self::Lost(End::Limit) => (LockErrorKind::HoldLimit, "lock held for max_hold"),
            Self::Lost(End::ShutDown) => {
                (LockErrorKind::ShutDown, "lock given up: the client was shut down")
            }
            Self::Lost(End::Taken) => {
                (LockErrorKind::Lost { completed }, "lock lost: the store says it is not ours")
            }
            Self::Released => (LockErrorKind::Lost { completed }, "lock released already"),
        };
        LockError::new(kind, message).with_key(key)
    }
}

const HELD: u8 = 0;
const EXPIRED: u8 = 1;
const LIMIT: u8 = 2;
const RELEASED: u8 = 3;
const SHUT_DOWN: u8 = 4;
const TAKEN: u8 = 5;
