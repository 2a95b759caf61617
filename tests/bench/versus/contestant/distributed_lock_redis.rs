//! distributed-lock-redis: with one server it does not wait.

use std::time::Duration;

use distributed_lock_core::traits::{DistributedLock, LockHandle, LockProvider};
use distributed_lock_redis::{RedisLockHandle, RedisLockProvider};

use super::key_text;

pub(crate) struct DistributedLockRedis(RedisLockProvider);

impl DistributedLockRedis {
    pub(super) async fn connect(url: &str, lease: Duration) -> Self {
        let provider = RedisLockProvider::builder()
            .url(url)
            .expiry(lease)
            .min_validity(lease / 2)
            .extension_cadence(lease / 3);
        Self(provider.build().await.expect("the server runs"))
    }

    /// For a lock that is free.
    pub(super) async fn hold(&self, key: u64) -> RedisLockHandle {
        let lock = self.0.create_lock(&key_text(key));
        lock.acquire(None).await.expect("nobody else has it")
    }
}

pub(super) async fn release(handle: RedisLockHandle) {
    handle.release().await.expect("it was ours");
}
