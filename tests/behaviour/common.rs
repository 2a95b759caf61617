//! Small helpers of the behaviour tests.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use distlock::{LockClient, LockKey, LockRequest};
use redis::AsyncCommands;

use crate::support::{RedisServer, Store, eventually};

pub(crate) const fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

/// For a condition that is only late when something is broken.
pub(crate) const SOON: Duration = Duration::from_secs(5);

/// What a busy machine may add to a time that is exact to the millisecond otherwise.
pub(crate) const SLACK: Duration = ms(150);

pub(crate) trait LockText {
    /// A request for the lock of this text.
    fn on(&self, key: &str) -> LockRequest;
}

impl LockText for LockClient {
    fn on(&self, key: &str) -> LockRequest {
        self.lock(literal(key))
    }
}

pub(crate) fn literal(key: &str) -> LockKey {
    LockKey::literal(key.to_owned())
}

/// Polls a future once.
pub(crate) async fn poll_once<F: Future + ?Sized>(mut future: Pin<&mut F>) -> Poll<F::Output> {
    poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx))).await
}

/// Waits until `count` instances stand in the store's queue for `key`.
pub(crate) async fn queued(store: &Store, key: &str, count: usize) {
    match store {
        // Time moves only once everything that can happen has happened.
        Store::Memory(_) => tokio::time::sleep(ms(1)).await,
        Store::Redis(server) => queued_at(server, key, count).await,
    }
}

/// The same on a server.
pub(crate) async fn queued_at(server: &RedisServer, key: &str, count: usize) {
    let queue = format!("distlock:{{{key}}}:queue");
    let mut connection = server.connection().await;
    eventually(&format!("{count} wait for {key}"), SOON, async || {
        connection.zcard::<_, usize>(&queue).await.unwrap() == count
    })
    .await;
}

/// Waits until nobody holds `key`.
pub(crate) async fn freed(store: &Store, key: &str, within: Duration) {
    eventually(&format!("{key} is free"), within, async || store.owner_of(key).await.is_none())
        .await;
}

/// Counts the bodies that are inside at once.
#[derive(Clone, Debug, Default)]
pub(crate) struct Inside(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    now: AtomicUsize,
    most: AtomicUsize,
    total: AtomicUsize,
}

/// A body that is inside until this is dropped.
pub(crate) struct Visit(Inside);

impl Inside {
    pub(crate) fn enter(&self) -> Visit {
        let now = self.0.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.0.most.fetch_max(now, Ordering::SeqCst);
        self.0.total.fetch_add(1, Ordering::SeqCst);
        Visit(self.clone())
    }

    /// How many are inside now.
    pub(crate) fn now(&self) -> usize {
        self.0.now.load(Ordering::SeqCst)
    }

    /// How many were inside at once at most.
    pub(crate) fn most(&self) -> usize {
        self.0.most.load(Ordering::SeqCst)
    }

    /// How many came in.
    pub(crate) fn total(&self) -> usize {
        self.0.total.load(Ordering::SeqCst)
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        self.0.0.now.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A look at one key without async, for a `Drop`.
#[derive(Debug)]
pub(crate) struct StandsNow {
    store: Store,
    key: String,
}

impl StandsNow {
    pub(crate) fn of(store: &Store, key: &str) -> Self {
        Self { store: store.clone(), key: key.to_owned() }
    }

    pub(crate) fn owner(&self) -> Option<String> {
        match &self.store {
            Store::Memory(store) => store.get(&self.key),
            Store::Redis(server) => {
                let client = redis::Client::open(server.url()).unwrap();
                redis::Commands::get(&mut client.get_connection().unwrap(), &self.key).unwrap()
            }
        }
    }
}
