//! Which Redis, and how long it may take.

use std::borrow::Cow;
use std::time::Duration;

use redis::io::tcp::socket2::TcpKeepalive;
use redis::{Client, IntoConnectionInfo, ProtocolVersion, RedisError};

use crate::backend::{StoreError, StoreErrorKind, StoreResult};

/// How to reach a server.
#[derive(Clone, Debug)]
pub(crate) struct RedisConfig {
    /// Speaks RESP3: only there a disconnect and a grant come unasked.
    pub(crate) client: Client,
    /// Bounds connecting, signing in and subscribing together. 1 second unless set: a second try
    /// still fits into the default `wait`.
    pub(crate) connect_timeout: Duration,
    /// Bounds each request. 1 second unless set: a renewal every third of the default lease has
    /// time for several.
    pub(crate) response_timeout: Duration,
}

impl RedisConfig {
    /// Takes the server from `source`; protocol and socket settings are the library's.
    pub(crate) fn new(source: impl IntoConnectionInfo) -> Result<Self, RedisError> {
        let info = source.into_connection_info()?;
        // The library's name would cost two more commands at each connect, and rights for them.
        let settings = info
            .redis_settings()
            .clone()
            .set_protocol(ProtocolVersion::RESP3)
            .set_skip_set_lib_name();
        let tcp = info
            .tcp_settings()
            .clone()
            .set_nodelay(true)
            .set_keepalive(TcpKeepalive::new().with_time(KEEPALIVE));
        let client = Client::open(info.set_redis_settings(settings).set_tcp_settings(tcp))?;
        Ok(Self {
            client,
            connect_timeout: DEFAULT_CONNECT_TIMEOUT,
            response_timeout: DEFAULT_RESPONSE_TIMEOUT,
        })
    }

    /// The server's address, for messages: it holds no password.
    pub(super) fn address(&self) -> String {
        self.client.get_connection_info().addr().to_string()
    }
}

/// Reads `redis://[user:password@]host[:port][/database]` or `unix:///path[?db=..&user=..&pass=..]`.
pub(crate) fn config_from_url(url: &str) -> StoreResult<RedisConfig> {
    RedisConfig::new(url).map_err(|error| {
        let detail = error.detail().map(|detail| format!(" ({detail})")).unwrap_or_default();
        let reason = error.to_string();
        // The crate's text ends in the error's kind, which tells the user nothing.
        let reason = reason.split(" - ").next().unwrap_or_default().to_lowercase();
        StoreError::new(
            StoreErrorKind::Refused,
            format!(
                "cannot use the url {:?}: {reason}{detail}: write \
                 redis://[user:password@]host[:port][/database], with special characters in user \
                 and password percent-encoded",
                masked(url)
            ),
        )
    })
}

/// The URL without what may be a password, also where it is no URL at all.
fn masked(url: &str) -> String {
    let is_scheme = |at: &usize| {
        url[..*at].chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'))
    };
    let scheme = url.find("://").filter(is_scheme).map_or(0, |at| at + 3);
    let (scheme, rest) = url.split_at(scheme);
    // The last `@`: a password with an unencoded `@` or `/` in it is a common reason to be here.
    let rest = match rest.rsplit_once('@') {
        None => rest.to_owned(),
        Some((user, host)) => match user.split_once(':') {
            // Perhaps a password whose colon was forgotten.
            None => format!("***@{host}"),
            Some((user, _)) => format!("{user}:***@{host}"),
        },
    };
    let Some((path, query)) = rest.split_once('?') else { return format!("{scheme}{rest}") };
    let query: Vec<_> = query.split('&').map(masked_pair).collect();
    format!("{scheme}{path}?{}", query.join("&"))
}

fn masked_pair(pair: &str) -> Cow<'_, str> {
    match pair.split_once('=') {
        // Not the other way round: `pass` has many spellings, percent-encoded ones included.
        Some((name, _)) if !SHOWN.contains(&name) => format!("{name}=***").into(),
        _ => pair.into(),
    }
}

/// What in the query of a URL is no secret.
const SHOWN: [&str; 3] = ["db", "protocol", "user"];
const DEFAULT_CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
const DEFAULT_RESPONSE_TIMEOUT: Duration = Duration::from_secs(1);
const KEEPALIVE: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_gives_user_password_database_and_always_resp3() {
        let config =
            config_from_url("redis://app:p%40ss@db.example:6380/2?protocol=resp2").unwrap();
        let info = config.client.get_connection_info();
        assert_eq!(config.address(), "db.example:6380");
        assert_eq!(info.redis_settings().username(), Some("app"));
        assert_eq!(info.redis_settings().password(), Some("p@ss"));
        assert_eq!(info.redis_settings().db(), 2);
        assert_eq!(info.redis_settings().protocol(), ProtocolVersion::RESP3);
        assert!(info.tcp_settings().nodelay());
    }

    #[cfg(unix)]
    #[test]
    fn a_url_can_name_a_unix_socket() {
        let config = config_from_url("unix:///run/redis.sock?db=3&pass=secret").unwrap();
        assert_eq!(config.address(), "/run/redis.sock");
        assert_eq!(config.client.get_connection_info().redis_settings().db(), 3);
    }

    #[test]
    fn a_bad_url_is_named_without_its_password_and_with_the_remedy() {
        for url in [
            "redis://app:secret@host/abc",
            "redis://app:sec/ret@host",
            "redis://app:secret@host:99999",
            "redis://:sec@ret@host:x",
            "app:secret@host",
            "redis://secret@host/abc",
            ":secret@host://",
            "unix:///run/redis.sock?%70ass=secret&db=x",
            "unix:///run/redis.sock?pass=secret&db=x",
            "redis://host/abc?db=2&password=secret",
            "redis://0.0.0.0",
            "",
        ] {
            let error = config_from_url(url).unwrap_err();
            assert_eq!(error.kind, StoreErrorKind::Refused);
            assert!(!error.message.contains("secret"), "{}", error.message);
            assert!(!error.message.contains("ret@"), "{}", error.message);
            assert!(error.message.contains("write redis://"), "{}", error.message);
        }
    }
}
