//! What all connections of a client know of their server.

use std::sync::{Arc, OnceLock};

use super::config::RedisConfig;

#[derive(Debug)]
pub(super) struct Server {
    pub(super) config: RedisConfig,
    /// For messages.
    pub(super) address: Arc<str>,
    /// Set once the server turned out to be older than Redis 7.
    old: OnceLock<()>,
    /// Set once the server turned out to take one hash slot a script.
    clustered: OnceLock<()>,
}

impl Server {
    pub(super) fn new(config: RedisConfig) -> Self {
        let address = config.address().into();
        Self { config, address, old: OnceLock::new(), clustered: OnceLock::new() }
    }

    /// Whether it takes a lock and names the owner in one command, as far as is known.
    pub(super) fn sets_and_gets(&self) -> bool {
        self.old.get().is_none()
    }

    pub(super) fn mark_old(&self) {
        // Set once; a second connection that finds it out too means the same.
        let _ = self.old.set(());
    }

    /// Whether the keys of one script must share a slot, as far as is known.
    pub(super) fn is_clustered(&self) -> bool {
        self.clustered.get().is_some()
    }

    pub(super) fn mark_clustered(&self) {
        let _ = self.clustered.set(());
    }
}
