//! How much of the world one run explores.

use std::fmt;
use std::time::Duration;

use crate::clock::Timestamp;
use crate::options::Release;
use crate::protocol::offer::HandOff;

/// The bounds of one run: all that may happen within them is tried, in every order.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// How many callers come in each of the two processes.
    pub(super) callers: [usize; 2],
    /// How long a body runs at most; it may end at any time before.
    pub(super) body: Duration,
    /// Callers come until this long after the beginning.
    pub(super) come_within: Duration,
    pub(super) driver: Driver,
    /// Whether bodies that finish wait for the answers to their releases.
    pub(super) release: Release,
    pub(super) budget: Budget,
}

/// When a driver takes its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Driver {
    /// Before or after whatever else happens at the time.
    AnyOrder,
    /// Before anything else happens, which leaves fewer orders to try.
    AtOnce,
}

/// What the checker may spend at points of its choice.
#[derive(Clone, Copy, Debug, Hash)]
pub(super) struct Budget {
    /// Messages that are lost, late or doubled, and frozen or dead processes.
    pub(super) faults: u8,
    /// Callers that are dropped, wherever they are.
    pub(super) drops: u8,
    /// Waiting callers that are never polled again, nor dropped.
    pub(super) stalls: u8,
}

impl Bounds {
    pub(super) const fn drops(mut self, drops: u8) -> Self {
        self.budget.drops = drops;
        self
    }

    pub(super) const fn stalls(mut self, stalls: u8) -> Self {
        self.budget.stalls = stalls;
        self
    }
}

impl fmt::Display for Bounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { callers: [first, second], body, come_within, driver, release, budget } = self;
        let Budget { faults, drops, stalls } = budget;
        write!(
            f,
            "{first}+{second} callers within {come_within:?}, body {body:?}, driver {driver:?}, \
             release {release:?}, \
             {faults} faults, {drops} drops, {stalls} stalls"
        )
    }
}

pub(super) const LEASE: Duration = Duration::from_secs(3);
pub(super) const CLAIM: Duration = Duration::from_millis(500);
pub(super) const HAND_OFF: HandOff = HandOff { passes: 1, within: Duration::from_secs(2) };

/// A lock that is free or on offer gets to whoever waits within this, if nothing goes wrong.
pub(super) const PROMPT: Duration = Duration::from_millis(5);

/// A late message comes within this, which is longer than a lease.
pub(super) const LATE: Duration = Duration::from_secs(4);

/// A request that its sender gave up on takes effect within this: less than a lease, after which
/// nobody looks for it any more, and what it takes lapses.
pub(super) const STRAY: Duration = Duration::from_millis(1_600);

/// A frozen process goes on within this, which is longer than a lease.
pub(super) const FROZEN: Duration = Duration::from_millis(3_500);

/// Whoever waits is served by then, whatever the faults.
pub(super) const SERVED_BY: Timestamp = Timestamp::from_nanos(40_000_000_000);
