//! What a URL says of sentinels:
//! `[user:password@]host[:port],.../service[/database][?sentinel_user=..&..]`.
//!
//! User and password before the hosts are for the service's servers, as is the database; those of the
//! sentinels stand in the query.

use redis::{ConnectionInfo, IntoConnectionInfo};

use super::super::config::{over_tls, reason, with_our_settings};
use super::Sentinels;

pub(super) fn read(rest: &str, tls: bool) -> Result<Sentinels, String> {
    if rest.contains('#') {
        return Err("a # has no meaning in it".to_owned());
    }
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let query = Query::read(query)?;
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let (user, hosts) = match authority.rsplit_once('@') {
        Some((user, hosts)) => (format!("{user}@"), hosts),
        None => (String::new(), authority),
    };
    if user.matches('@').count() > 1 {
        return Err("user and password stand once, before the first host".to_owned());
    }
    let (service, database) = path.split_once('/').unwrap_or((path, ""));
    if service.is_empty() {
        return Err("the name of the service is missing, which the sentinels know it by".to_owned());
    }
    let server = info(&format!("{user}server/{database}"), tls)?;
    let sentinels: Result<Vec<_>, _> = hosts
        .split(',')
        .map(|host| {
            let host = host.trim();
            if host.is_empty() {
                return Err("a host is missing".to_owned());
            }
            let has_port = host.rsplit(']').next().is_some_and(|end| end.contains(':'));
            let port = if has_port { "" } else { ":26379" };
            info(&format!("{}{host}{port}", query.user), query.tls.unwrap_or(tls))
        })
        .collect();
    Ok(Sentinels { service: service.into(), sentinels: sentinels?.into(), server: server.into() })
}

/// What the query says of the sentinels.
#[derive(Default)]
struct Query {
    /// As in a URL, with the `@`.
    user: String,
    tls: Option<bool>,
}

impl Query {
    fn read(query: &str) -> Result<Self, String> {
        let (mut user, mut password, mut tls) = ("", None, None);
        for (name, value) in query.split('&').filter_map(|pair| pair.split_once('=')) {
            match (name, value) {
                ("sentinel_user", value) => user = value,
                ("sentinel_password", value) => password = Some(value),
                ("sentinel_tls", "yes") if cfg!(feature = "tls") => tls = Some(true),
                ("sentinel_tls", "yes") => {
                    return Err("sentinel_tls needs the feature \"tls\" of distlock".to_owned());
                }
                ("sentinel_tls", "no") => tls = Some(false),
                ("sentinel_tls", _) => return Err("sentinel_tls is yes or no".to_owned()),
                // The library's own.
                ("protocol", _) => {}
                (name, _) => return Err(format!("{name:?} is no setting of it")),
            }
        }
        if user.contains(['@', '/', ':']) || password.is_some_and(|text| text.contains(['@', '/']))
        {
            return Err("sentinel_user or sentinel_password is not percent-encoded".to_owned());
        }
        let user = match password {
            Some(password) => format!("{user}:{password}@"),
            None if user.is_empty() => String::new(),
            None => return Err("sentinel_user has no sentinel_password".to_owned()),
        };
        Ok(Self { user, tls })
    }
}

/// The client crate's reading of one server, which decodes user and password.
fn info(rest: &str, tls: bool) -> Result<ConnectionInfo, String> {
    let info = format!("redis://{rest}").into_connection_info();
    let info = with_our_settings(info.map_err(|error| reason(&error))?);
    Ok(if tls { over_tls(info) } else { info })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_and_sentinels_have_users_of_their_own() {
        let url = "app:p%40ss@a,b:1,[::1]/orders/3?sentinel_user=watch&sentinel_password=s%2Fw%2B+";
        let read = read(url, false).unwrap();
        assert_eq!(&*read.service, "orders");
        let server = read.server.redis_settings();
        assert_eq!((server.username(), server.password()), (Some("app"), Some("p@ss")));
        assert_eq!(server.db(), 3);
        let addresses: Vec<_> = read.sentinels.iter().map(|s| s.addr().to_string()).collect();
        assert_eq!(addresses, ["a:26379", "b:1", "::1:26379"]);
        let shown = format!("{read:?}");
        assert!(!shown.contains("p@ss") && !shown.contains("s/w"), "{shown}");
        for sentinel in &*read.sentinels {
            let settings = sentinel.redis_settings();
            assert_eq!((settings.username(), settings.password()), (Some("watch"), Some("s/w++")));
            assert_eq!(settings.db(), 0);
        }
    }

    #[cfg(feature = "tls")]
    #[test]
    fn tls_is_for_both_kinds_unless_the_query_says_otherwise() {
        let is_tls =
            |info: &ConnectionInfo| matches!(info.addr(), redis::ConnectionAddr::TcpTls { .. });
        for (query, tls, sentinels) in [
            ("", true, true),
            ("", false, false),
            ("?sentinel_tls=no", true, false),
            ("?sentinel_tls=yes", false, true),
        ] {
            let read = read(&format!("h/s{query}"), tls).unwrap();
            assert_eq!(is_tls(&read.server), tls);
            assert_eq!(is_tls(&read.sentinels[0]), sentinels);
        }
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        for (rest, text) in [
            ("h", "service is missing"),
            ("h/", "service is missing"),
            ("/s", "host is missing"),
            ("h,,i/s", "host is missing"),
            ("u:p@h,u:p@i/s", "stand once"),
            ("h/s/x", "database"),
            ("h:99999/s", "parse"),
            ("h/s?sentinel_tls=maybe", "yes or no"),
            ("h/s?sentinal_user=x", "\"sentinal_user\" is no setting"),
            ("h/s?sentinel_user=x", "no sentinel_password"),
            ("h/s?sentinel_password=a@b", "percent-encoded"),
            ("h/s#insecure", "no meaning"),
        ] {
            let error = read(rest, false).unwrap_err();
            assert!(error.contains(text), "{rest}: {error}");
        }
    }
}
