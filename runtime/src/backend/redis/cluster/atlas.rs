//! What a client knows of its cluster, shared by all of its runtimes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::config::ClusterConfig;
use super::nodes::Nodes;
use super::topology::{Address, Layout, Topology};
use crate::backend::redis::server::Server;

#[derive(Debug)]
pub(super) struct Atlas {
    config: ClusterConfig,
    /// Where this client hears of grants is named by this.
    name: Arc<str>,
    known: Mutex<Known>,
    /// Who goes by the map.
    readers: Mutex<Vec<Weak<Nodes>>>,
}

#[derive(Debug)]
struct Known {
    topology: Option<Arc<Topology>>,
    /// Of the primaries, and of whom they send us to. Bounded: a new map drops those not in it.
    servers: HashMap<Address, Arc<Server>>,
    voice: Voice,
    /// Whether a node let us listen that way.
    voice_is_tried: bool,
}

/// How scripts reach a contender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Voice {
    /// By messages that stay on the nodes of a shard: from Redis 7.
    Sharded,
    /// By messages that every node of the cluster passes on.
    Ordinary,
    /// Not at all: contenders go by their timers.
    None,
}

impl Atlas {
    pub(super) fn new(config: ClusterConfig, name: Arc<str>) -> Self {
        let known = Known {
            topology: None,
            servers: HashMap::new(),
            voice: Voice::Sharded,
            voice_is_tried: false,
        };
        Self { config, name, known: Mutex::new(known), readers: Mutex::default() }
    }

    pub(super) fn config(&self) -> &ClusterConfig {
        &self.config
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The newest map, if there is one.
    pub(super) fn topology(&self) -> Option<Arc<Topology>> {
        self.known().topology.clone()
    }

    /// From now on `nodes` are told of every new map.
    pub(super) fn enter(&self, nodes: &Arc<Nodes>) {
        let mut readers = self.readers();
        readers.retain(|reader| reader.strong_count() > 0);
        readers.push(Arc::downgrade(nodes));
    }

    /// Takes a map that a node told just now. Whether it is another one than before.
    pub(super) fn adopt(&self, layout: Layout) -> bool {
        let mut known = self.known();
        if known.topology.as_ref().is_some_and(|current| *current.layout() == layout) {
            return false;
        }
        let topology = Arc::new(Topology::new(layout));
        known.servers.retain(|address, _| topology.primaries().contains(address));
        let before = known.topology.replace(Arc::clone(&topology));
        drop(known);
        let has_newcomer = before.as_ref().is_some_and(|before| {
            topology.primaries().iter().any(|address| !before.primaries().contains(address))
        });
        if let Some(before) = before {
            before.supersede();
        }
        // Not under a mutex: the end of a connection goes its own ways.
        let readers: Vec<_> = self.readers().iter().filter_map(Weak::upgrade).collect();
        for nodes in readers {
            nodes.keep_primaries(&topology);
            if has_newcomer {
                nodes.meet_newcomer();
            }
        }
        true
    }

    /// What is known of the node at `address`.
    pub(super) fn server(&self, address: &Address) -> Arc<Server> {
        if let Some(server) = self.known().servers.get(address) {
            return Arc::clone(server);
        }
        let server = Arc::new(Server::new(self.config.at(address)));
        let mut known = self.known();
        let server = known.servers.entry(address.clone()).or_insert(server);
        Arc::clone(server)
    }

    pub(super) fn voice(&self) -> Voice {
        self.known().voice
    }

    /// Whether it is known that this voice is heard.
    pub(super) fn voice_is_tried(&self) -> bool {
        let known = self.known();
        known.voice_is_tried || known.voice == Voice::None
    }

    pub(super) fn note_heard(&self) {
        self.known().voice_is_tried = true;
    }

    /// `voice` is refused here: only the next weaker one is left.
    pub(super) fn give_up(&self, voice: Voice) {
        let mut known = self.known();
        let weaker = match voice {
            Voice::Sharded => Voice::Ordinary,
            Voice::Ordinary | Voice::None => Voice::None,
        };
        if weaker > known.voice {
            known.voice = weaker;
            known.voice_is_tried = false;
        }
    }

    fn readers(&self) -> MutexGuard<'_, Vec<Weak<Nodes>>> {
        // Each change leaves it whole.
        self.readers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        // Each change is one assignment, insertion or removal: whole at any time.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
