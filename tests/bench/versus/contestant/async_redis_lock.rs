//! async-redis-lock: polls every 100 ms, its default.

use std::time::Duration;

use async_redis_lock::{Lock, Locker, Options};

use super::key_text;

pub(crate) struct AsyncRedisLock {
    locker: Locker,
    options: Options,
}

impl AsyncRedisLock {
    pub(super) async fn connect(url: &str, lease: Duration) -> Self {
        let locker = Locker::from_redis_url(url).await.expect("the server runs");
        let options = Options::new().ttl(lease).extend(lease / 3).timeout(None);
        Self { locker, options }
    }

    pub(super) async fn hold(&self, key: u64) -> Lock {
        let taking = self.locker.acquire_with_options(&self.options, key_text(key));
        taking.await.expect("waits for ever")
    }
}
