//! The one clock of the drill: all processes of a machine read the same.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// A moment on the machine's monotonic clock, in nanoseconds.
pub(crate) type Moment = u64;

pub(crate) fn now() -> Moment {
    read(ClockId::Monotonic)
}

/// The time that the calling thread has spent on a processor.
pub(crate) fn thread_time() -> Moment {
    read(ClockId::ThreadCPUTime)
}

pub(crate) fn nanos(duration: Duration) -> u64 {
    duration.as_nanos().try_into().unwrap_or(u64::MAX)
}

/// From `earlier` to `later`; zero if it is the other way round.
pub(crate) fn between(earlier: Moment, later: Moment) -> Duration {
    Duration::from_nanos(later.saturating_sub(earlier))
}

fn read(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    // Neither field is ever negative on these clocks.
    time.tv_sec.cast_unsigned() * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}
