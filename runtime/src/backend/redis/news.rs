//! What scripts publish to a contender, and how it reaches it.

use std::time::Duration;

use redis::Value;

use crate::backend::Events;

/// Delivers the payload of a message; what is none of ours is ignored, anyone can publish.
pub(super) fn deliver(push: &[Value], events: &dyn Events) {
    let [_channel, Value::BulkString(payload)] = push else { return };
    match parse(payload) {
        None => {}
        Some(News::Granted { key, owner }) => events.granted(key, owner),
        Some(News::NextInLine { key, owner, claim }) => events.next_in_line(key, owner, claim),
    }
}

#[derive(Debug, PartialEq, Eq)]
enum News<'a> {
    Granted { key: &'a str, owner: &'a str },
    NextInLine { key: &'a str, owner: &'a str, claim: Duration },
}

/// Reads `grant\n<owner>\n<key>` or `next\n<claim_ms>\n<owner>\n<key>`. The key comes last, for it
/// may contain anything.
fn parse(payload: &[u8]) -> Option<News<'_>> {
    let (what, rest) = std::str::from_utf8(payload).ok()?.split_once('\n')?;
    match what {
        "grant" => {
            let (owner, key) = rest.split_once('\n')?;
            Some(News::Granted { key, owner })
        }
        "next" => {
            let (claim_ms, rest) = rest.split_once('\n')?;
            let (owner, key) = rest.split_once('\n')?;
            let claim = Duration::from_millis(claim_ms.parse().ok()?);
            Some(News::NextInLine { key, owner, claim })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_may_contain_anything() {
        assert_eq!(
            parse(b"grant\nhost:1/x\na\nb\n"),
            Some(News::Granted { key: "a\nb\n", owner: "host:1/x" })
        );
        assert_eq!(
            parse(b"next\n250\nhost:1/x\nnext\n1"),
            Some(News::NextInLine {
                key: "next\n1",
                owner: "host:1/x",
                claim: Duration::from_millis(250)
            })
        );
    }

    #[test]
    fn what_is_no_message_of_ours_is_ignored() {
        for payload in [
            &b""[..],
            b"grant",
            b"grant\nowner",
            b"next\nsoon\no\nk",
            b"next\n-1\no\nk",
            b"\xFF\n\n",
        ] {
            assert_eq!(parse(payload), None);
        }
    }
}
