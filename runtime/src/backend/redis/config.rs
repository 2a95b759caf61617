//! Which Redis, and how long it may take.

use std::borrow::Cow;
use std::time::Duration;

#[cfg(any(feature = "cluster", feature = "sentinel", feature = "tls"))]
use redis::ConnectionAddr;
use redis::io::tcp::socket2::TcpKeepalive;
use redis::{ConnectionInfo, IntoConnectionInfo, ProtocolVersion, RedisError};

use super::place::Place;
#[cfg(feature = "tls")]
use super::tls::{Pem, Tls};
use crate::backend::{StoreError, StoreErrorKind, StoreResult};

/// How to reach a server.
#[derive(Clone, Debug)]
pub(crate) struct RedisConfig {
    pub(super) place: Place,
    /// Encrypts, where the place asks for it.
    #[cfg(feature = "tls")]
    pub(super) tls: Option<Tls>,
    /// Bounds finding the server, connecting, signing in and subscribing together. 1 second unless
    /// set: a second try still fits into the default `wait`.
    pub(crate) connect_timeout: Duration,
    /// Bounds each request. 1 second unless set: a renewal every third of the default lease has
    /// time for several.
    pub(crate) response_timeout: Duration,
}

impl RedisConfig {
    /// Takes the server from `source`; protocol and socket settings are the library's.
    pub(crate) fn new(source: impl IntoConnectionInfo) -> Result<Self, RedisError> {
        source.into_connection_info().map(|info| Self::at(Place::Fixed(with_our_settings(info))))
    }

    pub(super) fn at(place: Place) -> Self {
        Self {
            place,
            #[cfg(feature = "tls")]
            tls: None,
            connect_timeout: DEFAULT_CONNECT_TIMEOUT,
            response_timeout: DEFAULT_RESPONSE_TIMEOUT,
        }
    }

    /// The same for another host.
    #[cfg(feature = "cluster")]
    pub(super) fn on_host(&self, host: &str, port: u16) -> Self {
        let place = match &self.place {
            Place::Fixed(info) => {
                let host = host.to_owned();
                let addr = match info.addr() {
                    ConnectionAddr::TcpTls { insecure, tls_params, .. } => ConnectionAddr::TcpTls {
                        host,
                        port,
                        insecure: *insecure,
                        tls_params: tls_params.clone(),
                    },
                    _ => ConnectionAddr::Tcp(host, port),
                };
                Place::Fixed(info.clone().set_addr(addr))
            }
            #[cfg(feature = "sentinel")]
            Place::Sentinels(_) => self.place.clone(),
        };
        Self { place, ..self.clone() }
    }

    #[cfg(feature = "cluster")]
    pub(super) fn host_and_port(&self) -> Option<(String, u16)> {
        match self.place.infos().next()?.addr() {
            ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
                Some((host.clone(), *port))
            }
            _ => None,
        }
    }

    pub(crate) fn with_timeouts(
        self,
        connect_timeout: Duration,
        response_timeout: Duration,
    ) -> Self {
        Self { connect_timeout, response_timeout, ..self }
    }

    /// Gets what an encrypted connection needs ready, once for all connections.
    #[cfg(feature = "tls")]
    pub(crate) fn secured(self, pem: &Pem) -> StoreResult<Self> {
        let is_ours = |info: &ConnectionInfo| {
            matches!(info.addr(), ConnectionAddr::TcpTls { insecure: false, tls_params: None, .. })
        };
        if self.place.infos().any(is_ours) {
            return Ok(Self { tls: Some(Tls::new(pem)?), ..self });
        }
        if pem.is_empty() {
            return Ok(self);
        }
        let text = "certificates are set, but the store is not asked for TLS: write rediss://, \
                    rediss-sentinel:// or rediss-cluster://";
        Err(StoreError::new(StoreErrorKind::Refused, text))
    }
}

/// Speaks RESP3: only there a disconnect and a grant come unasked.
pub(super) fn with_our_settings(info: ConnectionInfo) -> ConnectionInfo {
    // The library's name would cost two more commands at each connect, and rights for them.
    let settings =
        info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3).set_skip_set_lib_name();
    let tcp = info
        .tcp_settings()
        .clone()
        .set_nodelay(true)
        .set_keepalive(TcpKeepalive::new().with_time(KEEPALIVE));
    info.set_redis_settings(settings).set_tcp_settings(tcp)
}

/// The same server over TLS.
#[cfg(any(feature = "sentinel", feature = "tls"))]
pub(super) fn over_tls(info: ConnectionInfo) -> ConnectionInfo {
    let ConnectionAddr::Tcp(host, port) = info.addr().clone() else { return info };
    info.set_addr(ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None })
}

/// Reads `redis://[user:password@]host[:port][/database]`, the same with `rediss://` for TLS,
/// `unix:///path[?db=..&user=..&pass=..]`, or
/// `redis-sentinel://[user:password@]host[:port],.../service[/database]`.
pub(crate) fn config_from_url(url: &str) -> StoreResult<RedisConfig> {
    let (scheme, rest) = url.split_once("://").unwrap_or_default();
    match scheme {
        "redis-sentinel" | "rediss-sentinel" => from_sentinel_url(url, scheme, rest),
        "rediss" | "valkeys" => from_tls_url(url, rest),
        _ => RedisConfig::new(url).map_err(|error| {
            let form = "redis://[user:password@]host[:port][/database]";
            unusable(url, &reason(&error), form)
        }),
    }
}

#[cfg(feature = "tls")]
fn from_tls_url(url: &str, rest: &str) -> StoreResult<RedisConfig> {
    let form = "rediss://[user:password@]host[:port][/database]";
    if rest.contains('#') {
        let reason = "there is no TLS without a check of the server here: name its CA by the \
                      builder's tls_root_cert, and a # in a password as %23";
        return Err(unusable(url, reason, form));
    }
    // The client crate knows the scheme only with TLS of its own.
    let info = format!("redis://{rest}").into_connection_info();
    let info = info.map_err(|error| unusable(url, &reason(&error), form))?;
    Ok(RedisConfig::at(Place::Fixed(over_tls(with_our_settings(info)))))
}

#[cfg(not(feature = "tls"))]
fn from_tls_url(url: &str, _rest: &str) -> StoreResult<RedisConfig> {
    Err(no_feature(url, "tls"))
}

#[cfg(feature = "sentinel")]
fn from_sentinel_url(url: &str, scheme: &str, rest: &str) -> StoreResult<RedisConfig> {
    #[cfg(not(feature = "tls"))]
    if scheme == "rediss-sentinel" {
        return Err(no_feature(url, "tls"));
    }
    let sentinels = super::sentinel::Sentinels::read(rest, scheme == "rediss-sentinel");
    let sentinels = sentinels.map_err(|reason| {
        let form = format!(
            "{scheme}://[user:password@]host[:port],.../service[/database]\
             [?sentinel_user=..&sentinel_password=..&sentinel_tls=yes|no]"
        );
        unusable(url, &reason, &form)
    })?;
    Ok(RedisConfig::at(Place::Sentinels(sentinels)))
}

#[cfg(not(feature = "sentinel"))]
fn from_sentinel_url(url: &str, _scheme: &str, _rest: &str) -> StoreResult<RedisConfig> {
    Err(no_feature(url, "sentinel"))
}

#[cfg(not(all(feature = "tls", feature = "sentinel")))]
fn no_feature(url: &str, feature: &str) -> StoreError {
    let scheme = url.split(':').next().unwrap_or_default();
    let text = format!("{scheme}: URLs need the feature {feature:?} of distlock");
    StoreError::new(StoreErrorKind::Refused, text)
}

pub(super) fn unusable(url: &str, reason: &str, form: &str) -> StoreError {
    let url = masked(url);
    StoreError::new(
        StoreErrorKind::Refused,
        format!(
            "cannot use the url {url:?}: {reason}: write {form}, with special characters in user \
             and password percent-encoded"
        ),
    )
}

/// The crate's text ends in the error's kind, which tells the user nothing.
pub(super) fn reason(error: &RedisError) -> String {
    let detail = error.detail().map(|detail| format!(" ({detail})")).unwrap_or_default();
    let reason = error.to_string();
    format!("{}{detail}", reason.split(" - ").next().unwrap_or_default().to_lowercase())
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
const SHOWN: [&str; 5] = ["db", "protocol", "sentinel_tls", "sentinel_user", "user"];
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
        let info = only(&config);
        assert_eq!(info.addr().to_string(), "db.example:6380");
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
        let info = only(&config);
        assert_eq!(info.addr().to_string(), "/run/redis.sock");
        assert_eq!(info.redis_settings().db(), 3);
    }

    #[cfg(feature = "tls")]
    #[test]
    fn a_url_can_ask_for_tls_but_not_for_tls_without_a_check() {
        let config = config_from_url("rediss://app:p%40ss@db.example/2").unwrap();
        let info = only(&config);
        assert!(matches!(info.addr(), ConnectionAddr::TcpTls { insecure: false, .. }));
        assert_eq!(info.addr().to_string(), "db.example:6379");
        assert_eq!(info.redis_settings().db(), 2);
        let error = config_from_url("rediss://:secret@db.example/#insecure").unwrap_err();
        assert!(error.message.contains("tls_root_cert"), "{error}");
        assert!(!error.message.contains("secret@"), "{error}");
    }

    #[cfg(not(feature = "tls"))]
    #[test]
    fn a_url_with_tls_names_the_missing_feature() {
        let error = config_from_url("rediss://:secret@db.example/").unwrap_err();
        assert_eq!(&*error.message, "rediss: URLs need the feature \"tls\" of distlock");
    }

    fn only(config: &RedisConfig) -> &ConnectionInfo {
        config.place.infos().next().unwrap()
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
