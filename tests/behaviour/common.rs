//! Small helpers of the behaviour tests.
//!
//! Of times: where time is paused they are exact, and the tests ask for what is promised. On a real
//! server they pass on a busy machine, too: there a test tells what works from what does not by the
//! order of events, or by two times that lie seconds apart, such as the wake-up and the timer behind
//! it. How fast it is there is for the benchmarks to say.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use distlock::{HeldLock, LockClient, LockKey, LockRequest};
use redis::AsyncCommands;

use crate::support::{RedisServer, Store, eventually};

pub(crate) const fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

/// For a condition that is only late when something is broken. Half of the usual lease: what is free
/// by then was released.
pub(crate) const SOON: Duration = ms(5_000);

/// What a busy machine may add to a time. What a broken feature adds must be a good deal more.
pub(crate) const SLACK: Duration = ms(3_000);

/// A lease, a wait or a time-out whose end no test sees.
pub(crate) const LONG: Duration = ms(60_000);

/// A wait within which a store answers, however busy the machine is.
pub(crate) const ANSWERED: Duration = ms(1_000);

/// After this at the earliest a waiter looks again by itself, if its holder's lease does not end
/// before: the pace of a contender less its jitter.
pub(crate) const LOOKS_AGAIN: Duration = ms(3_750);

/// By now a waiter that was woken has the lock, and one that was not does not look yet.
pub(crate) const WOKEN: Duration = ms(2_500);

/// A bound for a time: to the point where time is paused, and on a real server one that tells what
/// works from what does not.
pub(crate) fn bound(store: &Store, paused: Duration, real: Duration) -> Duration {
    match store {
        Store::Memory(_) | Store::Quorum(_) => paused,
        Store::Redis(_) => real,
    }
}

/// What may be added to a time on `store`: nothing where time is paused, up to the next millisecond.
pub(crate) fn slack(store: &Store) -> Duration {
    bound(store, ms(1), SLACK)
}

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

/// A body that never ends by itself, but panics when it is polled on after its lock was lost: so a test
/// fails at once that would hang.
pub(crate) fn never_ends(held: HeldLock) -> impl Future<Output = ()> {
    let mut was_lost = false;
    poll_fn(move |_| {
        assert!(!was_lost, "the body is polled on after its lock was lost");
        // If it was lost within this very poll, the next one is the first that must not be.
        was_lost = held.is_lost();
        Poll::Pending
    })
}

/// Waits until `count` instances stand in the store's queue for `key`.
pub(crate) async fn queued(store: &Store, key: &str, count: usize) {
    match store {
        // Time moves only once everything that can happen has happened.
        Store::Memory(_) | Store::Quorum(_) => tokio::time::sleep(ms(1)).await,
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

/// Waits until nobody holds `key`, which was given back in the background: within the 200 ms that are
/// promised where time is paused; on a real server long before the usual lease ends.
pub(crate) async fn freed(store: &Store, key: &str) {
    freed_within(store, key, bound(store, ms(200), SOON)).await;
}

/// Waits until nobody holds `key`, for whatever reason.
pub(crate) async fn freed_within(store: &Store, key: &str, within: Duration) {
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
            Store::Quorum(nodes) => crate::support::owner_at(nodes, &self.key),
            Store::Redis(server) => {
                let client = redis::Client::open(server.url()).unwrap();
                redis::Commands::get(&mut client.get_connection().unwrap(), &self.key).unwrap()
            }
        }
    }
}
