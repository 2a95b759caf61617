//! The only file that reads time.
//!
//! Validity of a hold is judged on a clock that also counts suspend: a machine that slept past the
//! lease must find its locks lost at the first look. The memory store uses tokio's clock instead,
//! so that a test under paused time can move it.

use std::ops::{Add, Sub};
use std::time::Duration;

/// Which clock a client's store lives by.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Clock {
    /// Time since boot, suspend included.
    Boot,
    /// The caller's tokio clock, counted from an origin.
    Tokio { origin: tokio::time::Instant },
}

impl Clock {
    pub(crate) fn tokio() -> Self {
        Self::Tokio { origin: tokio::time::Instant::now() }
    }

    pub(crate) fn now(self) -> Timestamp {
        match self {
            Self::Boot => Timestamp(boot_nanos()),
            Self::Tokio { origin } => {
                Timestamp(nanos(tokio::time::Instant::now().saturating_duration_since(origin)))
            }
        }
    }
}

/// A reading of a [`Clock`], in nanoseconds since its origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Timestamp(u64);

impl Timestamp {
    /// Not later than any reading: due at once.
    pub(crate) const NOW: Self = Self(0);

    /// Later than any reading a process will ever make.
    pub(crate) const NEVER: Self = Self(u64::MAX);

    pub(crate) const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    pub(crate) const fn as_nanos(self) -> u64 {
        self.0
    }

    /// How far this lies after `earlier`; zero if it does not.
    pub(crate) fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Timestamp {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(nanos(duration)))
    }
}

impl Sub<Duration> for Timestamp {
    type Output = Self;

    fn sub(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(nanos(duration)))
    }
}

/// The wall clock, in microseconds since 1970: for what must go on after a restart, never for
/// durations.
pub(crate) fn unix_micros() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| u64::try_from(since.as_micros()).unwrap_or(u64::MAX))
}

/// A duration in nanoseconds, or the most that can be said.
pub(crate) fn nanos(duration: Duration) -> u64 {
    let seconds = duration.as_secs().saturating_mul(1_000_000_000);
    seconds.saturating_add(duration.subsec_nanos().into())
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn boot_nanos() -> u64 {
    posix_nanos(rustix::time::ClockId::Boottime)
}

// On macOS and the BSDs the monotonic clock goes on during sleep.
#[cfg(all(unix, not(any(target_os = "linux", target_os = "android"))))]
fn boot_nanos() -> u64 {
    posix_nanos(rustix::time::ClockId::Monotonic)
}

#[cfg(unix)]
fn posix_nanos(clock: rustix::time::ClockId) -> u64 {
    let time = rustix::time::clock_gettime(clock);
    // Both fields are never negative on these clocks.
    (time.tv_sec as u64).saturating_mul(1_000_000_000).saturating_add(time.tv_nsec as u64)
}

// Elsewhere the best the standard library has; whether it counts suspend is up to the system.
#[cfg(not(unix))]
fn boot_nanos() -> u64 {
    use std::sync::LazyLock;
    use std::time::Instant;

    static ORIGIN: LazyLock<Instant> = LazyLock::new(Instant::now);
    nanos(ORIGIN.elapsed())
}
