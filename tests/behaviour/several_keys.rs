//! Several keys at once: all or nothing, without dead-lock.

use distlock::{LockClient, LockErrorKind, LockRequest};
use tokio::time::Instant;

use crate::common::{
    ANSWERED, Inside, LONG, LockText, SOON, bound, freed, literal, ms, never_ends, queued,
};
use crate::support::{Store, eventually, on_every_store, unique_key};

on_every_store! {
    all_keys_are_held_and_released_together,
    key_named_twice_is_taken_once,
    overlapping_sets_in_any_order_all_get_done,
    failing_leaves_none_of_them,
    dropping_while_waiting_leaves_none_of_them,
    one_wait_bounds_them_all,
    trying_is_none_if_one_is_held,
    nested_call_on_one_of_them_enters,
    losing_one_of_them_stops_the_body,
    one_lost_while_waiting_for_the_next_is_no_success,
}

fn on_all(client: &LockClient, keys: &[&str]) -> LockRequest {
    client.lock_all(keys.iter().map(|key| literal(key)))
}

fn keys() -> (String, String) {
    (unique_key("all-a"), unique_key("all-b"))
}

async fn all_keys_are_held_and_released_together(store: Store) {
    let ((a, b), client) = (keys(), store.client());

    let guard = on_all(&client, &[&b, &a]).acquire().await.unwrap();

    assert_eq!(guard.key(), a, "the first one by its bytes");
    assert!(store.owner_of(&a).await.is_some() && store.owner_of(&b).await.is_some());
    guard.release().await.unwrap();
    assert!(store.owner_of(&a).await.is_none() && store.owner_of(&b).await.is_none());
}

async fn key_named_twice_is_taken_once(store: Store) {
    let ((a, b), client) = (keys(), store.client());

    let outcome = on_all(&client, &[&a, &b, &a]).wait(ms(0)).run(|_| async { 3 }).await;

    assert_eq!(outcome.unwrap(), 3);
}

async fn overlapping_sets_in_any_order_all_get_done(store: Store) {
    let ((a, b), c) = (keys(), unique_key("all-c"));
    let sets = [[&a, &b], [&b, &c], [&c, &a]];
    let inside = [Inside::default(), Inside::default(), Inside::default()];
    let rounds = if !matches!(store, Store::Redis(_)) { 200 } else { 60 };
    let mut tasks = Vec::new();
    for (number, set) in sets.iter().enumerate() {
        let client = store.client();
        let (set, inside) = (set.map(ToOwned::to_owned), inside.clone());
        tasks.push(tokio::spawn(async move {
            for round in 0..rounds {
                let order = if round % 2 == 0 { [0, 1] } else { [1, 0] };
                let keys = order.map(|index| &*set[index]);
                // The visits of the two keys of this set.
                let (first, second) = (&inside[number], &inside[(number + 1) % 3]);
                let call = on_all(&client, &keys).wait(LONG).run(|_| async {
                    let _visits = (first.enter(), second.enter());
                    tokio::task::yield_now().await;
                });
                call.await.unwrap();
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    for inside in &inside {
        assert_eq!((inside.total(), inside.most()), (2 * rounds, 1));
    }
}

async fn failing_leaves_none_of_them(store: Store) {
    let ((a, b), client) = (keys(), store.client());
    let _guard = store.client().on(&b).acquire().await.unwrap();

    let error = on_all(&client, &[&a, &b]).wait(ANSWERED).acquire().await.unwrap_err();

    assert_eq!((error.kind(), error.key()), (LockErrorKind::Timeout, Some(&*b)));
    freed(&store, &a).await;
}

async fn dropping_while_waiting_leaves_none_of_them(store: Store) {
    let ((a, b), client) = (keys(), store.client());
    let guard = store.client().on(&b).acquire().await.unwrap();
    let call = tokio::spawn(on_all(&client, &[&a, &b]).wait(LONG).acquire());
    queued(&store, &b, 1).await;
    assert!(store.owner_of(&a).await.is_some());

    call.abort();

    freed(&store, &a).await;
    guard.release().await.unwrap();
    freed(&store, &b).await;
}

async fn one_wait_bounds_them_all(store: Store) {
    let ((a, b), client) = (keys(), store.client());
    let (until_free, wait) = (ms(2_000), ms(3_000));
    store.put_foreign(&a, "other program", Some(until_free)).await;
    store.put_foreign(&b, "other program", Some(ms(60_000))).await;
    let start = Instant::now();

    let error = on_all(&client, &[&a, &b]).wait(wait).acquire().await.unwrap_err();

    let took = start.elapsed();
    assert_eq!((error.kind(), error.key()), (LockErrorKind::Timeout, Some(&*b)));
    // A wait for each of them would end two seconds later.
    let late = bound(&store, ms(1), until_free * 2 / 3);
    assert!(took >= wait && took <= wait + late, "{took:?}");
}

async fn trying_is_none_if_one_is_held(store: Store) {
    let ((a, b), client) = (keys(), store.client());
    let guard = store.client().on(&b).acquire().await.unwrap();

    assert!(on_all(&client, &[&a, &b]).try_acquire().await.unwrap().is_none());

    freed(&store, &a).await;
    guard.release().await.unwrap();
    assert!(on_all(&client, &[&a, &b]).try_acquire().await.unwrap().is_some());
}

async fn nested_call_on_one_of_them_enters(store: Store) {
    let ((a, b), client) = (keys(), store.client());
    let call = on_all(&client, &[&a, &b]).run(|_| async {
        client.on(&b).wait(ms(0)).run(|_| async {}).await.unwrap();
        client.on(&a).wait(ms(0)).run(|_| async {}).await.unwrap();
        let c = unique_key("all-c");
        on_all(&client, &[&c, &b]).wait(LONG).run(|_| async {}).await.unwrap();
        assert_eq!(store.owner_of(&c).await, None, "c was the inner call's own");
        store.owner_of(&b).await.is_some()
    });

    assert!(call.await.unwrap());
}

async fn losing_one_of_them_stops_the_body(store: Store) {
    let ((a, b), client) = (keys(), store.client());
    let lease = ms(6_000);
    let call = on_all(&client, &[&a, &b]).lease(lease).run(|held| async {
        store.remove(&b).await;
        never_ends(held).await;
    });

    let error = call.await.unwrap_err();

    assert_eq!(error.kind(), LockErrorKind::Lost { completed: false });
    assert_eq!(error.key(), Some(&*b));
    // Renewed together with the look at b, it would stay for a lease.
    let within = bound(&store, ms(200), lease / 2);
    eventually("a is free", within, async || store.owner_of(&a).await.is_none()).await;
}

async fn one_lost_while_waiting_for_the_next_is_no_success(store: Store) {
    let ((a, b), client) = (keys(), store.client());
    let guard = store.client().on(&b).acquire().await.unwrap();
    let lease = ms(1_500);
    let call = tokio::spawn(on_all(&client, &[&a, &b]).lease(lease).wait(LONG).acquire());
    queued(&store, &b, 1).await;

    store.remove(&a).await;
    // Until a renewal has found it out, or the time of the last one has passed.
    tokio::time::sleep(lease).await;
    guard.release().await.unwrap();

    let error = call.await.unwrap().map(|guard| guard.is_lost()).unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Lost { completed: false }, "{error}");
    assert_eq!(error.key(), Some(&*a));
    eventually("b is free", SOON, async || store.owner_of(&b).await.is_none()).await;
}
