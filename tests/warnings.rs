//! What a user is warned of, once, about the server that the locks are on.
//!
//! A binary of its own: the driver has a thread of its own, which only a subscriber of the whole
//! process hears.

use std::sync::{LazyLock, Mutex, MutexGuard};
use std::time::Duration;

use distlock::{LockClient, LockKey, Release};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use self::support::{RedisServer, eventually, unique_key};

#[path = "support/mod.rs"]
mod support;

/// Each warning with its fields, as text.
static WARNINGS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Notes the warnings of the library.
struct Notes;

impl Subscriber for Notes {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("distlock") && *metadata.level() <= Level::WARN
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut text = Text(String::new());
        event.record(&mut text);
        warnings().push(text.0);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.0 += &format!("{}={value:?} ", field.name());
    }
}

fn warnings() -> MutexGuard<'static, Vec<String>> {
    static SUBSCRIBED: LazyLock<()> = LazyLock::new(|| {
        tracing::subscriber::set_global_default(Notes).expect("nobody else's binary");
    });
    LazyLock::force(&SUBSCRIBED);
    WARNINGS.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// The warnings that contain `text`.
fn about(text: &str) -> Vec<String> {
    warnings().iter().filter(|warning| warning.contains(text)).cloned().collect()
}

async fn run(server: &RedisServer, words: &[&str]) {
    let mut command = redis::cmd(words[0]);
    command.arg(&words[1..]).exec_async(&mut server.connection().await).await.unwrap();
}

/// Two clients compete, so that both connections of each are opened, and again after they ended.
async fn use_both_connections(server: &RedisServer, url: &str) {
    let build = || LockClient::builder().url(url).wait(Duration::from_secs(20)).build().unwrap();
    let clients = [build(), build()];
    let key = unique_key("warned");
    let lock = |client: &LockClient| client.lock(LockKey::literal(key.clone()));
    for _ in 0..2 {
        let guard = lock(&clients[0]).acquire().await.unwrap();
        let waiter = tokio::spawn(lock(&clients[1]).acquire());
        let queue = format!("distlock:{{{key}}}:queue");
        let mut connection = server.connection().await;
        eventually("the other one waits", Duration::from_secs(20), async || {
            redis::cmd("ZCARD").arg(&queue).query_async::<u8>(&mut connection).await.unwrap() == 1
        })
        .await;
        guard.release().await.unwrap();
        waiter.await.unwrap().unwrap().release().await.unwrap();
        run(server, &["CLIENT", "KILL", "TYPE", "normal"]).await;
        run(server, &["CLIENT", "KILL", "TYPE", "pubsub"]).await;
    }
}

/// R29: eviction risk is visible.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn policy_that_evicts_locks_is_told_once_for_each_client() {
    drop(warnings());
    let server = RedisServer::with_arguments(&["--maxmemory-policy", "allkeys-lru"]);
    use_both_connections(&server, &server.url()).await;
    let told = about(&server.address().to_string());
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(told[0].contains("may evict locks"), "{told:?}");
    assert!(told[0].contains("distlock.policy=allkeys-lru"), "{told:?}");

    // Where nothing is evicted, or nobody may ask, there is nothing to say.
    let server = RedisServer::start();
    use_both_connections(&server, &server.url()).await;
    assert_eq!(about(&server.address().to_string()), [""; 0]);
    let server = RedisServer::with_arguments(&["--maxmemory-policy", "allkeys-lru"]);
    run(&server, &["ACL", "SETUSER", "app", "on", ">secret", "~*", "&*", "+@all", "-info"]).await;
    use_both_connections(&server, &server.url().replace("//", "//app:secret@")).await;
    assert_eq!(about(&server.address().to_string()), [""; 0]);
    assert_eq!(about("secret"), [""; 0]);
}

/// k159: without the channel all works by timer, and one warning says so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn missing_channel_is_told_once_for_each_client() {
    drop(warnings());
    let server = RedisServer::start();
    let rights = ["ACL", "SETUSER", "deaf", "on", ">secret", "~*", "resetchannels", "+@all"];
    run(&server, &rights).await;
    use_both_connections(&server, &server.url().replace("//", "//deaf:secret@")).await;
    // Only the one that waited had to listen.
    let told = about("waiters go by timer");
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains("distlock:*"), "{told:?}");
}

/// A release may be the first to find out, also one that nobody waits for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn release_that_finds_the_lock_gone_is_told() {
    drop(warnings());
    let server = RedisServer::start();
    let client = LockClient::builder().url(server.url()).build().unwrap();
    for release in [Release::Await, Release::Background] {
        let key = unique_key("gone");
        let request = client.lock(LockKey::literal(key.clone())).release(release);
        let take_away = |_| async { run(&server, &["SET", &key, "intruder"]).await };
        request.run(take_away).await.unwrap();

        eventually("it is told", Duration::from_secs(20), async || !about(&key).is_empty()).await;
        let told = about(&key);
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told[0].contains("at its release the lock was not ours any more"), "{told:?}");
    }
}
