//! What a channel sends its requests over: one map, and one line to each node for all its life.
//!
//! So the requests for a key take one way, in order, and what is answered on that way comes after
//! all that was sent on it before. A line that was lost is not replaced: a channel with another one
//! would have lost its order.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use super::topology::{Address, Topology};
use crate::backend::redis::channel::RedisChannel;

#[derive(Debug)]
pub(super) struct Generation {
    topology: Arc<Topology>,
    /// Set once a line is lost.
    closed: OnceLock<()>,
    /// The lines to the primaries, in the map's order.
    lines: Vec<OnceLock<Arc<RedisChannel>>>,
    /// The lines to nodes that are not in the map, but that one of it sent us to. As many as there
    /// are such nodes.
    elsewhere: Mutex<HashMap<Address, Arc<RedisChannel>>>,
}

impl Generation {
    pub(super) fn new(topology: Arc<Topology>) -> Self {
        let lines = topology.primaries().iter().map(|_| OnceLock::new()).collect();
        Self { topology, closed: OnceLock::new(), lines, elsewhere: Mutex::default() }
    }

    pub(super) fn is_open(&self) -> bool {
        self.topology.is_newest() && self.closed.get().is_none()
    }

    pub(super) fn close(&self) {
        // A second time means the same.
        let _ = self.closed.set(());
    }

    pub(super) fn topology(&self) -> &Arc<Topology> {
        &self.topology
    }

    /// The line that requests to the node take, if there was one before.
    pub(super) fn line(&self, address: &Address) -> Option<Arc<RedisChannel>> {
        match self.index(address) {
            Some(index) => self.line_at(index).cloned(),
            None => self.elsewhere().get(address).cloned(),
        }
    }

    pub(super) fn line_at(&self, index: usize) -> Option<&Arc<RedisChannel>> {
        self.lines.get(index)?.get()
    }

    /// From now on requests to the node take this line, if they have taken none before.
    pub(super) fn bind(&self, address: &Address, line: Arc<RedisChannel>) -> Arc<RedisChannel> {
        match self.index(address) {
            Some(index) => Arc::clone(self.lines[index].get_or_init(|| line)),
            None => Arc::clone(self.elsewhere().entry(address.clone()).or_insert(line)),
        }
    }

    /// The line to the node that answers by this name.
    pub(super) fn line_of(&self, name: &str) -> Option<Arc<RedisChannel>> {
        let is_it = |line: &&Arc<RedisChannel>| *line.line().server().name == *name;
        if let Some(line) = self.lines.iter().filter_map(OnceLock::get).find(is_it) {
            return Some(Arc::clone(line));
        }
        self.elsewhere().values().find(is_it).cloned()
    }

    fn index(&self, address: &Address) -> Option<usize> {
        self.topology.primaries().iter().position(|primary| primary == address)
    }

    fn elsewhere(&self) -> std::sync::MutexGuard<'_, HashMap<Address, Arc<RedisChannel>>> {
        // Each change is one insertion.
        self.elsewhere.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
