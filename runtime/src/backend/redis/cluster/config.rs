//! Which cluster: some of its nodes, and how to sign in at each.

use super::topology::Address;
use crate::backend::StoreResult;
use crate::backend::redis::config::{RedisConfig, config_from_url, unusable};

/// How to reach a cluster.
#[derive(Clone, Debug)]
pub(crate) struct ClusterConfig {
    /// How to sign in at any node, and how long it may take.
    pub(crate) node: RedisConfig,
    /// Some of the nodes, each of which knows the others.
    pub(super) seeds: Vec<Address>,
}

/// Reads `redis-cluster://[user:password@]host[:port],host[:port]...`, or the same with
/// `rediss-cluster://` for TLS.
pub(crate) fn cluster_from_url(url: &str) -> StoreResult<ClusterConfig> {
    let (scheme, rest) = url.split_once("://").unwrap_or_default();
    let single = if scheme.starts_with("rediss") { "rediss" } else { "redis" };
    let (user, hosts) = rest.rsplit_once('@').map_or(("", rest), |(user, rest)| (user, rest));
    let at = if rest.len() == hosts.len() { "" } else { "@" };
    let (hosts, query) = hosts.split_once('?').map_or((hosts, ""), |(hosts, query)| (hosts, query));
    let (hosts, database) =
        hosts.split_once('/').map_or((hosts, ""), |(hosts, path)| (hosts, path));
    let fail = |reason: &str| Err(unusable(url, reason, FORM));
    if !database.is_empty() && database != "0" {
        return fail("a cluster has the database 0 and no other");
    }
    if !query.is_empty() {
        return fail("it takes no settings after a ?");
    }
    let mut node = None;
    let mut seeds = Vec::new();
    for host in hosts.split(',') {
        if host.is_empty() {
            return fail("a host is empty");
        }
        let config = config_from_url(&format!("{single}://{user}{at}{host}"));
        // The reason alone: the text of the error speaks of a URL that nobody wrote.
        let config = match config {
            Ok(config) => config,
            Err(error) if error.message.contains("feature") => return Err(error),
            Err(_) => {
                return fail(&format!(
                    "{host:?} is no host[:port], or what is before it no user:password"
                ));
            }
        };
        let Some((host, port)) = config.host_and_port() else { return fail("a host is none") };
        seeds.push(Address::new(&host, port));
        node.get_or_insert(config);
    }
    match node {
        Some(node) => Ok(ClusterConfig { node, seeds }),
        None => fail("it names no host"),
    }
}

impl ClusterConfig {
    /// How to reach the node at `address`.
    pub(super) fn at(&self, address: &Address) -> RedisConfig {
        self.node.on_host(&address.host, address.port)
    }
}

const FORM: &str = "redis-cluster://[user:password@]host[:port],host[:port]";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_some_nodes_and_one_user() {
        let config = cluster_from_url("redis-cluster://app:p%40s,s@a.example:7000,b.example/0");
        let config = config.unwrap();
        assert_eq!(
            config.seeds,
            [Address::new("a.example", 7000), Address::new("b.example", 6379)]
        );
        assert_eq!(config.at(&config.seeds[1]).place.name(), "b.example:6379");
        let config = cluster_from_url("redis-cluster://[::1]:7000").unwrap();
        assert_eq!(config.seeds, [Address::new("::1", 7000)]);
    }

    #[test]
    fn a_bad_url_is_named_without_its_password_and_with_the_remedy() {
        for url in [
            "redis-cluster://",
            "redis-cluster://app:secret@a,,b",
            "redis-cluster://app:secret@a/1",
            "redis-cluster://app:secret@a:x,b",
            "redis-cluster://app:secret@a?db=1",
        ] {
            let error = cluster_from_url(url).unwrap_err();
            assert!(error.message.contains("redis-cluster://[user:password@]host"), "{error}");
            assert!(!error.message.contains("secret"), "{error}");
        }
    }
}
