//! What an error of the client or the server means for a lock.

use redis::{ErrorKind, RedisError, ServerErrorKind};

use super::fence::FENCE;
use crate::backend::{StoreError, StoreErrorKind};

/// Says what happened at the server at `address`, and what to do where one can say.
pub(super) fn explain(error: &RedisError, address: &str) -> StoreError {
    use StoreErrorKind::{Foreign, Refused, Unavailable};

    #[cfg(feature = "tls")]
    if let Some(explained) = super::tls::explain(error, address) {
        return explained;
    }
    let (kind, message) = match (code(error), error.kind()) {
        ("WRONGTYPE", _) => (
            Foreign,
            format!(
                "at redis {address} a value of another type stands under the key: choose another \
                 key or remove the value"
            ),
        ),
        ("FENCE", _) => return no_token(address),
        ("WRONGPASS", _) | (_, ErrorKind::AuthenticationFailed) => (
            Refused,
            format!(
                "wrong password for redis at {address}: check the user and password in the URL"
            ),
        ),
        ("NOAUTH", _) => (
            Refused,
            format!(
                "redis at {address} asks for a password: write it into the URL, as in \
                 redis://user:password@host"
            ),
        ),
        ("NOPERM", _) => (
            Refused,
            format!(
                "redis at {address} denies this user a right: grant the commands and keys that the \
                 lock needs ({})",
                detail(error)
            ),
        ),
        ("DENIED" | "NOPROTO", _) => {
            (Refused, format!("redis at {address} refuses this client: {}", detail(error)))
        }
        ("MOVED" | "ASK" | "CROSSSLOT", _) => (
            Refused,
            format!(
                "redis at {address} is a node of a cluster, and a redis:// URL names a single \
                 server: write redis-cluster:// and some of the nodes, as in \
                 redis-cluster://host:port,host:port ({})",
                detail(error)
            ),
        ),
        (_, ErrorKind::RESP3NotSupported) => (
            Refused,
            format!("redis at {address} does not speak RESP3: Redis 6 or later is needed"),
        ),
        (_, ErrorKind::InvalidClientConfig) => {
            (Refused, format!("cannot use redis at {address}: {}", lower(&error.to_string())))
        }
        ("ERR", _) if lacks_something(error) => {
            (Refused, format!("redis at {address} cannot serve locks: {}", detail(error)))
        }
        ("READONLY", _) => (
            Unavailable,
            format!("redis at {address} is read-only: a replica, or a primary that was replaced"),
        ),
        (code, _) if !code.is_empty() => {
            (Unavailable, format!("redis at {address} answered {code}: {}", detail(error)))
        }
        _ => {
            (Unavailable, format!("no connection to redis at {address}: {}", lower(&detail(error))))
        }
    };
    StoreError::new(kind, message)
}

/// Something else stands where the counter of the fencing tokens should be.
pub(super) fn no_token(address: &str) -> StoreError {
    let message = format!(
        "redis at {address} gives no fencing token: under the key of its counter, {FENCE}, stands a \
         value of another type; remove it"
    );
    StoreError::new(StoreErrorKind::Refused, message)
}

/// Whether the connection is of no more use: it is gone, or it leads to a server that must be looked
/// for again, or to one that wants to be signed in at again.
pub(super) fn ends_connection(error: &RedisError) -> bool {
    error.is_io_error()
        || error.is_unrecoverable_error()
        || matches!(code(error), "NOAUTH" | "READONLY")
}

/// How a node of a cluster answers a script with keys of several slots.
pub(super) fn is_cross_slot(error: &RedisError) -> bool {
    code(error) == "CROSSSLOT"
}

/// What a node of a cluster says instead of executing a request.
#[cfg(feature = "cluster")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Redirect {
    /// This once, to a node that is about to take the slot over.
    Ask(String),
    /// From now on.
    Moved(String),
}

#[cfg(feature = "cluster")]
pub(super) fn redirect(error: &RedisError) -> Option<Redirect> {
    let (address, _slot) = error.redirect_node()?;
    match code(error) {
        "ASK" => Some(Redirect::Ask(address.to_owned())),
        "MOVED" => Some(Redirect::Moved(address.to_owned())),
        _ => None,
    }
}

/// How a node of a cluster answers a request of whose keys it has some only, since their slot is on
/// its way from or to another node.
#[cfg(feature = "cluster")]
pub(super) fn is_split(error: &RedisError) -> bool {
    code(error) == "TRYAGAIN"
}

/// How a single server answers questions about a cluster.
#[cfg(feature = "cluster")]
pub(super) fn is_no_cluster(error: &RedisError) -> bool {
    error.to_string().contains("cluster support disabled")
        || error.detail().is_some_and(|text| text.contains("cluster support disabled"))
}

pub(super) fn is_unknown_script(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)
}

/// How Redis before 7.0 answers NX together with GET.
pub(super) fn is_syntax_error(error: &RedisError) -> bool {
    error.code() == Some("ERR") && error.detail().is_some_and(|text| text.contains("syntax error"))
}

/// The server's code. Redis before 7.0 wraps the error of a command in a script: as `ERR Error
/// running script` if the script failed of it, as `@user_script` if the script handed it on.
pub(super) fn code(error: &RedisError) -> &str {
    let code = error.code().unwrap_or_default();
    let detail = error.detail().unwrap_or_default();
    let from_script = match code {
        "ERR" => detail.starts_with("Error running script"),
        code => code.starts_with('@'),
    };
    if detail.contains("user executing the script can't") {
        return "NOPERM";
    }
    let mut words = detail.split([' ', '-']).filter(|_| from_script);
    words.find_map(|word| WRAPPED.iter().find(|code| **code == word)).unwrap_or(&code)
}

/// The server lacks a command or a database: no passing state.
fn lacks_something(error: &RedisError) -> bool {
    let text = error.to_string();
    text.contains("unknown command")
        || text.contains("Unknown Redis command")
        || text.contains("refused to switch database")
}

fn detail(error: &RedisError) -> String {
    error.detail().map_or_else(|| error.to_string(), ToOwned::to_owned)
}

fn lower(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_lowercase().chain(chars).collect())
}

const WRAPPED: &[&str] = &["MISCONF", "NOREPLICAS", "OOM", "READONLY", "WRONGTYPE"];

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn answers_of_the_server_fall_into_three_kinds() {
        use StoreErrorKind::{Foreign, Refused, Unavailable};

        for (answer, kind) in [
            ("WRONGTYPE Operation against a key holding the wrong kind of value", Foreign),
            ("WRONGPASS invalid username-password pair or user is disabled.", Refused),
            ("NOAUTH Authentication required.", Refused),
            ("NOPERM this user has no permissions to run the 'set' command", Refused),
            ("NOPROTO unsupported protocol version", Refused),
            ("DENIED Redis is running in protected mode", Refused),
            ("MOVED 866 10.0.0.2:6379", Refused),
            ("ERR unknown command 'EVALSHA'", Refused),
            ("ERR max number of clients reached", Unavailable),
            ("LOADING Redis is loading the dataset in memory", Unavailable),
            ("READONLY You can't write against a read only replica.", Unavailable),
            ("MISCONF Redis is configured to save RDB snapshots", Unavailable),
            ("NOREPLICAS Not enough good replicas to write.", Unavailable),
            ("BUSY Redis is busy running a script.", Unavailable),
            ("MASTERDOWN Link with MASTER is down", Unavailable),
            ("OOM command not allowed when used memory > 'maxmemory'.", Unavailable),
        ] {
            let error = explain(&server_error(answer), "127.0.0.1:6379");
            assert_eq!(error.kind, kind, "{answer}");
            assert!(error.message.contains("127.0.0.1:6379"), "{}", error.message);
        }
    }

    #[test]
    fn errors_inside_a_script_of_redis_6_are_unwrapped() {
        for (inner, expected) in [
            ("-READONLY You can't write against a read only replica.", "READONLY"),
            ("-NOREPLICAS Not enough good replicas to write.", "NOREPLICAS"),
            ("WRONGTYPE Operation against a key", "WRONGTYPE"),
            ("The user executing the script can't run this command or subcommand", "NOPERM"),
        ] {
            for wrapping in [
                "ERR Error running script (call to f_0): @user_script:9: @user_script: 9:",
                "@user_script: 9:",
            ] {
                let answer = format!("{wrapping} {inner}");
                assert_eq!(code(&server_error(&answer)), expected);
            }
        }
    }

    #[test]
    fn a_connection_ends_with_the_link_its_rights_or_its_primary() {
        let broken = RedisError::from(io::Error::from(io::ErrorKind::BrokenPipe));
        assert!(ends_connection(&broken));
        assert!(ends_connection(&server_error("READONLY You can't write")));
        assert!(ends_connection(&server_error("NOAUTH Authentication required.")));
        assert!(!ends_connection(&server_error("LOADING Redis is loading")));
        assert!(!ends_connection(&server_error("NOPERM no")));
        assert_eq!(explain(&broken, "h:1").kind, StoreErrorKind::Unavailable);
    }

    #[test]
    fn messages_say_where_and_what_to_do() {
        let error = explain(&server_error("WRONGPASS invalid"), "127.0.0.1:6379");
        assert_eq!(
            &*error.message,
            "wrong password for redis at 127.0.0.1:6379: check the user and password in the URL"
        );
    }

    fn server_error(answer: &str) -> RedisError {
        let value = redis::parse_redis_value(format!("-{answer}\r\n").as_bytes()).unwrap();
        value.extract_error().unwrap_err()
    }
}
