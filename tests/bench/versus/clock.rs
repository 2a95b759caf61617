//! Time that several processes can compare, CPU time, and work of a known length.

use std::time::Duration;

use rustix::time::{ClockId, Timespec, clock_gettime};

/// Nanoseconds of the machine's monotonic clock.
pub(crate) fn now_ns() -> u64 {
    nanos(clock_gettime(ClockId::Monotonic))
}

/// CPU time of this process, all its threads together.
pub(crate) fn cpu_ns() -> u64 {
    nanos(clock_gettime(ClockId::ProcessCPUTime))
}

/// Keeps a core busy: a timer is too coarse for a hold of a millisecond. How long it really took.
pub(crate) fn work(duration: Duration) -> u64 {
    let begun_ns = now_ns();
    let until = begun_ns + duration.as_nanos() as u64;
    loop {
        let now = now_ns();
        if now >= until {
            return now - begun_ns;
        }
        std::hint::spin_loop();
    }
}

fn nanos(time: Timespec) -> u64 {
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
