//! What a server says of itself when a connection is opened.

use redis::Value;

/// The reply to HELLO, as far as a lock is concerned. Servers need not say all of it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Greeting {
    /// Name and version, such as `redis 7.0.15`.
    pub(super) version: String,
    /// Older than Redis 7. Valkey and others count as what they answer: they began later.
    pub(super) is_old: bool,
    pub(super) is_replica: bool,
    pub(super) is_sentinel: bool,
}

impl Greeting {
    pub(super) fn read(reply: &Value) -> Self {
        let Value::Map(fields) = reply else { return Self::default() };
        let field = |name: &str| {
            let found = fields.iter().find(|(field, _)| text(field) == Some(name));
            found.and_then(|(_, value)| text(value)).unwrap_or_default()
        };
        let (server, version) = (field("server"), field("version"));
        let major = version.split('.').next().and_then(|major| major.parse::<u32>().ok());
        Self {
            version: format!("{server} {version}"),
            is_old: server == "redis" && major.is_some_and(|major| major < 7),
            is_replica: matches!(field("role"), "replica" | "slave"),
            is_sentinel: field("mode") == "sentinel",
        }
    }
}

/// The policy in a reply to `INFO memory` by which the server deletes keys that are in use, if it is
/// such a one. All locks have a TTL, so `volatile-*` is no better than `allkeys-*`.
pub(super) fn evicting_policy(reply: &Value) -> Option<String> {
    let info = text(reply)?;
    let policy = info.lines().find_map(|line| line.strip_prefix("maxmemory_policy:"))?.trim();
    (policy.starts_with("allkeys-") || policy.starts_with("volatile-")).then(|| policy.to_owned())
}

fn text(value: &Value) -> Option<&str> {
    match value {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok(),
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => Some(text),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_older_than_7_is_old_and_one_of_another_kind_is_not() {
        for (server, version, is_old) in [
            ("redis", "6.2.14", true),
            ("redis", "7.0.15", false),
            ("redis", "8.4.0", false),
            ("redis", "255.255.255", false),
            ("redis", "unstable", false),
            ("valkey", "8.1.1", false),
            ("valkey", "1.0", false),
        ] {
            let greeting = Greeting::read(&hello(server, version, "standalone", "master"));
            assert_eq!(greeting.is_old, is_old, "{server} {version}");
            assert_eq!(greeting.version, format!("{server} {version}"));
        }
    }

    #[test]
    fn role_and_mode_are_read() {
        let master = Greeting::read(&hello("redis", "7.0.15", "standalone", "master"));
        assert!(!master.is_replica && !master.is_sentinel);
        assert!(Greeting::read(&hello("redis", "7.0.15", "standalone", "replica")).is_replica);
        assert!(Greeting::read(&hello("redis", "7.0.15", "sentinel", "master")).is_sentinel);
    }

    #[test]
    fn what_is_no_greeting_says_nothing() {
        for reply in [Value::Nil, Value::Okay, Value::Map(Vec::new()), Value::Array(Vec::new())] {
            assert!(!Greeting::read(&reply).is_old);
            assert!(!Greeting::read(&reply).is_replica);
        }
    }

    #[test]
    fn every_policy_that_takes_keys_with_a_ttl_is_told() {
        for (policy, evicts) in [
            ("noeviction", false),
            ("allkeys-lru", true),
            ("allkeys-random", true),
            ("volatile-ttl", true),
        ] {
            let info = format!("# Memory\r\nmaxmemory:0\r\nmaxmemory_policy:{policy}\r\n");
            let told = evicting_policy(&Value::BulkString(info.into_bytes()));
            assert_eq!(told.is_some(), evicts, "{policy}");
        }
        assert_eq!(evicting_policy(&Value::Nil), None);
    }

    fn hello(server: &str, version: &str, mode: &str, role: &str) -> Value {
        let fields = [
            ("server", server),
            ("version", version),
            ("proto", "3"),
            ("mode", mode),
            ("role", role),
        ];
        let word = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        Value::Map(fields.iter().map(|(name, value)| (word(name), word(value))).collect())
    }
}
