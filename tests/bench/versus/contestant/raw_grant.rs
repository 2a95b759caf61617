//! The least that waits without polling. It trusts that nothing ever fails, so it is no lock, but
//! how fast one could be.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{PushInfo, PushKind, Script, Value};
use tokio::sync::oneshot;
use uuid::Uuid;

use super::connection::{connect, connect_listening};
use super::key_text;

pub(crate) struct RawGrant {
    commands: MultiplexedConnection,
    /// Keeps the subscription.
    _ear: MultiplexedConnection,
    channel: String,
    waiting: Arc<Waiting>,
    lease_ms: u64,
}

pub(crate) struct Held {
    key: String,
    owner: String,
}

#[derive(Default)]
struct Waiting(Mutex<HashMap<String, oneshot::Sender<()>>>);

impl RawGrant {
    pub(super) async fn connect(url: &str, lease: Duration) -> Self {
        let mut commands = connect(url).await;
        for script in [&ACQUIRE, &CONFIRM, &RELEASE] {
            let loading = script.load_async(&mut commands).await;
            loading.expect("the server takes scripts");
        }
        let waiting = Arc::new(Waiting::default());
        let told = Arc::clone(&waiting);
        let mut ear = connect_listening(url, move |push: PushInfo| -> Result<(), ()> {
            told.hear(&push);
            Ok(())
        })
        .await;
        let channel = Uuid::new_v4().simple().to_string();
        ear.subscribe(&channel).await.expect("the server takes subscriptions");
        Self { commands, _ear: ear, channel, waiting, lease_ms: lease.as_millis() as u64 }
    }

    pub(super) async fn hold(&self, key: u64) -> Held {
        let held = Held { key: key_text(key), owner: Uuid::new_v4().simple().to_string() };
        let (sender, granted) = oneshot::channel();
        self.waiting.expect(&held.owner, sender);
        let taken: i32 = ACQUIRE
            .key(&held.key)
            .key(queue(&held.key))
            .arg(&held.owner)
            .arg(self.lease_ms)
            .arg(&self.channel)
            .invoke_async(&mut self.commands.clone())
            .await
            .expect("the server runs");
        if taken == 1 {
            self.waiting.forget(&held.owner);
            return held;
        }
        granted.await.expect("the message comes");
        let confirmed: i32 = CONFIRM
            .key(&held.key)
            .arg(&held.owner)
            .arg(self.lease_ms)
            .invoke_async(&mut self.commands.clone())
            .await
            .expect("the server runs");
        assert_eq!(confirmed, 1, "it was granted to us");
        held
    }

    pub(super) async fn release(&self, held: Held) {
        let mut call = RELEASE.key(&held.key);
        let released: i32 = call
            .key(queue(&held.key))
            .arg(&held.owner)
            .arg(self.lease_ms)
            .invoke_async(&mut self.commands.clone())
            .await
            .expect("the server runs");
        assert_eq!(released, 1, "it was ours");
    }
}

impl Waiting {
    fn expect(&self, owner: &str, sender: oneshot::Sender<()>) {
        self.lock().insert(owner.to_owned(), sender);
    }

    fn forget(&self, owner: &str) -> Option<oneshot::Sender<()>> {
        self.lock().remove(owner)
    }

    fn hear(&self, push: &PushInfo) {
        if push.kind != PushKind::Message {
            return;
        }
        let Some(Value::BulkString(owner)) = push.data.get(1) else { return };
        if let Some(sender) = self.forget(&String::from_utf8_lossy(owner)) {
            // Whoever waited may be gone.
            let _ = sender.send(());
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, oneshot::Sender<()>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn queue(key: &str) -> String {
    format!("{{{key}}}:queue")
}

static ACQUIRE: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return 1 end \
         redis.call('RPUSH', KEYS[2], ARGV[1] .. ' ' .. ARGV[3]) return 0",
    )
});

static CONFIRM: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "if redis.call('GET', KEYS[1]) == ARGV[1] then \
         return redis.call('PEXPIRE', KEYS[1], ARGV[2]) end return 0",
    )
});

static RELEASE: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end \
         local next = redis.call('LPOP', KEYS[2]) \
         if not next then redis.call('DEL', KEYS[1]) return 1 end \
         local owner, channel = string.match(next, '^(%S+) (%S+)$') \
         redis.call('SET', KEYS[1], owner, 'PX', ARGV[2]) \
         redis.call('PUBLISH', channel, owner) return 1",
    )
});
