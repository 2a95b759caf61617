//! What the replies of the commands and scripts mean.

use std::sync::Arc;
use std::time::Duration;

use redis::Value;

#[cfg(feature = "cluster")]
use super::fence::{self, Mark};
use crate::backend::{
    Acquired, Contended, Drawn, Holder, Released, Renewed, StoreError, StoreErrorKind, StoreResult,
};

pub(super) fn acquired(reply: Value, address: &str) -> StoreResult<Acquired> {
    match reply {
        Value::Nil => Ok(Acquired::Granted),
        Value::BulkString(holder) => Ok(Acquired::HeldBy(text(&holder))),
        other => Err(unexpected(&other, address)),
    }
}

pub(super) fn contended(reply: Value, address: &str) -> StoreResult<Contended> {
    let places = match reply {
        Value::Int(1) => return Ok(Contended::Granted),
        Value::Int(2) => return Ok(Contended::Mine),
        Value::Int(3) => return Err(foreign(address)),
        Value::Array(places) => places,
        other => return Err(unexpected(&other, address)),
    };
    match places.as_slice() {
        [Value::BulkString(holder), Value::Int(remaining_ms), Value::Int(ahead)] => {
            Ok(Contended::Queued {
                holder: text(holder),
                remaining: millis(*remaining_ms),
                ahead: usize::try_from(*ahead).unwrap_or(0),
            })
        }
        _ => Err(unexpected(&Value::Array(places), address)),
    }
}

pub(super) fn drawn(reply: Value, address: &str) -> StoreResult<Drawn> {
    match reply {
        Value::BulkString(holder) => Ok(Drawn::HeldBy(text(&holder))),
        Value::Int(token) if token > 0 => Ok(Drawn::Token(token.unsigned_abs())),
        Value::Nil => Ok(Drawn::Gone),
        other => Err(unexpected(&other, address)),
    }
}

/// The answer to a draw that looks at no lock.
#[cfg(feature = "cluster")]
pub(super) fn marked(reply: &Value, address: &str) -> StoreResult<u64> {
    let Value::BulkString(id) = reply else { return Err(unexpected(reply, address)) };
    match fence::mark(id) {
        Some(Mark::Token(token)) => Ok(token),
        Some(Mark::Unready) => Err(StoreError::new(
            StoreErrorKind::Unavailable,
            format!("the clock of redis at {address} has stood behind its fencing tokens for long"),
        )),
        None => Err(unexpected(reply, address)),
    }
}

pub(super) fn renewed(reply: &Value, count: usize, address: &str) -> StoreResult<Vec<Renewed>> {
    each(reply, count, address, |code| match code {
        Value::Int(1) => Some(Renewed::Renewed),
        Value::Int(2) => Some(Renewed::Gone),
        Value::Int(3) => Some(Renewed::Taken),
        Value::Int(4) => Some(Renewed::Foreign),
        _ => None,
    })
}

/// The answer to a single release comes by itself.
pub(super) fn released(reply: Value, count: usize, address: &str) -> StoreResult<Vec<Released>> {
    let reply = if count == 1 { Value::Array(vec![reply]) } else { reply };
    each(&reply, count, address, |answer| match answer {
        Value::Int(1) => Some(Released::Freed),
        Value::Int(2) => Some(Released::Gone),
        Value::Int(3) => Some(Released::Taken),
        Value::Int(4) => Some(Released::Foreign),
        Value::Int(5) => Some(Released::FreedUntold),
        Value::BulkString(owner) => Some(Released::Granted { owner: text(owner) }),
        _ => None,
    })
}

/// The answers to a batch of `count`: one each, or none, since a missing one must not shift the
/// others.
fn each<T>(
    reply: &Value,
    count: usize,
    address: &str,
    read: impl Fn(&Value) -> Option<T>,
) -> StoreResult<Vec<T>> {
    let Value::Array(answers) = reply else { return Err(unexpected(reply, address)) };
    let read: Option<Vec<_>> = answers.iter().map(read).collect();
    read.filter(|read| read.len() == count).ok_or_else(|| unexpected(reply, address))
}

/// How many replicas have it.
pub(super) fn acknowledged(reply: Value, address: &str) -> StoreResult<u32> {
    match reply {
        Value::Int(count) => Ok(u32::try_from(count).unwrap_or(0)),
        other => Err(unexpected(&other, address)),
    }
}

pub(super) fn woken(reply: Value, address: &str) -> StoreResult<bool> {
    match reply {
        Value::Int(told) => Ok(told != 0),
        other => Err(unexpected(&other, address)),
    }
}

pub(super) fn holder(reply: Value, address: &str) -> StoreResult<Option<Holder>> {
    let Value::Array(parts) = reply else {
        return match reply {
            Value::Nil => Ok(None),
            other => Err(unexpected(&other, address)),
        };
    };
    match parts.as_slice() {
        [Value::BulkString(owner), Value::Int(remaining_ms)] => Ok(Some(Holder {
            owner: text(owner),
            remaining: (*remaining_ms != -1).then(|| millis(*remaining_ms)),
        })),
        _ => Err(unexpected(&Value::Array(parts), address)),
    }
}

/// An owner: of ours always text, of other programs whatever they wrote.
fn text(bytes: &[u8]) -> Arc<str> {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.into(),
        Err(_) => String::from_utf8_lossy(bytes).into(),
    }
}

/// Negative means that the key went in that very moment.
fn millis(remaining_ms: i64) -> Duration {
    Duration::from_millis(u64::try_from(remaining_ms).unwrap_or(0))
}

fn foreign(address: &str) -> StoreError {
    StoreError::new(
        StoreErrorKind::Foreign,
        format!(
            "at redis {address} no lock stands under the key, but a string without TTL or another \
             type: choose another key or remove the value"
        ),
    )
}

pub(super) fn unexpected(reply: &Value, address: &str) -> StoreError {
    StoreError::new(
        StoreErrorKind::Unavailable,
        format!("redis at {address} sent a reply that no lock script gives: {reply:?}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_of_another_program_may_be_any_bytes() {
        let reply = Value::BulkString(vec![b'x', 0xFF]);
        assert_eq!(acquired(reply, "h:1").unwrap(), Acquired::HeldBy("x\u{FFFD}".into()));
    }

    #[test]
    fn a_batch_is_answered_in_whole_or_not_at_all() {
        let codes = |codes: &[i64]| Value::Array(codes.iter().copied().map(Value::Int).collect());
        assert_eq!(
            renewed(&codes(&[1, 2, 3, 4]), 4, "h:1").unwrap(),
            [Renewed::Renewed, Renewed::Gone, Renewed::Taken, Renewed::Foreign]
        );
        for (reply, count) in [(codes(&[1]), 2), (codes(&[1, 9]), 2), (Value::Nil, 1)] {
            let error = renewed(&reply, count, "h:1").unwrap_err();
            assert_eq!(error.kind, StoreErrorKind::Unavailable);
        }
    }

    #[test]
    fn a_value_without_ttl_has_no_remaining_time() {
        let reply = |ttl| Value::Array(vec![Value::BulkString(b"x".to_vec()), Value::Int(ttl)]);
        let remaining = |ttl| holder(reply(ttl), "h:1").unwrap().unwrap().remaining;
        assert_eq!(remaining(-1), None);
        assert_eq!(remaining(-2), Some(Duration::ZERO));
        assert_eq!(remaining(1500), Some(Duration::from_millis(1500)));
    }
}
