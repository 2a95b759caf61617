//! The orderly end of a client.

use std::time::Duration;

use distlock::{LockClient, LockErrorKind, OnLost};
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::common::{Inside, LONG, LockText, SOON, bound, ms, poll_once, queued, slack};
use crate::support::{Proxy, RedisServer, Store, eventually, on_every_store, unique_key};

on_every_store! {
    idle_client_shuts_down_at_once,
    bodies_get_until_the_deadline,
    bodies_that_do_not_end_are_dropped_and_their_keys_are_gone,
    waiters_are_told_and_leave_the_queue,
    new_callers_are_refused,
    guard_by_hand_is_only_no_longer_renewed,
    body_that_only_wants_the_signal_runs_on,
    release_under_way_is_waited_for,
    dropped_shutdown_leaves_what_is_held,
    other_clients_are_not_touched,
}

async fn idle_client_shuts_down_at_once(store: Store) {
    let client = store.client();
    let start = Instant::now();

    client.shutdown(LONG).await.unwrap();
    client.shutdown(LONG).await.unwrap();

    assert!(start.elapsed() <= slack(&store), "{:?}", start.elapsed());
}

async fn bodies_get_until_the_deadline(store: Store) {
    let (key, client) = (unique_key("grace"), store.client());
    let (go, gone) = oneshot::channel::<()>();
    let (begin, begun) = oneshot::channel::<()>();
    let inner = client.on(&key).wait(ms(0));
    let call = tokio::spawn(client.on(&key).run(|_| async move {
        begin.send(()).unwrap();
        gone.await.unwrap();
        // What the chain holds already, it may still enter.
        inner.run(|_| async { 7 }).await.unwrap()
    }));
    begun.await.unwrap();
    let start = Instant::now();
    let shutdown = tokio::spawn({
        let client = client.clone();
        async move { client.shutdown(LONG).await }
    });
    tokio::time::sleep(ms(50)).await;

    go.send(()).unwrap();

    assert_eq!(call.await.unwrap().unwrap(), 7);
    shutdown.await.unwrap().unwrap();
    let took = start.elapsed();
    assert!(took <= ms(50) + slack(&store), "as soon as all is released: {took:?}");
    assert_eq!(store.owner_of(&key).await, None);
}

async fn bodies_that_do_not_end_are_dropped_and_their_keys_are_gone(store: Store) {
    let (client, inside) = (store.client(), Inside::default());
    let keys: Vec<_> = (0..50).map(|_| unique_key("shutdown")).collect();
    let calls: Vec<_> = keys
        .iter()
        .map(|key| {
            let visits = inside.clone();
            tokio::spawn(client.on(key).run(move |_| async move {
                let _visit = visits.enter();
                std::future::pending::<()>().await;
            }))
        })
        .collect();
    eventually("all are in", SOON, async || inside.now() == 50).await;
    let start = Instant::now();

    client.shutdown(ms(100)).await.unwrap();

    let took = start.elapsed();
    // If it took more than a second longer, it would not tell that all is released.
    assert!(took >= ms(100) && took <= ms(100) + slack(&store), "{took:?}");
    assert_eq!(inside.now(), 0, "all bodies are dropped");
    for key in &keys {
        assert_eq!(store.owner_of(key).await, None, "released by the time shutdown returns");
    }
    for call in calls {
        assert_eq!(call.await.unwrap().unwrap_err().kind(), LockErrorKind::ShutDown);
    }
}

async fn waiters_are_told_and_leave_the_queue(store: Store) {
    let (key, client) = (unique_key("waiters"), store.client());
    let guard = store.client().on(&key).acquire().await.unwrap();
    let waiters: Vec<_> =
        (0..3).map(|_| tokio::spawn(client.on(&key).wait(LONG).acquire())).collect();
    queued(&store, &key, 1).await;
    let start = Instant::now();

    client.shutdown(LONG).await.unwrap();

    for waiter in waiters {
        let error = waiter.await.unwrap().unwrap_err();
        assert_eq!(error.kind(), LockErrorKind::ShutDown, "{error}");
    }
    assert!(start.elapsed() <= slack(&store), "{:?}", start.elapsed());
    if let Store::Redis(server) = &store {
        let queue = format!("distlock:{{{key}}}:queue");
        let left: usize =
            redis::AsyncCommands::zcard(&mut server.connection().await, queue).await.unwrap();
        assert_eq!(left, 0, "no place is left behind when shutdown returns");
    }
    assert!(!guard.is_lost());
}

async fn new_callers_are_refused(store: Store) {
    let (key, client) = (unique_key("refused"), store.client());
    client.shutdown(Duration::ZERO).await.unwrap();

    for wait in [ms(0), ms(1_000)] {
        let error = client.on(&key).wait(wait).acquire().await.unwrap_err();
        assert_eq!(error.kind(), LockErrorKind::ShutDown);
        assert!(!error.is_retryable());
    }
    assert!(client.on(&key).try_acquire().await.is_err());
    assert_eq!(store.owner_of(&key).await, None);
}

async fn guard_by_hand_is_only_no_longer_renewed(store: Store) {
    let (key, client) = (unique_key("by-hand"), store.client());
    let guard = client.on(&key).lease(ms(4_000)).acquire().await.unwrap();
    let start = Instant::now();

    let error = client.shutdown(ms(50)).await.unwrap_err();

    // A second after the deadline, for code that cannot be stopped.
    assert_eq!(error.kind(), LockErrorKind::ShutDown, "{error}");
    let took = start.elapsed();
    assert!(took < bound(&store, ms(1_100), ms(2_500)), "long before the lease ends: {took:?}");
    assert!(guard.is_lost());
    assert_eq!(guard.check().unwrap_err().kind(), LockErrorKind::ShutDown);
    assert_eq!(store.owner_of(&key).await.as_deref(), Some(guard.owner()), "not taken away");
    eventually("it runs out", SOON, async || store.owner_of(&key).await.is_none()).await;
}

async fn body_that_only_wants_the_signal_runs_on(store: Store) {
    let (key, client) = (unique_key("signal"), store.client());
    let (begin, begun) = oneshot::channel::<()>();
    let call = tokio::spawn(client.on(&key).on_lost(OnLost::Signal).run(|held| async move {
        begin.send(()).unwrap();
        held.lost().await;
        held.check().unwrap_err().kind()
    }));
    begun.await.unwrap();

    client.shutdown(ms(20)).await.unwrap();

    assert_eq!(call.await.unwrap().unwrap(), LockErrorKind::ShutDown);
    assert_eq!(store.owner_of(&key).await, None);
}

async fn release_under_way_is_waited_for(store: Store) {
    let (key, client) = (unique_key("under-way"), store.client());
    let guard = client.on(&key).acquire().await.unwrap();
    let releasing = tokio::spawn(guard.release());
    let dropped = client.on(&unique_key("under-way")).acquire().await.unwrap();
    let dropped_key = dropped.key().to_owned();
    drop(dropped);

    client.shutdown(LONG).await.unwrap();

    assert_eq!(store.owner_of(&key).await, None);
    assert_eq!(store.owner_of(&dropped_key).await, None);
    releasing.await.unwrap().unwrap();
}

async fn dropped_shutdown_leaves_what_is_held(store: Store) {
    let (key, client) = (unique_key("dropped"), store.client());
    let guard = client.on(&key).lease(ms(1_500)).acquire().await.unwrap();

    assert!(tokio::time::timeout(ms(50), client.shutdown(LONG)).await.is_err());

    tokio::time::sleep(ms(2_500)).await;
    assert!(!guard.is_lost(), "still renewed");
    assert_eq!(client.on(&key).acquire().await.unwrap_err().kind(), LockErrorKind::ShutDown);
    guard.release().await.unwrap();
    client.shutdown(LONG).await.unwrap();
}

async fn other_clients_are_not_touched(store: Store) {
    let (key, client, other) = (unique_key("other"), store.client(), store.client());
    let guard = other.on(&key).lease(ms(1_500)).acquire().await.unwrap();

    client.shutdown(Duration::ZERO).await.unwrap();
    tokio::time::sleep(ms(2_000)).await;

    assert!(!guard.is_lost());
    assert!(other.on(&unique_key("other")).acquire().await.is_ok());
}

/// It would join a queue after those there were told, and wait in it for nothing.
#[tokio::test]
async fn try_under_way_at_the_shut_down_is_refused_and_queues_nowhere() {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.address());
    let client =
        LockClient::builder().url(proxy.url()).response_timeout(LONG).wait(LONG).build().unwrap();
    let other = LockClient::builder().url(server.url()).build().unwrap();
    let key = unique_key("late-try");
    let guard = other.on(&key).acquire().await.unwrap();
    let gate = proxy.hold_next_reply("SET");
    let call = tokio::spawn(client.on(&key).acquire());
    gate.reached().await;

    let mut shutdown = Box::pin(client.shutdown(LONG));
    assert!(poll_once(shutdown.as_mut()).await.is_pending());
    gate.open();

    let error = tokio::time::timeout(SOON, call).await.expect("told soon").unwrap().unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::ShutDown, "{error}");
    shutdown.await.unwrap();
    drop(guard);
}
