//! Whatever a server or anybody else sends: it is understood or refused, and never mixed up.
//!
//! `PROPTEST_CASES=1000000 cargo test fuzz` looks longer. What it finds is kept in
//! `proptest-regressions/`.

use std::sync::Mutex;
use std::time::Duration;

use proptest::prelude::*;
use redis::{PushKind, Value, parse_redis_value};

use super::super::slot::{SideKey, slot};
use super::super::{error, news, reply};
use super::config_from_url;
use crate::backend::{Events, StoreErrorKind};

/// A reply, with a liking for what our scripts send.
fn reply() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Nil),
        Just(Value::Okay),
        (-2_i64..6).prop_map(Value::Int),
        any::<i64>().prop_map(Value::Int),
        any::<bool>().prop_map(Value::Boolean),
        any::<f64>().prop_map(Value::Double),
        "\\PC{0,4}".prop_map(Value::SimpleString),
        prop::collection::vec(any::<u8>(), 0..6).prop_map(Value::BulkString),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        let several = || prop::collection::vec(inner.clone(), 0..4);
        prop_oneof![
            3 => several().prop_map(Value::Array),
            1 => several().prop_map(Value::Set),
            1 => several().prop_map(|data| Value::Push { kind: PushKind::Message, data }),
            1 => prop::collection::vec((inner.clone(), inner.clone()), 0..3).prop_map(Value::Map),
        ]
    })
}

/// Bytes of the protocol, nearly.
fn wire() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        "[*$:+>%~_#,(!=|-][0-9-]{0,3}\r\n".prop_map(String::into_bytes),
        "[a-zA-Z ]{0,6}\r\n".prop_map(String::into_bytes),
        "-[A-Z@_]{1,8} [a-zA-Z @'-]{0,20}\r\n".prop_map(String::into_bytes),
        prop::collection::vec(any::<u8>(), 0..4),
    ];
    prop::collection::vec(piece, 1..8).prop_map(|pieces| pieces.concat())
}

/// What was heard, put together again as it was sent.
#[derive(Debug, Default)]
struct Heard(Mutex<Vec<String>>);

impl Events for Heard {
    fn granted(&self, key: &str, owner: &str) {
        self.0.lock().unwrap().push(format!("grant\n{owner}\n{key}"));
    }

    fn next_in_line(&self, key: &str, owner: &str, claim: Duration) {
        self.0.lock().unwrap().push(format!("next\n{}\n{owner}\n{key}", claim.as_millis()));
    }

    fn interrupted(&self) {}
}

proptest! {
    #[test]
    fn any_reply_is_understood_or_refused(reply in reply(), count in 0_usize..4) {
        // One of them says yes to a reply, or none: what it means is never a matter of luck.
        let _ = reply::acquired(reply.clone(), "h:1");
        let _ = reply::contended(reply.clone(), "h:1");
        let _ = reply::drawn(reply.clone(), "h:1");
        let _ = reply::released(reply.clone(), 1, "h:1");
        let _ = reply::holder(reply.clone(), "h:1");
        if let Ok(renewed) = reply::renewed(&reply, count, "h:1") {
            prop_assert_eq!(renewed.len(), count);
        }
    }

    #[test]
    fn any_bytes_from_the_server_are_understood_or_refused(bytes in wire()) {
        match parse_redis_value(&bytes).and_then(Value::extract_error) {
            Ok(value) => {
                let _ = reply::acquired(value.clone(), "h:1");
                let _ = reply::renewed(&value, 1, "h:1");
            }
            Err(refused) => {
                let explained = error::explain(&refused, "h:1");
                prop_assert!(explained.message.contains("h:1"), "{}", explained.message);
                let _ = error::ends_connection(&refused);
                let _ = error::is_syntax_error(&refused);
            }
        }
    }

    #[test]
    fn any_message_is_delivered_as_it_was_sent_or_ignored(
        payload in prop_oneof![
            "(grant|next)\n([0-9]{1,20}\n)?[a-z:/]{0,5}\n\\PC{0,5}".prop_map(String::into_bytes),
            "(grant|next|[a-z]{1,5})(\n[0-9a-z\n-]{0,5}){0,4}".prop_map(String::into_bytes),
            prop::collection::vec(any::<u8>(), 0..20),
        ],
    ) {
        let heard = Heard::default();
        let channel = Value::BulkString(b"channel".to_vec());
        news::deliver(&[channel, Value::BulkString(payload.clone())], &heard);
        for message in heard.0.into_inner().unwrap() {
            let sent = String::from_utf8(payload.clone()).unwrap();
            let words = |text: &str| -> Vec<String> {
                // The number of a claim may have had zeroes in front.
                let number = |word: &str| word.parse::<u64>().map(|number| number.to_string());
                let words = text.splitn(if text.starts_with("next") { 4 } else { 3 }, '\n');
                words.map(|word| number(word).unwrap_or_else(|_| word.to_owned())).collect()
            };
            prop_assert_eq!(words(&message), words(&sent));
        }
    }

    #[test]
    fn any_push_is_survived(push in prop::collection::vec(reply(), 0..4)) {
        news::deliver(&push, &Heard::default());
    }

    #[test]
    fn side_keys_of_any_lock_are_its_own_and_in_its_slot(
        one in "[{}a5:]{1,8}|\\PC{1,6}",
        other in "[{}a5:]{1,8}|\\PC{1,6}",
    ) {
        let sides = |key| [SideKey::queue(key), SideKey::waiters(key)];
        for side in sides(&one) {
            prop_assert_eq!(slot(side.text().as_bytes()), slot(one.as_bytes()));
            for alien in sides(&other) {
                let same = one == other && format!("{side:?}") == format!("{alien:?}");
                prop_assert_eq!(side.text() == alien.text(), same);
            }
        }
    }

    #[test]
    fn any_url_is_read_or_refused_with_the_remedy(
        url in prop_oneof!["redis://[a-z0-9:@/?=&%.\\[\\]-]{0,16}", "\\PC{0,16}", any::<String>()],
    ) {
        if let Err(error) = config_from_url(&url) {
            prop_assert_eq!(error.kind, StoreErrorKind::Refused);
            prop_assert!(error.message.contains("write redis://"), "{}", error.message);
        }
    }

    #[test]
    fn no_refusal_of_a_url_shows_its_password(
        scheme in "redis://|rediss://|redis\\+unix://|unix://|redi://|",
        user in "[a-z@/:]{0,4}",
        noise in "[@/?#%&:= ]{0,2}",
        host in "[a-z0-9./:\\[]{0,8}",
        rest in "(/[a-z0-9]{0,3})?(\\?[a-z=&]{0,8})?",
    ) {
        let url = format!("{scheme}{user}:{noise}s3cr3t{noise}@{host}{rest}");
        if let Err(error) = config_from_url(&url) {
            prop_assert!(!error.message.contains("s3cr3t"), "{}", error.message);
        }
    }

    #[test]
    fn no_refusal_of_a_url_shows_the_password_of_a_socket(
        path in "(/[a-z]{1,4}){0,2}",
        before in "([a-z]{1,3}=[a-z]{0,3}&){0,2}",
        name in "pass(word)?",
        after in "(&[a-z]{1,3}=[a-z]{0,3}){0,2}",
    ) {
        let url = format!("unix://{path}?{before}{name}=s3cr3t{after}&db=x");
        if let Err(error) = config_from_url(&url) {
            prop_assert!(!error.message.contains("s3cr3t"), "{}", error.message);
        }
    }
}
