//! Ourselves.

use std::time::Duration;

use distlock::{LockClient, LockGuard, LockRequest, Release, lock_key};

pub(crate) struct Distlock(LockClient);

impl Distlock {
    pub(super) async fn connect(url: &str, lease: Duration) -> Self {
        let client = LockClient::builder().url(url).lease(lease).wait(FOREVER);
        Self(client.connect().await.expect("the server runs"))
    }

    pub(crate) async fn section<T: Send>(&self, key: u64, body: impl FnOnce() -> T + Send) -> T {
        self.request(key).run(|_| async { body() }).await.expect("no loss")
    }

    pub(super) async fn hold(&self, key: u64) -> LockGuard {
        self.request(key).acquire().await.expect("waits long enough")
    }

    /// An empty section that does not wait for its release.
    pub(crate) async fn section_released_in_background(&self, key: u64) {
        let request = self.request(key).release(Release::Background);
        request.run(|_| async {}).await.expect("no loss");
    }

    /// The client itself, for what only it can do.
    pub(crate) fn request(&self, key: u64) -> LockRequest {
        self.0.lock(lock_key!("bench:lock:<key>"))
    }
}

const FOREVER: Duration = Duration::from_secs(3600);
