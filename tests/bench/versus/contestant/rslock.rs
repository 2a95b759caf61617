//! rslock: polls at random times within 200 ms, its default.

use std::time::Duration;

use rslock::{LockGuard, LockManager};

use super::key_text;

pub(crate) struct Rslock {
    manager: LockManager,
    lease: Duration,
}

impl Rslock {
    pub(super) fn connect(url: &str, lease: Duration) -> Self {
        Self { manager: LockManager::new(vec![url]), lease }
    }

    pub(super) async fn hold(&self, key: u64) -> LockGuard {
        self.manager.acquire(key_text(key).as_bytes(), self.lease).await.expect("waits for ever")
    }
}
