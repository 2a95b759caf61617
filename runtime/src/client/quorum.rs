//! The nodes of a quorum, as a user names them.

use std::fmt;

use super::store::Store;
use crate::backend::memory::MemoryStore;

/// One of the independent stores of a [quorum](crate::LockClientBuilder::quorum): a URL, a
/// [`MemoryStore`], or a client of the crate `redis`.
///
/// ```
/// use distlock::{LockClient, MemoryStore};
///
/// # fn main() -> Result<(), distlock::LockError> {
/// let nodes = [MemoryStore::new(), MemoryStore::new(), MemoryStore::new()];
/// let locks = LockClient::builder().quorum(nodes).build()?;
/// # Ok(())
/// # }
/// ```
pub struct QuorumNode(pub(super) Store);

impl fmt::Debug for QuorumNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without what it is: a URL may hold a password.
        f.debug_struct("QuorumNode").finish_non_exhaustive()
    }
}

impl From<&str> for QuorumNode {
    fn from(url: &str) -> Self {
        Self(Store::Url(url.to_owned()))
    }
}

impl From<String> for QuorumNode {
    fn from(url: String) -> Self {
        Self(Store::Url(url))
    }
}

impl From<MemoryStore> for QuorumNode {
    fn from(store: MemoryStore) -> Self {
        Self(Store::Memory(store))
    }
}

#[cfg(feature = "redis")]
impl From<redis::Client> for QuorumNode {
    fn from(client: redis::Client) -> Self {
        Self(Store::Redis(Box::new(client)))
    }
}

/// Refuses nodes that make no quorum.
pub(super) fn check(nodes: &[QuorumNode]) -> Result<(), String> {
    if !(LEAST..=MOST).contains(&nodes.len()) {
        return Err(format!(
            "a quorum of {} nodes: use {LEAST} to {MOST}, better an odd number",
            nodes.len()
        ));
    }
    for (index, QuorumNode(node)) in nodes.iter().enumerate() {
        if matches!(node, Store::Quorum(_))
            || matches!(node, Store::Url(url) if url.starts_with("redlock:"))
        {
            return Err("a node of a quorum is a quorum itself: name all nodes at once".to_owned());
        }
        let same = |QuorumNode(other): &QuorumNode| match (node, other) {
            (Store::Memory(one), Store::Memory(other)) => one.is_same(other),
            // Two names of one server are not found out; one name twice is.
            (Store::Url(one), Store::Url(other)) => one == other && one != "memory:",
            #[cfg(feature = "redis")]
            (Store::Redis(one), Store::Redis(other)) => {
                one.get_connection_info().addr() == other.get_connection_info().addr()
            }
            _ => false,
        };
        if nodes[..index].iter().any(same) {
            return Err(format!(
                "node {} of the quorum was named before: nodes must be independent stores",
                index + 1
            ));
        }
    }
    Ok(())
}

/// The URLs of the nodes that one `redlock://` URL names: user, database and query are the same for
/// all. `None` if it names none.
pub(super) fn node_urls(url: &str) -> Option<Vec<String>> {
    let (_, rest) = url.split_once("://")?;
    let (rest, query) = rest.split_at(rest.find('?').unwrap_or(rest.len()));
    // The last `@`: what a password may hold is not told apart before it is split off.
    let (user, rest) = rest.split_at(rest.rfind('@').map_or(0, |at| at + 1));
    let (hosts, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let url = |host: &str| format!("redis://{user}{}{path}{query}", host.trim());
    (!hosts.is_empty()).then(|| hosts.split(',').map(url).collect())
}

const LEAST: usize = 3;
const MOST: usize = 15;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_url_names_all_nodes_with_one_user_and_database() {
        assert_eq!(
            node_urls("redlock://app:p%2Css@a,b:7000,[::1]:7001/2?protocol=resp3").unwrap(),
            [
                "redis://app:p%2Css@a/2?protocol=resp3",
                "redis://app:p%2Css@b:7000/2?protocol=resp3",
                "redis://app:p%2Css@[::1]:7001/2?protocol=resp3",
            ]
        );
        assert_eq!(node_urls("redlock://a,b,c/").unwrap()[1], "redis://b/");
        assert_eq!(node_urls("redlock://a,,c").unwrap()[1], "redis://");
        assert_eq!(node_urls("redlock://"), None);
        assert_eq!(node_urls("redlock:a,b,c"), None);
    }
}
