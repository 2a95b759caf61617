//! Locks by calls that block, on both stores.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use distlock::{BlockingClient, LockClient, LockErrorKind, LockKey, LockOptions, MemoryStore};

#[path = "support/mod.rs"]
mod support;

use support::{CommandLog, RedisServer, unique_key};

/// Makes clients of one store, none of them on a runtime.
enum Store {
    Memory(MemoryStore),
    Redis(Arc<RedisServer>),
}

impl Store {
    fn client(&self) -> BlockingClient {
        let builder = LockClient::builder();
        let builder = match self {
            Self::Memory(store) => builder.memory_store(store.clone()),
            Self::Redis(server) => builder.url(server.url()),
        };
        builder.build().unwrap().blocking()
    }
}

macro_rules! on_every_store {
    ($($test:ident),* $(,)?) => {
        $(mod $test {
            #[test]
            fn on_memory() {
                super::$test(&super::Store::Memory(distlock::MemoryStore::new()));
            }

            #[test]
            fn on_redis() {
                super::$test(&super::Store::Redis(crate::support::RedisServer::shared()));
            }
        })*
    };
}

on_every_store! {
    a_call_outlives_the_client,
    a_nested_call_enters,
    a_panic_releases,
    a_wait_ends_in_time,
    max_hold_ends_renewal_but_not_the_body,
    several_keys_are_held_together,
    threads_of_several_instances_exclude_each_other,
    tokens_are_to_be_had,
    works_on_a_thread_of_a_runtime,
}

fn key(text: &str) -> LockKey {
    LockKey::literal(text.to_owned())
}

fn waiting(wait: Duration) -> LockOptions {
    LockOptions::new().wait(wait)
}

fn threads_of_several_instances_exclude_each_other(store: &Store) {
    let name = unique_key("blocking");
    let (inside, sections) = (AtomicUsize::new(0), AtomicUsize::new(0));
    thread::scope(|scope| {
        for _ in 0..3 {
            let locks = store.client();
            let (name, inside, sections) = (&name, &inside, &sections);
            for _ in 0..3 {
                let locks = locks.clone();
                scope.spawn(move || {
                    for _ in 0..20 {
                        let patient = waiting(Duration::from_secs(60));
                        let body = |_| {
                            assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                            thread::yield_now();
                            inside.fetch_sub(1, Ordering::SeqCst);
                            sections.fetch_add(1, Ordering::SeqCst);
                        };
                        locks.lock(key(name)).options(patient).run(body).unwrap();
                    }
                });
            }
        }
    });

    assert_eq!(sections.into_inner(), 3 * 3 * 20);
}

fn a_wait_ends_in_time(store: &Store) {
    let name = unique_key("blocking");
    let guard = store.client().lock(key(&name)).acquire().unwrap();
    // So long that the store answers, however busy the machine is.
    let wait = Duration::from_secs(1);

    let started = Instant::now();
    let other = store.client();
    let error = other.lock(key(&name)).options(waiting(wait)).acquire().unwrap_err();

    assert_eq!(error.kind(), LockErrorKind::Timeout);
    // The holder renews its lock for ever.
    assert!(started.elapsed() >= wait && started.elapsed() < 5 * wait, "{:?}", started.elapsed());
    assert!(other.lock(key(&name)).try_acquire().unwrap().is_none());
    guard.release().unwrap();
    assert!(other.lock(key(&name)).try_acquire().unwrap().is_some());
}

fn a_nested_call_enters(store: &Store) {
    let (locks, name) = (store.client(), unique_key("blocking"));

    let depth = locks.lock(key(&name)).run(|outer| {
        locks.lock(key(&name)).run(|inner| {
            assert_eq!(inner.owner(), outer.owner());
            2
        })
    });

    assert_eq!(depth.unwrap().unwrap(), 2);
    assert!(store.client().lock(key(&name)).try_acquire().unwrap().is_some());
}

fn a_panic_releases(store: &Store) {
    let (locks, name) = (store.client(), unique_key("blocking"));

    let panicked = thread::spawn({
        let name = name.clone();
        move || locks.lock(key(&name)).run(|_| panic!("on purpose"))
    });

    panicked.join().unwrap_err();
    let patient = waiting(Duration::from_secs(60));
    let started = Instant::now();
    store.client().lock(key(&name)).options(patient).acquire().unwrap().release().unwrap();
    // Long before the lease of ten seconds ends.
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
}

fn max_hold_ends_renewal_but_not_the_body(store: &Store) {
    let (locks, name) = (store.client(), unique_key("blocking"));
    let short = Duration::from_secs(1);
    let capped = LockOptions::new().lease(short).max_hold(2 * short).strict();

    let mut went_on = false;
    let outcome = locks.lock(key(&name)).options(capped).run(|held| {
        let deadline = Instant::now() + 20 * short;
        while !held.is_lost() {
            assert!(Instant::now() < deadline, "renewed past max_hold");
            thread::sleep(Duration::from_millis(1));
        }
        went_on = true;
    });

    assert!(went_on);
    assert_eq!(outcome.unwrap_err().kind(), LockErrorKind::HoldLimit);
    let patient = waiting(20 * short);
    store.client().lock(key(&name)).options(patient).acquire().unwrap().release().unwrap();
}

fn several_keys_are_held_together(store: &Store) {
    let (locks, a, b) = (store.client(), unique_key("a"), unique_key("b"));
    let other = store.client();

    let guard = locks.lock_all([key(&b), key(&a)]).acquire().unwrap();

    assert!(other.lock(key(&a)).try_acquire().unwrap().is_none());
    assert!(other.lock(key(&b)).try_acquire().unwrap().is_none());
    guard.release().unwrap();
    assert!(other.lock_all([key(&a), key(&b)]).try_acquire().unwrap().is_some());
}

fn tokens_are_to_be_had(store: &Store) {
    let (locks, name) = (store.client(), unique_key("blocking"));
    let token = || locks.lock(key(&name)).run(|held| held.blocking_fencing_token());

    let first = token().unwrap().unwrap();

    assert!(token().unwrap().unwrap() > first);
}

fn a_call_outlives_the_client(store: &Store) {
    let name = unique_key("blocking");
    for _ in 0..20 {
        let request = store.client().lock(key(&name));
        let guard = request.acquire().unwrap();
        guard.release().unwrap();
    }

    assert!(store.client().lock(key(&name)).try_acquire().unwrap().is_some());
}

fn works_on_a_thread_of_a_runtime(store: &Store) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (locks, name) = (store.client(), unique_key("blocking"));
        locks.lock(key(&name)).run(|_| ()).unwrap();
    });
}

#[test]
fn a_call_sends_two_commands_and_a_nested_one_none() {
    let server = RedisServer::start();
    let log = CommandLog::start(&server);
    let locks = LockClient::builder().url(server.url()).build().unwrap().blocking();
    let work = move || {
        locks.lock(key("k")).run(|_| locks.lock(key("k")).run(|_| ()).unwrap()).unwrap();
        locks
    };
    // The first call connects.
    let locks = thread::spawn(work.clone()).join().unwrap();

    let before = log.mark();
    thread::spawn(move || (work(), locks)).join().unwrap();
    let commands = log.since(before);

    let sent: Vec<_> = commands.iter().filter(|command| command.contains('k')).collect();
    assert_eq!(sent.len(), 2, "{commands:?}");
}
