//! Which keys belong to a lock, all in one hash slot of a cluster.

use std::io;
use std::sync::LazyLock;

use redis::{RedisWrite, ToRedisArgs};

/// A key beside a lock's own, in the same slot whatever bytes the lock's key has.
///
/// No two locks share one: what follows `distlock:` starts with `{` or not, and what follows that
/// tag contains a `}` or not, so that the three forms cannot meet.
#[derive(Clone, Copy, Debug)]
pub(super) struct SideKey<'a> {
    lock: &'a str,
    name: &'static str,
}

impl<'a> SideKey<'a> {
    /// The contenders and their tickets.
    pub(super) const fn queue(lock: &'a str) -> Self {
        Self { lock, name: "queue" }
    }

    /// The contenders' deadlines and channels.
    pub(super) const fn waiters(lock: &'a str) -> Self {
        Self { lock, name: "waiters" }
    }
}

impl SideKey<'_> {
    fn write(&self, mut out: impl io::Write) -> io::Result<()> {
        let Self { lock, name } = self;
        // Piece by piece: every release writes two of them, and formatting costs ten times as much.
        let mut write =
            |pieces: &[&str]| pieces.iter().try_for_each(|piece| out.write_all(piece.as_bytes()));
        if hash_tag(lock.as_bytes()).is_some() {
            // The lock's own tag stays the first one.
            write(&["distlock:tag:", lock, ":", name])
        } else if !lock.contains('}') {
            write(&["distlock:{", lock, "}:", name])
        } else {
            // Braces around this key would end at its own `}`: a number of the same slot stands in.
            let number = NUMBERS[usize::from(slot(lock.as_bytes()))].to_string();
            write(&["distlock:{", &number, "}:", lock, ":", name])
        }
    }
}

#[cfg(test)]
impl SideKey<'_> {
    pub(super) fn text(&self) -> String {
        let mut bytes = Vec::new();
        self.write(&mut bytes).unwrap();
        String::from_utf8(bytes).unwrap()
    }
}

impl ToRedisArgs for SideKey<'_> {
    fn write_redis_args<W>(&self, out: &mut W)
    where
        W: ?Sized + RedisWrite,
    {
        self.write(out.writer_for_next_arg()).expect("a command in memory takes every byte");
    }
}

/// The part of a key that a cluster hashes, if it is not the whole: what stands between the first
/// `{` and the first `}` after it, unless that is nothing.
fn hash_tag(key: &[u8]) -> Option<&[u8]> {
    let start = key.iter().position(|byte| *byte == b'{')? + 1;
    let length = key[start..].iter().position(|byte| *byte == b'}')?;
    (length > 0).then(|| &key[start..start + length])
}

/// Where a cluster puts a key.
pub(super) fn slot(key: &[u8]) -> u16 {
    crc16(hash_tag(key).unwrap_or(key)) % SLOTS
}

/// Names a channel of a shard, in `slot`, by which the client `name` hears of grants. The script that
/// publishes knows it by its beginning.
#[cfg(feature = "cluster")]
pub(super) fn shard_channel(slot: u16, name: &str) -> String {
    format!("distlock:shard:{{{}}}:{name}", NUMBERS[usize::from(slot)])
}

/// CRC-16/XMODEM.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| (crc << 8) ^ CRC[usize::from((crc >> 8) as u8 ^ byte)])
}

/// For each slot the smallest number whose decimal digits hash to it. Most programs never need it.
pub(super) static NUMBERS: LazyLock<Vec<u32>> = LazyLock::new(|| {
    let mut numbers = vec![None; usize::from(SLOTS)];
    let mut missing = numbers.len();
    let mut number = 0_u32;
    while missing > 0 {
        let entry = &mut numbers[usize::from(slot(number.to_string().as_bytes()))];
        if entry.is_none() {
            *entry = Some(number);
            missing -= 1;
        }
        number += 1;
    }
    numbers.into_iter().flatten().collect()
});

pub(super) const SLOTS: u16 = 16_384;

const CRC: [u16; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = (byte as u16) << 8;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn crc_and_slots_are_those_of_the_cluster_specification() {
        assert_eq!(crc16(b"123456789"), 0x31C3);
        assert_eq!(slot(b"foo"), 12_182);
        assert_eq!(slot(b"{foo}.bar"), 12_182);
        assert_eq!(slot(b"{user1000}.following"), slot(b"{user1000}.followers"));
        assert_eq!(slot(b"foo{{bar}}zap"), crc16(b"{bar") % SLOTS);
        assert_eq!(slot(b"foo{}{bar}"), crc16(b"foo{}{bar}") % SLOTS);
        assert_eq!(slot(b""), 0);
    }

    #[test]
    fn side_keys_read_well() {
        assert_eq!(SideKey::queue("stock:lock:7").text(), "distlock:{stock:lock:7}:queue");
        assert_eq!(SideKey::waiters("{a}b").text(), "distlock:tag:{a}b:waiters");
        assert_eq!(SideKey::queue("a{b").text(), "distlock:{a{b}:queue");
        let odd = SideKey::queue("a}b").text();
        assert!(odd.starts_with("distlock:{") && odd.ends_with("}:a}b:queue"), "{odd}");
    }

    #[test]
    fn side_keys_lie_in_the_slot_of_their_lock() {
        for key in awkward_keys() {
            for side in [SideKey::queue(&key), SideKey::waiters(&key)] {
                assert_eq!(slot(side.text().as_bytes()), slot(key.as_bytes()), "{key:?}");
            }
        }
    }

    #[test]
    fn no_two_locks_share_a_side_key() {
        let mut owners = HashMap::new();
        for key in awkward_keys() {
            for side in [SideKey::queue(&key), SideKey::waiters(&key)] {
                if let Some(other) = owners.insert(side.text(), key.clone()) {
                    panic!("{key:?} and {other:?} share {side:?}");
                }
            }
        }
    }

    /// Every character of one byte and some of more, alone and around braces, and every short string
    /// over the characters that matter here.
    fn awkward_keys() -> Vec<String> {
        let mut keys: Vec<String> = Vec::new();
        for c in (0..=127_u8).map(char::from).chain(['é', '的', '🔒']) {
            if !"{}:".contains(c) && c != '5' && c != 'a' {
                keys.extend([
                    format!("{c}"),
                    format!("{{{c}}}x"),
                    format!("{c}}}"),
                    format!("{{{c}"),
                ]);
            }
        }
        let mut layer = vec![String::new()];
        for _ in 0..5 {
            layer = layer
                .iter()
                .flat_map(|key| ["{", "}", "5", "a", ":"].map(|c| format!("{key}{c}")))
                .collect();
            keys.extend(layer.iter().cloned());
        }
        keys
    }
}
