//! Pauses between tries: growing, capped, and jittered so that processes do not move in step.

use std::time::Duration;

/// The pause after the `failures`-th failure in a row (from 0): doubling from `first` up to `cap`,
/// less a part of at most a half.
pub(crate) fn pause(failures: u32, first: Duration, cap: Duration, chance: Chance) -> Duration {
    let full = first.saturating_mul(2u32.saturating_pow(failures)).min(cap);
    full - chance.part_of(full / 2)
}

/// A roll of the dice, made outside so that decisions stay reproducible.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chance(f64);

impl Chance {
    /// Rolls. Uuids are the only source of randomness that the crate needs.
    pub(crate) fn roll() -> Self {
        let (_, low) = uuid::Uuid::new_v4().as_u64_pair();
        // The top two bits of this half are fixed; the 32 taken here are random.
        Self(f64::from((low >> 16) as u32) / (f64::from(u32::MAX) + 1.0))
    }

    /// Always the same roll, 0 to 1, for tests.
    #[cfg(test)]
    pub(crate) const fn fixed(roll: f64) -> Self {
        Self(roll)
    }

    /// Between nothing and all of `duration`.
    pub(crate) fn part_of(self, duration: Duration) -> Duration {
        duration.mul_f64(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_up_to_the_cap_and_keeps_at_least_half() {
        let (first, cap) = (Duration::from_millis(10), Duration::from_millis(100));
        for (failures, full) in [(0, 10), (1, 20), (2, 40), (3, 80), (4, 100), (u32::MAX, 100)] {
            let full = Duration::from_millis(full);

            assert_eq!(pause(failures, first, cap, Chance::fixed(0.0)), full);
            assert_eq!(pause(failures, first, cap, Chance::fixed(1.0)), full / 2);
        }
    }

    #[test]
    fn rolls_differ() {
        let first = Chance::roll().0;

        assert!((0..10).any(|_| Chance::roll().0 != first));
    }
}
