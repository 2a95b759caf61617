//! One client, many runtimes: in turn, in parallel, of every kind, stopped and gone.
//!
//! Plain tests with runtimes of their own; time is real on both stores.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use distlock::{LockClient, LockErrorKind, Release};
use tokio::runtime::{Builder, Runtime};

use crate::common::{Inside, LONG, LOOKS_AGAIN, LockText, SOON, StandsNow, ms};
use crate::support::{Store, unique_key};

/// Runs each test on every store.
macro_rules! on_both {
    ($($name:ident),* $(,)?) => {$(
        mod $name {
            #[test]
            fn memory() {
                super::$name(&crate::support::Store::memory());
            }

            #[test]
            fn redis() {
                super::$name(&crate::support::Store::redis());
            }
        }
    )*};
}

on_both! {
    client_is_used_from_one_runtime_after_the_other,
    client_is_used_from_several_runtimes_in_parallel,
    lock_passes_from_a_runtime_to_another_one,
    waiter_of_a_runtime_that_stopped_is_passed_over,
    call_left_behind_in_a_stopped_runtime_holds_nothing_up,
    runtime_that_ends_releases_its_bodies,
    guard_outlives_its_runtime,
    release_in_the_background_needs_no_runtime_after_the_call,
    call_outside_of_any_runtime_is_refused,
    body_that_blocks_the_only_thread_lets_others_wait_in_order,
}

fn current_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

fn multi_thread() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

#[track_caller]
fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < SOON, "not within {SOON:?}: {what}");
        thread::sleep(ms(2));
    }
}

fn poll_outside<F: Future>(future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

fn client_is_used_from_one_runtime_after_the_other(store: &Store) {
    let (key, client) = (unique_key("in-turn"), store.client());
    let stands = StandsNow::of(store, &key);
    for round in 0..6 {
        let runtime = if round % 2 == 0 { current_thread() } else { multi_thread() };
        runtime.block_on(async {
            client.on(&key).run(|_| async {}).await.unwrap();
            let guard = client.on(&key).acquire().await.unwrap();
            let waiter = tokio::spawn(client.on(&key).acquire());
            tokio::task::yield_now().await;
            guard.release().await.unwrap();
            waiter.await.unwrap().unwrap().release().await.unwrap();
        });
        assert_eq!(stands.owner(), None);
    }
}

fn client_is_used_from_several_runtimes_in_parallel(store: &Store) {
    let (key, client, inside) = (unique_key("parallel"), store.client(), Inside::default());
    thread::scope(|scope| {
        for number in 0..4 {
            let (key, client, inside) = (&key, &client, &inside);
            scope.spawn(move || {
                let runtime = if number % 2 == 0 { current_thread() } else { multi_thread() };
                runtime.block_on(async {
                    for _ in 0..25 {
                        let call = client.on(key).wait(LONG).run(|_| async {
                            let _visit = inside.enter();
                            tokio::time::sleep(Duration::from_micros(200)).await;
                        });
                        call.await.unwrap();
                    }
                });
            });
        }
    });

    assert_eq!((inside.total(), inside.most()), (100, 1));
}

fn lock_passes_from_a_runtime_to_another_one(store: &Store) {
    let (key, client) = (unique_key("passes"), store.client());
    let (first, second) = (current_thread(), current_thread());
    let guard = first.block_on(client.on(&key).acquire()).unwrap();
    // `first` exists, but nobody polls it from here on.
    let dropped = thread::spawn(move || {
        thread::sleep(ms(50));
        drop(guard);
    });

    let guard = second.block_on(client.on(&key).wait(LONG).acquire()).unwrap();

    dropped.join().unwrap();
    second.block_on(guard.release()).unwrap();
    drop(first);
    let stands = StandsNow::of(store, &key);
    eventually("the key is free", || stands.owner().is_none());
}

fn waiter_of_a_runtime_that_stopped_is_passed_over(store: &Store) {
    let (key, client) = (unique_key("stopped-waiter"), store.client());
    let (stopped, running) = (current_thread(), current_thread());
    let holder = store.client();
    let guard = running.block_on(holder.on(&key).acquire()).unwrap();
    let mut waiter = pin!(client.on(&key).wait(LONG).acquire());
    stopped.block_on(async {
        let polled = tokio::time::timeout(ms(300), waiter.as_mut()).await;
        assert!(polled.is_err(), "it waits");
    });
    // In line before the next one, and not polled any more.
    running.block_on(guard.release()).unwrap();

    let start = Instant::now();
    let guard = running.block_on(client.on(&key).wait(LONG).acquire()).unwrap();

    // A claim or two, of 500 ms.
    assert!(start.elapsed() < LOOKS_AGAIN, "{:?}", start.elapsed());
    running.block_on(guard.release()).unwrap();
    // Polled again it gets its turn.
    stopped.block_on(async { waiter.await.unwrap().release().await.unwrap() });
}

fn call_left_behind_in_a_stopped_runtime_holds_nothing_up(store: &Store) {
    let (key, client) = (unique_key("left-behind"), store.client());
    let (stopped, running) = (current_thread(), current_thread());
    let stands = StandsNow::of(store, &key);
    {
        let mut call = pin!(client.on(&key).acquire());
        // The first polls connect and send; the answer is not read.
        for _ in 0..3 {
            let polled = stopped.block_on(crate::common::poll_once(call.as_mut()));
            if polled.is_ready() {
                break;
            }
        }
    }

    eventually("what it had sent is undone", || stands.owner().is_none());
    running.block_on(client.on(&key).run(|_| async {})).unwrap();
    drop(stopped);
}

fn runtime_that_ends_releases_its_bodies(store: &Store) {
    let (key, client, inside) = (unique_key("ended"), store.client(), Inside::default());
    let runtime = multi_thread();
    let stands = StandsNow::of(store, &key);
    for key in [&key, &unique_key("ended-too")] {
        let request = client.on(key);
        let visits = inside.clone();
        runtime.spawn(request.run(move |_| async move {
            let _visit = visits.enter();
            std::future::pending::<()>().await;
        }));
    }
    eventually("both are in", || inside.now() == 2);

    drop(runtime);

    assert_eq!(inside.now(), 0);
    eventually("released without its runtime", || stands.owner().is_none());
}

/// The driver sends what a runtime leaves behind that ends, or is not polled any more.
fn release_in_the_background_needs_no_runtime_after_the_call(store: &Store) {
    let client = store.client();
    for ends in [false, true] {
        let key = unique_key("left-behind");
        let stands = StandsNow::of(store, &key);
        let runtime = current_thread();
        let request = client.on(&key).lease(ms(60_000)).release(Release::Background);

        runtime.block_on(request.run(|_| async {})).unwrap();

        let stopped = (!ends).then_some(runtime);
        eventually("it is free", || stands.owner().is_none());
        drop(stopped);
        current_thread().block_on(async {
            let guard = client.on(&key).try_acquire().await.unwrap();
            guard.expect("it is free").release().await.unwrap();
        });
    }
}

fn guard_outlives_its_runtime(store: &Store) {
    let (key, client) = (unique_key("outlives"), store.client());
    let runtime = current_thread();
    let guard = runtime.block_on(client.on(&key).acquire()).unwrap();
    drop(runtime);
    let stands = StandsNow::of(store, &key);
    assert_eq!(stands.owner().as_deref(), Some(guard.owner()));

    current_thread().block_on(guard.release()).unwrap();

    assert_eq!(stands.owner(), None);
}

fn call_outside_of_any_runtime_is_refused(store: &Store) {
    let (key, client) = (unique_key("outside"), store.client());

    let call = pin!(client.on(&key).acquire());

    let Poll::Ready(Err(error)) = poll_outside(call) else { panic!("it cannot be waited for") };
    assert_eq!(error.kind(), LockErrorKind::Config, "{error}");
    assert!(error.to_string().contains("tokio"), "{error}");
}

fn body_that_blocks_the_only_thread_lets_others_wait_in_order(store: &Store) {
    let (key, client) = (unique_key("blocked"), store.client());
    let runtime = current_thread();
    runtime.block_on(async {
        let body = client.on(&key).run(|_| async {
            thread::sleep(ms(100));
            1
        });
        let next = client.on(&key).run(|_| async { 2 });
        let (first, second) = tokio::join!(body, next);
        assert_eq!((first.unwrap(), second.unwrap()), (1, 2));
    });
}

// On Redis alone: on the memory store nothing runs beside the runtimes of the callers.

#[test]
fn hold_of_a_runtime_that_is_not_polled_is_renewed() {
    let store = Store::redis();
    let (key, client) = (unique_key("not-polled"), store.client());
    let runtime = current_thread();
    let guard = runtime.block_on(client.on(&key).lease(ms(1_500)).acquire()).unwrap();
    let stands = StandsNow::of(&store, &key);

    thread::sleep(ms(2_500));

    assert!(!guard.is_lost());
    assert_eq!(stands.owner().as_deref(), Some(guard.owner()));
    // So that it does not end by itself.
    runtime.block_on(guard.extend(LONG)).unwrap();
    drop(guard);
    eventually("released, without its runtime", || stands.owner().is_none());
    drop(runtime);
}

#[test]
fn body_that_blocks_every_worker_keeps_its_lock() {
    let store = Store::redis();
    let (key, client) = (unique_key("starved"), store.client());
    for runtime in [current_thread(), multi_thread()] {
        let other = store.client();
        let call = client.on(&key).lease(ms(1_500)).strict().run(|held| async move {
            let done = Arc::new(AtomicBool::new(false));
            for _ in 0..4 {
                let done = Arc::clone(&done);
                tokio::spawn(async move {
                    while !done.load(Ordering::Relaxed) {
                        thread::sleep(ms(5));
                    }
                });
            }
            thread::sleep(ms(2_500));
            done.store(true, Ordering::Relaxed);
            assert!(!held.is_lost());
        });
        runtime.block_on(call).unwrap();
        assert!(runtime.block_on(other.on(&key).try_acquire()).unwrap().is_some());
    }
}

#[test]
fn client_is_dropped_while_its_guards_live_on() {
    let store = Store::redis();
    let key = unique_key("client-dropped");
    let runtime = current_thread();
    let client = store.client();
    let guard = runtime.block_on(client.on(&key).lease(ms(1_500)).acquire()).unwrap();
    drop(client);

    thread::sleep(ms(2_500));

    assert!(!guard.is_lost(), "renewed as long as the guard lives");
    runtime.block_on(guard.release()).unwrap();
    assert_eq!(StandsNow::of(&store, &key).owner(), None);
}

#[test]
fn thousand_clients_leave_no_thread_behind() {
    let store = Store::redis();
    let runtime = current_thread();
    let threads = || std::fs::read_dir("/proc/self/task").map(Iterator::count).unwrap_or(0);
    let drivers = || {
        std::fs::read_dir("/proc/self/task")
            .into_iter()
            .flatten()
            .filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok())
            .filter(|name| name.starts_with("distlock-drive"))
            .count()
    };
    let key = unique_key("clients");
    let before = threads();
    for _ in 0..20 {
        let client: LockClient = store.client();
        runtime.block_on(client.on(&key).run(|_| async {})).unwrap();
        drop(runtime.block_on(client.on(&key).acquire()).unwrap());
    }
    // Other tests have clients of their own meanwhile.
    eventually("the driver threads ended with their clients", || {
        threads() <= before + 16 || drivers() < 20
    });
}

/// Promise 6: whatever happens on the driver's thread in the user's name, other holds are renewed.
#[test]
fn panic_of_a_waker_does_not_end_the_renewals() {
    struct Panics;

    impl std::task::Wake for Panics {
        fn wake(self: Arc<Self>) {
            panic!("of a waker, on purpose");
        }
    }

    let store = Store::redis();
    let (key, client, runtime) = (unique_key("waker"), store.client(), multi_thread());
    let renewed = runtime.block_on(client.on(&unique_key("renewed")).lease(ms(1_500)).acquire());
    let renewed = renewed.unwrap();
    let guard = runtime.block_on(store.client().on(&key).acquire()).unwrap();
    let _entered = runtime.enter();
    let mut waiter = Box::pin(client.on(&key).wait(LONG).acquire());
    // Until it waits: a store that is slow to answer has nobody to wake before that.
    eventually("it stands in the queue", || {
        let waker = Waker::noop();
        assert!(waiter.as_mut().poll(&mut Context::from_waker(waker)).is_pending());
        let Store::Redis(server) = &store else { unreachable!() };
        let queue = format!("distlock:{{{key}}}:queue");
        let redis = redis::Client::open(server.url()).unwrap();
        let count: usize =
            redis::Commands::zcard(&mut redis.get_connection().unwrap(), queue).unwrap();
        count == 1
    });
    let waker = Waker::from(Arc::new(Panics));
    assert!(waiter.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());

    // The driver hears of the grant, and wakes the waiter.
    runtime.block_on(guard.release()).unwrap();
    thread::sleep(ms(2_500));

    assert!(!renewed.is_lost(), "{renewed:?}");
    drop(waiter);
    runtime.block_on(renewed.release()).unwrap();
}
