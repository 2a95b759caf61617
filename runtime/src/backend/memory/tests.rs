//! What only the memory store promises: the caller's time, readiness, and that it does not grow.

use std::sync::OnceLock;
use std::task::{Context, Poll, Waker};

use super::*;
use crate::clock::Timestamp;

fn lock(key: &str, owner: &str) -> Lock {
    Lock { key: key.into(), owner: owner.into() }
}

/// Every request is answered at its first poll, within a runtime or without one.
fn now<T>(mut request: BoxFuture<T>) -> T {
    match request.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => answer,
        Poll::Pending => panic!("not ready at the first poll"),
    }
}

#[test]
fn it_works_outside_a_runtime() {
    let store = MemoryStore::new();
    let channel = MemoryBackend::new(&store).channel().unwrap();
    let ours = lock("k", "ours");
    assert_eq!(now(channel.acquire(&ours, LEASE)).unwrap(), Acquired::Granted);
    assert_eq!(store.get("k").as_deref(), Some("ours"));
    assert_eq!(now(channel.release(&ours, LEASE)).unwrap(), Released::Freed);
    assert_eq!(store.get("k"), None);
}

#[tokio::test(start_paused = true)]
async fn leases_and_places_end_with_paused_time() {
    let store = MemoryStore::new();
    let (listener, _ears) = listening(&store);
    let [first, second, third] = ["first", "second", "third"].map(|owner| lock("k", owner));
    now(listener.acquire(&first, LEASE)).unwrap();
    now(listener.contend(&second, LEASE, LEASE / 2)).unwrap();
    tokio::time::advance(LEASE / 2).await;
    let remaining = now(listener.inspect(&"k".into())).unwrap().unwrap().remaining;
    assert_eq!(remaining, Some(LEASE / 2));
    now(listener.contend(&third, LEASE, LEASE)).unwrap();
    let released = now(listener.release(&first, LEASE)).unwrap();
    assert_eq!(released, Released::Granted { owner: "third".into() });
    tokio::time::advance(LEASE).await;
    assert_eq!(store.get("k"), None);
}

#[test]
fn clients_of_one_store_share_its_clock() {
    let store = MemoryStore::new();
    let (a, b) = (MemoryBackend::new(&store), MemoryBackend::new(&store.clone()));
    let (Clock::Tokio { origin: first }, Clock::Tokio { origin: second }) = (a.clock(), b.clock())
    else {
        panic!("not tokio's clock");
    };
    assert_eq!(first, second);
}

#[test]
fn keys_that_expired_unseen_do_not_stay() {
    let mut state = State::default();
    let lease = Duration::from_nanos(100);
    for round in 0..1_000_000 {
        // A new key each nanosecond: a hundred are alive at any time.
        let (key, at) = (round.to_string(), Timestamp::from_nanos(round));
        state.acquire(&lock(&key, "ours"), lease, at).unwrap();
        assert!(state.len() <= 300, "{} after {round}", state.len());
    }
}

#[test]
fn queues_that_expired_unseen_do_not_stay() {
    let mut state = State::default();
    let (id, lease) = (Uuid::new_v4(), Duration::from_nanos(100));
    for round in 0..10_000 {
        let (key, at) = (round.to_string(), Timestamp::from_nanos(round));
        state.insert(&key.as_str().into(), Value::Text("theirs".into()), Some(at + lease), at);
        state.contend(&lock(&key, "ours"), lease, lease, id, at).unwrap();
    }
    assert!(state.is_empty(Timestamp::from_nanos(20_000)));
}

#[test]
fn a_listener_may_ask_the_store_when_it_is_told() {
    struct Curious(MemoryStore, OnceLock<Option<String>>);

    impl Events for Curious {
        fn granted(&self, key: &str, _owner: &str) {
            self.1.set(self.0.get(key)).unwrap();
        }

        fn next_in_line(&self, _key: &str, _owner: &str, _claim: Duration) {}

        fn interrupted(&self) {}
    }

    let store = MemoryStore::new();
    let curious = Arc::new(Curious(store.clone(), OnceLock::new()));
    let backend = MemoryBackend::new(&store);
    let ears = Arc::downgrade(&curious) as Weak<dyn Events>;
    let channel = now(backend.open_listening(ears)).unwrap();
    let [holder, waiting] = ["holder", "waiting"].map(|owner| lock("k", owner));
    now(channel.acquire(&holder, LEASE)).unwrap();
    now(channel.contend(&waiting, LEASE, LEASE)).unwrap();
    now(channel.release(&holder, LEASE)).unwrap();
    assert_eq!(curious.1.get().unwrap().as_deref(), Some("waiting"));
}

#[test]
fn listeners_that_are_gone_are_forgotten() {
    let store = MemoryStore::new();
    for _ in 0..100 {
        listening(&store);
    }
    let (_channel, _ears) = listening(&store);
    assert_eq!(store.lock().listeners(), 1);
}

fn listening(store: &MemoryStore) -> (Arc<dyn Channel>, Arc<impl Events>) {
    struct Deaf;

    impl Events for Deaf {
        fn granted(&self, _key: &str, _owner: &str) {}

        fn next_in_line(&self, _key: &str, _owner: &str, _claim: Duration) {}

        fn interrupted(&self) {}
    }

    let ears = Arc::new(Deaf);
    let weak = Arc::downgrade(&ears) as Weak<dyn Events>;
    (now(MemoryBackend::new(store).open_listening(weak)).unwrap(), ears)
}

const LEASE: Duration = Duration::from_secs(10);
