//! The two commands that a lock is made of.

use std::sync::LazyLock;
use std::time::Duration;

use redis::Script;
use redis::aio::MultiplexedConnection;
use uuid::Uuid;

use super::connection::connect;
use super::key_text;

pub(crate) struct Raw {
    connection: MultiplexedConnection,
    lease_ms: u64,
}

pub(crate) struct Held {
    key: String,
    owner: String,
}

impl Raw {
    pub(super) async fn connect(url: &str, lease: Duration) -> Self {
        let mut connection = connect(url).await;
        let loading = RELEASE.load_async(&mut connection).await;
        loading.expect("the server takes scripts");
        Self { connection, lease_ms: lease.as_millis() as u64 }
    }

    /// For a lock that is free.
    pub(super) async fn hold(&self, key: u64) -> Held {
        let held = Held { key: key_text(key), owner: Uuid::new_v4().simple().to_string() };
        let taken: Option<String> = redis::cmd("SET")
            .arg(&held.key)
            .arg(&held.owner)
            .arg("NX")
            .arg("PX")
            .arg(self.lease_ms)
            .query_async(&mut self.connection.clone())
            .await
            .expect("the server runs");
        assert!(taken.is_some(), "nobody else has it");
        held
    }

    /// One round trip.
    pub(crate) async fn ping(&self) {
        let ping = redis::cmd("PING");
        let pong: String =
            ping.query_async(&mut self.connection.clone()).await.expect("the server runs");
        assert_eq!(pong, "PONG");
    }

    pub(super) async fn release(&self, held: Held) {
        let mut call = RELEASE.key(&held.key);
        let freed: i32 = call
            .arg(&held.owner)
            .invoke_async(&mut self.connection.clone())
            .await
            .expect("the server runs");
        assert_eq!(freed, 1, "it was ours");
    }
}

static RELEASE: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end \
         return 0",
    )
});
