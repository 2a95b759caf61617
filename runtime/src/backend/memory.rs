//! Locks in this process.
//!
//! Decides what the scripts of the Redis store decide, in the same order, on maps under one mutex.
//! Time is tokio's clock, read at the request's first poll, so that paused time works.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use uuid::Uuid;

use self::message::Message;
use self::state::{State, Value};
use super::{
    Acquired, Backend, BoxFuture, Channel, Contended, Drawn, DriverHome, Events, Holder, Lock,
    Released, Renewal, Renewed, StoreError, StoreErrorKind, StoreResult,
};
use crate::clock::{Clock, unix_micros};

mod message;
pub(crate) mod state;
#[cfg(test)]
mod tests;

/// A store of locks in this process, for tests and for programs that run once.
///
/// A clone is the same store, so several clients on one `MemoryStore` behave like several instances
/// on one Redis. It lives by tokio's clock: in a test with paused time, leases run out as the test
/// moves it. A store that nobody refers to any more is gone with all its locks.
///
/// The methods look at the store as another program would, past every client.
///
/// ```
/// use std::time::Duration;
///
/// use distlock::MemoryStore;
///
/// let store = MemoryStore::new();
/// store.insert_foreign("stock:lock:7", "some other program", Some(Duration::from_secs(5)));
/// assert_eq!(store.get("stock:lock:7").as_deref(), Some("some other program"));
/// ```
#[derive(Clone, Default)]
pub struct MemoryStore(Arc<Shared>);

struct Shared {
    clock: Clock,
    state: Mutex<State>,
}

impl MemoryStore {
    /// Creates an empty store.
    ///
    /// ```
    /// assert_eq!(distlock::MemoryStore::new().get("stock:lock:7"), None);
    /// ```
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns what stands under `key`: the owner of a lock, or another program's text.
    ///
    /// ```
    /// let store = distlock::MemoryStore::new();
    /// store.insert_foreign("stock:lock:7", "mine", None);
    /// assert_eq!(store.get("stock:lock:7").as_deref(), Some("mine"));
    /// ```
    #[must_use]
    pub fn get(&self, key: &str) -> Option<String> {
        let now = self.0.clock.now();
        match self.lock().value(key, now)? {
            (Value::Text(text), _) => Some(text.as_ref().to_owned()),
            (Value::OtherType, _) => None,
        }
    }

    /// Sets `key` to `value` as another program could, over whatever stands there. With a `ttl` it
    /// is a lock of that program's; without one it is no lock, and a call on this key fails with
    /// [`ForeignValue`](crate::LockErrorKind::ForeignValue).
    ///
    /// ```
    /// let store = distlock::MemoryStore::new();
    /// store.insert_foreign("stock:lock:7", "no lock at all", None);
    /// ```
    pub fn insert_foreign(&self, key: &str, value: &str, ttl: Option<Duration>) {
        self.insert(key, Value::Text(value.into()), ttl);
    }

    /// Sets `key` to something that is no text, as another program could: a list, say. A call on
    /// this key fails with [`ForeignValue`](crate::LockErrorKind::ForeignValue).
    ///
    /// ```
    /// let store = distlock::MemoryStore::new();
    /// store.insert_foreign_type("stock:lock:7");
    /// assert_eq!(store.get("stock:lock:7"), None);
    /// ```
    pub fn insert_foreign_type(&self, key: &str) {
        self.insert(key, Value::OtherType, None);
    }

    /// Removes whatever stands under `key`, as another program could.
    ///
    /// ```
    /// let store = distlock::MemoryStore::new();
    /// store.insert_foreign("stock:lock:7", "no lock at all", None);
    /// store.remove("stock:lock:7");
    /// assert_eq!(store.get("stock:lock:7"), None);
    /// ```
    pub fn remove(&self, key: &str) {
        self.lock().remove(key);
    }

    /// Whether both are one store.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Whether nothing is kept: no value, and no place in a queue.
    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.lock().is_empty(self.0.clock.now())
    }

    fn insert(&self, key: &str, value: Value, ttl: Option<Duration>) {
        let now = self.0.clock.now();
        self.lock().insert(&key.into(), value, ttl.map(|ttl| now + ttl), now);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing under this mutex calls code of others, so a poisoned state is a whole state.
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Shared {
    fn default() -> Self {
        Self { clock: Clock::tokio(), state: Mutex::new(State::new(unix_micros())) }
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore").field("values", &self.lock().len()).finish_non_exhaustive()
    }
}

/// One client's view of a [`MemoryStore`].
#[derive(Debug)]
pub(crate) struct MemoryBackend {
    channel: Arc<MemoryChannel>,
    /// Names the client among the listeners of its store.
    id: Uuid,
}

impl MemoryBackend {
    pub(crate) fn new(store: &MemoryStore) -> Self {
        Self {
            channel: Arc::new(MemoryChannel { store: store.clone(), listener: None }),
            id: Uuid::new_v4(),
        }
    }
}

impl Backend for MemoryBackend {
    fn clock(&self) -> Clock {
        self.channel.store.0.clock
    }

    fn driver_home(&self) -> DriverHome {
        DriverHome::Caller
    }

    fn channel(&self) -> Option<Arc<dyn Channel>> {
        Some(Arc::clone(&self.channel) as Arc<dyn Channel>)
    }

    fn open(&self) -> BoxFuture<StoreResult<Arc<dyn Channel>>> {
        let channel = Arc::clone(&self.channel);
        Box::pin(async move { Ok(channel as Arc<dyn Channel>) })
    }

    fn open_listening(&self, events: Weak<dyn Events>) -> BoxFuture<StoreResult<Arc<dyn Channel>>> {
        let store = self.channel.store.clone();
        let id = self.id;
        Box::pin(async move {
            store.lock().listen(id, events);
            Ok(Arc::new(MemoryChannel { store, listener: Some(id) }) as Arc<dyn Channel>)
        })
    }
}

#[derive(Debug)]
struct MemoryChannel {
    store: MemoryStore,
    /// Whose events arrive here, on a listening channel.
    listener: Option<Uuid>,
}

impl Channel for MemoryChannel {
    fn is_open(&self) -> bool {
        true
    }

    fn answers_within(&self) -> Duration {
        Duration::ZERO
    }

    // The store is reached by a call: there is nothing to close.
    fn retire(&self, _key: &str) {}

    fn acquire(&self, lock: &Lock, lease: Duration) -> BoxFuture<StoreResult<Acquired>> {
        let (store, lock) = (self.store.clone(), lock.clone());
        Box::pin(async move {
            let now = store.0.clock.now();
            store.lock().acquire(&lock, lease, now)
        })
    }

    fn contend(
        &self,
        lock: &Lock,
        lease: Duration,
        keep: Duration,
    ) -> BoxFuture<StoreResult<Contended>> {
        let (store, lock, listener) = (self.store.clone(), lock.clone(), self.listener);
        Box::pin(async move {
            let listener = listener.ok_or_else(not_listening)?;
            let now = store.0.clock.now();
            store.lock().contend(&lock, lease, keep, listener, now)
        })
    }

    fn draw(&self, lock: &Lock, take: Option<Duration>) -> BoxFuture<StoreResult<Drawn>> {
        let (store, lock) = (self.store.clone(), lock.clone());
        Box::pin(async move {
            let now = store.0.clock.now();
            store.lock().draw(&lock, take, now)
        })
    }

    fn renew(&self, batch: &[Renewal]) -> BoxFuture<StoreResult<Vec<Renewed>>> {
        let (store, batch) = (self.store.clone(), batch.to_vec());
        Box::pin(async move {
            let now = store.0.clock.now();
            let mut state = store.lock();
            Ok(batch.iter().map(|renewal| state.renew(renewal, now)).collect())
        })
    }

    fn release(&self, lock: &Lock, claim: Duration) -> BoxFuture<StoreResult<Released>> {
        let (store, lock) = (self.store.clone(), lock.clone());
        Box::pin(async move {
            let now = store.0.clock.now();
            let (released, messages) = store.lock().release(&lock, claim, now);
            // The mutex is free again: what a listener does with its message may come back to us.
            messages.into_iter().for_each(Message::deliver);
            Ok(released)
        })
    }

    fn inspect(&self, key: &Arc<str>) -> BoxFuture<StoreResult<Option<Holder>>> {
        let (store, key) = (self.store.clone(), Arc::clone(key));
        Box::pin(async move {
            let now = store.0.clock.now();
            store.lock().inspect(&key, now)
        })
    }

    fn raise(&self, lock: &Lock, token: u64) -> BoxFuture<StoreResult<Drawn>> {
        let (store, lock) = (self.store.clone(), lock.clone());
        Box::pin(async move {
            let now = store.0.clock.now();
            store.lock().raise(&lock, token, now)
        })
    }

    fn wake(&self, key: &Arc<str>, claim: Duration) -> BoxFuture<StoreResult<bool>> {
        let (store, key) = (self.store.clone(), Arc::clone(key));
        Box::pin(async move {
            let now = store.0.clock.now();
            let messages = store.lock().wake(&key, claim, now);
            let told = !messages.is_empty();
            // The mutex is free again, as at a release.
            messages.into_iter().for_each(Message::deliver);
            Ok(told)
        })
    }

    fn delivers_events(&self) -> bool {
        true
    }
}

fn not_listening() -> StoreError {
    StoreError::new(
        StoreErrorKind::Refused,
        "a contender needs a listening channel: open one with open_listening",
    )
}
