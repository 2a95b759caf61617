//! What python-redis-lock does, by hand: waits by a blocking pop for a signal that a release pushes,
//! then tries again. A blocking command has a connection to itself.

use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncCommands, Script};
use uuid::Uuid;

use super::connection::connect;
use super::key_text;

pub(crate) struct Blpop {
    url: String,
    commands: MultiplexedConnection,
    /// Connections that nobody waits on at the moment.
    idle: Mutex<Vec<MultiplexedConnection>>,
    lease_ms: u64,
}

pub(crate) struct Held {
    key: String,
    owner: String,
}

impl Blpop {
    pub(super) async fn connect(url: &str, lease: Duration) -> Self {
        let mut commands = connect(url).await;
        RELEASE.load_async(&mut commands).await.expect("the server takes scripts");
        let lease_ms = lease.as_millis() as u64;
        Self { url: url.to_owned(), commands, idle: Mutex::default(), lease_ms }
    }

    pub(super) async fn hold(&self, key: u64) -> Held {
        let held = Held { key: key_text(key), owner: Uuid::new_v4().simple().to_string() };
        if self.take(&held).await {
            return held;
        }
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut waiting = match idle {
            Some(connection) => connection,
            None => connect(&self.url).await,
        };
        while !self.take(&held).await {
            let signal: redis::RedisResult<Option<(String, String)>> =
                waiting.blpop(signals(&held.key), self.lease_ms as f64 / 1e3).await;
            signal.expect("the server runs");
        }
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(waiting);
        held
    }

    pub(super) async fn release(&self, held: Held) {
        let released: i32 = RELEASE
            .key(&held.key)
            .key(signals(&held.key))
            .arg(&held.owner)
            .arg(self.lease_ms)
            .invoke_async(&mut self.commands.clone())
            .await
            .expect("the server runs");
        assert_eq!(released, 1, "it was ours");
    }

    async fn take(&self, held: &Held) -> bool {
        let mut set = redis::cmd("SET");
        set.arg(&held.key).arg(&held.owner).arg("NX").arg("PX").arg(self.lease_ms);
        let taken: Option<String> =
            set.query_async(&mut self.commands.clone()).await.expect("the server runs");
        taken.is_some()
    }
}

fn signals(key: &str) -> String {
    format!("{{{key}}}:signal")
}

static RELEASE: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end \
         redis.call('DEL', KEYS[2]) redis.call('LPUSH', KEYS[2], 1) \
         redis.call('PEXPIRE', KEYS[2], ARGV[2]) redis.call('DEL', KEYS[1]) return 1",
    )
});
