//! What all keys stand on: time, names for owners, pace, and whom to wake.

use std::sync::Arc;
use std::time::Duration;

use super::outside::Outside;
use super::queue::Queue;
use super::{Command, Wakers};
use crate::clock::Timestamp;
use crate::protocol::contender::{Contender, Pace};
use crate::protocol::offer::HandOff;
use crate::schedule::Schedule;

#[derive(Clone, Debug)]
pub(super) struct Ground<O> {
    pub(super) outside: O,
    pub(super) pace: Pace,
    pub(super) hand_off: HandOff,
    /// When the driver looks at which key.
    pub(super) due: Schedule<Arc<str>>,
    /// What is to be given back at the next step.
    pub(super) owed: Vec<Command>,
    pub(super) wakers: Wakers,
}

/// What becomes of a key's queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(super) enum Standing {
    /// Nobody wants it: forget it.
    Idle,
    Needed,
}

impl<O: Outside> Ground<O> {
    pub(super) fn new(outside: O, pace: Pace, hand_off: HandOff) -> Self {
        let (due, owed, wakers) = (Schedule::new(), Vec::new(), Wakers::default());
        Self { outside, pace, hand_off, due, owed, wakers }
    }

    /// Something changed in the queue of `key`: sees to it that there is a contender if somebody wants
    /// one, and that the driver looks when there is something to do.
    pub(super) fn settle(&mut self, key: &Arc<str>, queue: &mut Queue) -> Standing {
        let wanted = queue.wanted().is_some();
        if wanted && queue.contender.is_none() {
            let owner = self.outside.new_owner();
            let start_at = if queue.trying > 0 {
                // Its answer is near, unless nobody polls the caller any more.
                self.outside.now() + PATIENCE_WITH_A_TRY
            } else if queue.is_held() {
                // It is likely passed on before the store could answer.
                self.outside.now() + PATIENCE
            } else {
                Timestamp::NOW
            };
            queue.contender = Some(Contender::new(owner, start_at, self.pace).into());
        }
        if queue.is_idle() {
            self.look_at(key, queue, Timestamp::NEVER);
            return Standing::Idle;
        }
        let at = queue.next_step(wanted);
        self.look_at(key, queue, at);
        Standing::Needed
    }

    /// Has the driver look at `key` at that time. An earlier look stays: it finds what is to be done
    /// then, and hot keys are not moved in the schedule all the time.
    pub(super) fn look_at(&mut self, key: &Arc<str>, queue: &mut Queue, at: Timestamp) {
        let moves = at < queue.due || at == Timestamp::NEVER;
        if moves && at != queue.due {
            self.due.set(&mut queue.due, Arc::clone(key), at);
        }
    }
}

impl Standing {
    pub(super) fn is_idle(self) -> bool {
        self == Self::Idle
    }
}

/// How long a waiter counts on a hold of its own process before the contender asks the store for a
/// place.
const PATIENCE: Duration = Duration::from_millis(1);

/// The same while a caller of its own process tries: a round trip on a usual network.
pub(super) const PATIENCE_WITH_A_TRY: Duration = Duration::from_millis(50);
