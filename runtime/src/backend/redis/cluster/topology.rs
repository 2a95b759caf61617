//! Which node serves which slot, as one node told it.

use std::fmt;
use std::sync::{Arc, OnceLock};

use redis::Value;

use crate::backend::redis::slot::SLOTS;

/// Where a node is reached.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(in crate::backend::redis) struct Address {
    pub(super) host: Arc<str>,
    pub(super) port: u16,
}

/// A map of the slots. It never changes; a newer one takes its place.
#[derive(Debug)]
pub(super) struct Topology {
    layout: Layout,
    superseded: OnceLock<()>,
}

/// What a map says.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Layout {
    primaries: Vec<Address>,
    replicas: Vec<Address>,
    /// For each slot the index of its primary, or [`NOBODY`].
    owners: Vec<u16>,
}

impl Topology {
    pub(super) fn new(layout: Layout) -> Self {
        Self { layout, superseded: OnceLock::new() }
    }

    /// Another map has taken its place.
    pub(super) fn supersede(&self) {
        // A second time means the same.
        let _ = self.superseded.set(());
    }

    pub(super) fn is_newest(&self) -> bool {
        self.superseded.get().is_none()
    }

    pub(super) fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Names the node that serves `slot` by its place among the primaries.
    pub(super) fn owner(&self, slot: u16) -> Option<usize> {
        let owner = self.layout.owners[usize::from(slot)];
        (owner != NOBODY).then(|| usize::from(owner))
    }

    pub(super) fn primaries(&self) -> &[Address] {
        &self.layout.primaries
    }

    pub(super) fn replicas(&self) -> &[Address] {
        &self.layout.replicas
    }

    /// Some slot that the primary at `index` serves.
    pub(super) fn slot_of(&self, index: usize) -> Option<u16> {
        let slot = self.layout.owners.iter().position(|owner| usize::from(*owner) == index)?;
        u16::try_from(slot).ok()
    }
}

impl Layout {
    /// Reads the reply to CLUSTER SLOTS of the node at `asked`; `None` if it is none, or empty.
    pub(super) fn read(reply: &Value, asked: &Address) -> Option<Self> {
        let Value::Array(ranges) = reply else { return None };
        let mut layout = Self {
            primaries: Vec::new(),
            replicas: Vec::new(),
            owners: vec![NOBODY; usize::from(SLOTS)],
        };
        for range in ranges {
            let Value::Array(range) = range else { return None };
            let [Value::Int(first), Value::Int(last), nodes @ ..] = range.as_slice() else {
                return None;
            };
            let first = usize::try_from(*first).ok()?;
            let last = usize::try_from(*last).ok().filter(|last| *last < usize::from(SLOTS))?;
            let mut nodes = nodes.iter().map(|node| Address::read(node, asked));
            // Of a primary whose address the node does not know, another node may know it.
            let Some(Some(primary)) = nodes.next() else { continue };
            let index = index_in(&mut layout.primaries, primary)?;
            layout.owners.get_mut(first..=last)?.fill(index);
            for replica in nodes.flatten() {
                index_in(&mut layout.replicas, replica)?;
            }
        }
        (!layout.primaries.is_empty()).then_some(layout)
    }
}

impl Address {
    pub(super) fn new(host: &str, port: u16) -> Self {
        Self { host: host.into(), port }
    }

    /// Reads what a redirection says: `host:port`, with the host left out for that of `asked`.
    pub(super) fn of_redirection(text: &str, asked: &Self) -> Option<Self> {
        let (host, port) = text.rsplit_once(':')?;
        let port = port.parse().ok()?;
        let host = host.trim_start_matches('[').trim_end_matches(']');
        Some(if host.is_empty() {
            Self { host: Arc::clone(&asked.host), port }
        } else {
            Self::new(host, port)
        })
    }

    /// Reads a node of CLUSTER SLOTS. A host that is left out is that of `asked`.
    fn read(node: &Value, asked: &Self) -> Option<Self> {
        let Value::Array(fields) = node else { return None };
        let [host, Value::Int(port), ..] = fields.as_slice() else { return None };
        let port = u16::try_from(*port).ok()?;
        let host = match host {
            Value::Nil => "",
            Value::BulkString(host) => std::str::from_utf8(host).ok()?,
            Value::SimpleString(host) => host,
            _ => return None,
        };
        match host {
            // The node does not know.
            "?" => None,
            "" => Some(Self { host: Arc::clone(&asked.host), port }),
            host => Some(Self::new(host, port)),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}

fn index_in(addresses: &mut Vec<Address>, address: Address) -> Option<u16> {
    let index = addresses.iter().position(|known| *known == address).unwrap_or_else(|| {
        addresses.push(address);
        addresses.len() - 1
    });
    u16::try_from(index).ok()
}

const NOBODY: u16 = u16::MAX;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_belong_to_the_primaries_that_the_reply_names() {
        let reply = Value::Array(vec![
            range(0, 99, &[("10.0.0.1", 7000), ("10.0.0.2", 7001)]),
            range(100, 16_383, &[("", 7002)]),
        ]);
        let layout = Layout::read(&reply, &Address::new("seed", 6379)).unwrap();
        let topology = Topology::new(layout);
        assert_eq!(
            topology.primaries(),
            [Address::new("10.0.0.1", 7000), Address::new("seed", 7002)]
        );
        assert_eq!(topology.replicas(), [Address::new("10.0.0.2", 7001)]);
        let owners = [0, 99, 100, 16_383].map(|slot| topology.owner(slot).unwrap());
        assert_eq!(owners, [0, 0, 1, 1]);
        assert_eq!(topology.slot_of(1), Some(100));
    }

    #[test]
    fn slots_that_nobody_serves_have_no_owner() {
        let reply = Value::Array(vec![
            range(0, 9, &[("10.0.0.1", 7000)]),
            range(20, 29, &[("?", 7001), ("10.0.0.2", 7002)]),
        ]);
        let topology = Topology::new(Layout::read(&reply, &Address::new("seed", 6379)).unwrap());
        assert_eq!((topology.owner(10), topology.owner(20)), (None, None));
    }

    #[test]
    fn what_is_no_map_is_refused() {
        let asked = Address::new("seed", 6379);
        for reply in [
            Value::Nil,
            Value::Array(Vec::new()),
            Value::Array(vec![Value::Nil]),
            Value::Array(vec![range(0, 16_384, &[("10.0.0.1", 7000)])]),
            Value::Array(vec![range(9, 0, &[("10.0.0.1", 7000)])]),
            Value::Array(vec![range(-1, 0, &[("10.0.0.1", 7000)])]),
        ] {
            assert!(Layout::read(&reply, &asked).is_none(), "{reply:?}");
        }
    }

    #[test]
    fn redirections_name_hosts_of_every_kind() {
        let asked = Address::new("seed", 6379);
        let read = |text| Address::of_redirection(text, &asked);
        assert_eq!(read("10.0.0.1:7000"), Some(Address::new("10.0.0.1", 7000)));
        assert_eq!(read(":7000"), Some(Address::new("seed", 7000)));
        assert_eq!(read("::1:7000"), Some(Address::new("::1", 7000)));
        assert_eq!(read("[::1]:7000").unwrap().to_string(), "[::1]:7000");
        assert_eq!((read("nowhere"), read("host:port")), (None, None));
    }

    fn range(first: i64, last: i64, nodes: &[(&str, i64)]) -> Value {
        let node = |(host, port): &(&str, i64)| {
            Value::Array(vec![Value::BulkString(host.as_bytes().to_vec()), Value::Int(*port)])
        };
        let mut fields = vec![Value::Int(first), Value::Int(last)];
        fields.extend(nodes.iter().map(node));
        Value::Array(fields)
    }
}
