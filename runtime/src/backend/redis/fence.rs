//! Where fencing tokens come from: a counter that is also a clock.
//!
//! It is the identifier that Redis gives to an entry of a stream: its clock in milliseconds and a number
//! within the millisecond, or one more than the last identifier if the clock is behind that. So tokens
//! grow while the counter is there, whatever the clock does, and when the counter is gone they still grow
//! as long as the clock is not behind the last one. (A hybrid logical clock, as in Kulkarni et al.,
//! "Logical Physical Clocks", 2014.) The stream itself stays empty.
//!
//! Tokens are compared key by key, so one counter serves all locks of a server, or of a slot in a
//! cluster. It is never forgotten, and memory does not grow with the keys.

use redis::{Cmd, RedisWrite, ToRedisArgs};

use super::slot::{NUMBERS, slot};

/// The counter that a lock's tokens come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FenceKey {
    /// One for all.
    Server,
    /// That of a slot, where keys of several slots cannot be in one script.
    Slot(u16),
}

/// What a counter gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    Token(u64),
    /// None: there is no counter yet, or the clock has stood behind it for so long that one millisecond
    /// has no more numbers. The script that draws puts both right.
    Unready,
}

impl FenceKey {
    pub(super) fn in_slot_of(lock: &str) -> Self {
        Self::Slot(slot(lock.as_bytes()))
    }
}

impl ToRedisArgs for FenceKey {
    fn write_redis_args<W>(&self, out: &mut W)
    where
        W: ?Sized + RedisWrite,
    {
        match self {
            Self::Server => out.write_arg(FENCE.as_bytes()),
            Self::Slot(slot) => {
                let number = NUMBERS[usize::from(*slot)];
                out.write_arg_fmt(format_args!("distlock:{{{number}}}:fence"));
            }
        }
    }
}

/// Draws from a counter that is there, whoever holds the lock.
pub(super) fn draw(fence: FenceKey) -> Cmd {
    let mut command = Cmd::with_capacity(8, 64);
    command.arg("XADD").arg(fence).arg("NOMKSTREAM");
    command.arg("MAXLEN").arg(0).arg("*").arg("").arg("");
    command
}

/// The same, and makes the counter if there is none, for where no script can. Then it begins with the
/// millisecond: one that was lost in that very millisecond may have given higher tokens.
#[cfg(feature = "cluster")]
pub(super) fn draw_or_create(fence: FenceKey) -> Cmd {
    let mut command = redis::cmd("XADD");
    command.arg(fence).arg("MAXLEN").arg(0).arg("*").arg("").arg("");
    command
}

/// Reads `<milliseconds>-<number>`.
pub(super) fn mark(id: &[u8]) -> Option<Mark> {
    let (millis, number) = std::str::from_utf8(id).ok()?.split_once('-')?;
    let (millis, number): (u64, u64) = (millis.parse().ok()?, number.parse().ok()?);
    if number >= PER_MILLI {
        return Some(Mark::Unready);
    }
    millis.checked_mul(PER_MILLI).map(|millis| Mark::Token(millis + number))
}

/// In a cluster `distlock:{<number>}:fence`, with the smallest number in the slot.
pub(super) const FENCE: &str = "distlock:fence";

/// So many tokens has a millisecond: more than a server can give in one. They fit in 53 bits until the
/// year 2109. The scripts have the same number.
const PER_MILLI: u64 = 2048;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_in_the_order_of_the_identifiers() {
        let ids = ["1796089214205-0", "1796089214205-1", "1796089214205-2047", "1796089214206-0"];
        let tokens: Vec<_> = ids.iter().map(|id| mark(id.as_bytes())).collect();
        for (token, next) in tokens.iter().zip(&tokens[1..]) {
            let (Some(Mark::Token(token)), Some(Mark::Token(next))) = (token, next) else {
                panic!("{tokens:?}");
            };
            assert!(token < next, "{tokens:?}");
        }
        assert_eq!(mark(b"1796089214205-2048"), Some(Mark::Unready));
    }

    #[test]
    fn what_is_no_identifier_is_no_token() {
        for id in ["", "-", "1", "1-", "-1", "a-1", "1-a", "99999999999999999999-0"] {
            assert_eq!(mark(id.as_bytes()), None, "{id}");
        }
        assert_eq!(mark(&[0xFF]), None);
    }

    #[test]
    fn the_scripts_count_alike() {
        for script in [include_str!("lua/draw.lua"), include_str!("lua/raise.lua")] {
            assert!(script.contains(&format!("PER_MILLI = {PER_MILLI}\n")), "{script}");
        }
    }
}
