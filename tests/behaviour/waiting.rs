//! Waiting for a lock: bounds, order, and waiters that go away.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use distlock::{LockClient, LockErrorKind, LockGuard};
use tokio::time::Instant;

use crate::common::{
    ANSWERED, Inside, LONG, LOOKS_AGAIN, LockText, SOON, WOKEN, bound, freed, freed_within,
    literal, ms, poll_once, queued, slack,
};
use crate::support::{Store, eventually, on_every_store, unique_key};

on_every_store! {
    wait_of_zero_is_one_try,
    wait_is_a_hard_bound,
    timeout_says_key_owner_time_and_when_to_come_back,
    timeout_on_a_lock_of_this_process_names_the_likely_self_deadlock,
    waiters_of_one_client_are_served_in_order_of_arrival,
    clients_are_served_in_order_of_arrival,
    waiter_gets_the_lock_when_it_is_released,
    waiter_gets_a_whole_lease_however_long_it_waited,
    waiter_outwaits_a_holder_that_never_releases,
    full_queue_refuses_at_once,
    queue_for_nobody_refuses_at_once,
    waiters_that_leave_do_not_hold_up_the_others,
    local_waiter_inherits_the_place_of_the_first_one,
    unpolled_waiter_does_not_own_the_lock,
    unpolled_waiter_gets_the_lock_once_it_is_polled_again,
    waiter_dropped_at_the_grant_gives_it_back,
    many_waiters_of_many_clients_are_never_inside_together,
    time_out_and_grant_at_the_same_moment_leave_nothing,
    time_out_under_contention_is_no_failure_of_the_store,
    other_client_gets_its_turn_beside_a_busy_one,
    each_local_waiter_gets_the_lease_that_it_asked_for,
    unpolled_local_waiter_does_not_own_what_is_passed_on,
    guard_by_hand_passes_on_to_a_local_waiter,
}

// A quorum frees the key at once: that it is free says nothing of an offer.
on_every_store! { single_store unpolled_waiter_is_not_in_the_way_of_a_try }

async fn wait_of_zero_is_one_try(store: Store) {
    let key = unique_key("zero");
    let guard = store.client().on(&key).acquire().await.unwrap();
    let start = Instant::now();

    let error = store.client().on(&key).wait(Duration::ZERO).acquire().await.unwrap_err();

    assert_eq!(error.kind(), LockErrorKind::Timeout);
    assert_eq!(error.owner(), Some(guard.owner()));
    assert!(start.elapsed() <= slack(&store), "{:?}", start.elapsed());
}

async fn wait_is_a_hard_bound(store: Store) {
    let (key, inside) = (unique_key("bound"), Inside::default());
    let _guard = store.client().on(&key).acquire().await.unwrap();
    let client = store.client();
    assert!(client.holder(literal(&key)).await.unwrap().is_some(), "connected");
    for wait in [ms(20), ms(200), ANSWERED] {
        let start = Instant::now();
        let body = async { drop(inside.enter()) };

        let outcome = client.on(&key).wait(wait).run(|_| body).await;

        let took = start.elapsed();
        let error = outcome.unwrap_err();
        // On a busy machine the store may not have answered in so short a time.
        let unanswered = error.kind() == LockErrorKind::Backend
            && wait < bound(&store, Duration::ZERO, ANSWERED);
        assert!(unanswered || error.kind() == LockErrorKind::Timeout, "{error}");
        assert!(took >= wait && took <= wait + slack(&store), "{took:?} for {wait:?}");
    }
    assert_eq!(inside.total(), 0, "no body without the lock");
}

async fn timeout_says_key_owner_time_and_when_to_come_back(store: Store) {
    let key = unique_key("timeout");
    let holder = store.builder().instance("till-3").build().unwrap();
    let guard = holder.on(&key).lease(LONG).acquire().await.unwrap();

    let error = store.client().on(&key).wait(ANSWERED).acquire().await.unwrap_err();

    assert_eq!(error.kind(), LockErrorKind::Timeout);
    assert_eq!(error.key(), Some(&*key));
    assert_eq!(error.owner(), Some(guard.owner()));
    assert!(error.is_retryable());
    let waited = error.waited().unwrap();
    assert!(waited >= ANSWERED && waited <= ANSWERED + slack(&store), "{waited:?}");
    let retry = error.retry_after().unwrap();
    assert!(retry >= LONG - ANSWERED - slack(&store) && retry <= LONG, "{retry:?}");
    let text = error.to_string();
    assert!(text.contains(&key) && text.contains("till-3/"), "{text}");
    assert!(!text.contains("self-deadlock"), "another process holds it: {text}");
}

async fn timeout_on_a_lock_of_this_process_names_the_likely_self_deadlock(store: Store) {
    let (key, client) = (unique_key("self"), store.client());
    let _guard = client.on(&key).acquire().await.unwrap();

    for wait in [ms(0), ms(50)] {
        let error = client.on(&key).wait(wait).acquire().await.unwrap_err();
        assert_eq!(error.kind(), LockErrorKind::Timeout);
        assert!(error.to_string().contains("likely self-deadlock"), "{error}");
    }
}

/// Starts waiters one after the other; each notes its number when it is in.
async fn queue_up(
    store: &Store,
    key: &str,
    clients: &[LockClient],
    order: &Arc<Mutex<Vec<usize>>>,
) -> Vec<tokio::task::JoinHandle<()>> {
    let mut tasks = Vec::new();
    for (number, client) in clients.iter().enumerate() {
        let request = client.on(key).wait(LONG);
        let order = Arc::clone(order);
        tasks.push(tokio::spawn(async move {
            let guard = request.acquire().await.unwrap();
            order.lock().unwrap().push(number);
            guard.release().await.unwrap();
        }));
        queued(store, key, number + 1).await;
    }
    tasks
}

async fn waiters_of_one_client_are_served_in_order_of_arrival(store: Store) {
    let (key, client) = (unique_key("fifo"), store.client());
    let guard = client.on(&key).acquire().await.unwrap();
    let order = Arc::new(Mutex::new(Vec::new()));
    // Polled once in their order, they stand in the queue of the client.
    let mut waiters: Vec<Pin<Box<dyn Future<Output = ()> + Send>>> = Vec::new();
    for number in 0..10 {
        let (request, order) = (client.on(&key).wait(LONG), Arc::clone(&order));
        let mut waiter = Box::pin(async move {
            let guard = request.acquire().await.unwrap();
            order.lock().unwrap().push(number);
            guard.release().await.unwrap();
        });
        assert!(poll_once(waiter.as_mut()).await.is_pending());
        waiters.push(waiter);
    }
    let tasks: Vec<_> = waiters.into_iter().rev().map(tokio::spawn).collect();

    guard.release().await.unwrap();
    for task in tasks {
        task.await.unwrap();
    }

    assert_eq!(*order.lock().unwrap(), (0..10).collect::<Vec<_>>());
}

async fn clients_are_served_in_order_of_arrival(store: Store) {
    let key = unique_key("fair");
    let guard = store.client().on(&key).acquire().await.unwrap();
    let order = Arc::new(Mutex::new(Vec::new()));
    let clients: Vec<_> = (0..5).map(|_| store.client()).collect();
    let tasks = queue_up(&store, &key, &clients, &order).await;

    guard.release().await.unwrap();
    for task in tasks {
        task.await.unwrap();
    }

    assert_eq!(*order.lock().unwrap(), [0, 1, 2, 3, 4]);
}

async fn waiter_gets_the_lock_when_it_is_released(store: Store) {
    let key = unique_key("handover");
    let guard = store.client().on(&key).acquire().await.unwrap();
    let waiter = tokio::spawn(store.client().on(&key).wait(LONG).acquire());
    queued(&store, &key, 1).await;
    let start = Instant::now();

    guard.release().await.unwrap();
    let guard = waiter.await.unwrap().unwrap();

    let took = start.elapsed();
    assert!(took < bound(&store, ms(5), WOKEN), "woken, not polled for: {took:?}");
    assert_eq!(store.owner_of(&key).await.as_deref(), Some(guard.owner()));
}

async fn waiter_gets_a_whole_lease_however_long_it_waited(store: Store) {
    let key = unique_key("whole-lease");
    let guard = store.client().on(&key).acquire().await.unwrap();
    let lease = ms(2_000);
    let waiter = tokio::spawn(store.client().on(&key).lease(lease).wait(LONG).acquire());
    tokio::time::sleep(ms(2_500)).await;

    guard.release().await.unwrap();
    let guard = waiter.await.unwrap().unwrap();

    // Of the half that a call has for certain when it begins, some is spent already.
    assert!(guard.remaining() > lease / 4, "{:?}", guard.remaining());
    assert!(store.remaining(&key).await.unwrap() > lease / 4);
}

async fn waiter_outwaits_a_holder_that_never_releases(store: Store) {
    let key = unique_key("dead-holder");
    let (start, lease) = (Instant::now(), ms(1_500));
    store.put_foreign(&key, "dead:1/0", Some(lease)).await;

    let guard = store.client().on(&key).wait(LONG).acquire().await.unwrap();

    let took = start.elapsed();
    let latest = bound(&store, lease + ms(10), LOOKS_AGAIN);
    assert!(took >= lease && took < latest, "at the end of its lease, not {took:?}");
    guard.release().await.unwrap();
}

async fn full_queue_refuses_at_once(store: Store) {
    let (key, client) = (unique_key("full"), store.client());
    let _guard = client.on(&key).acquire().await.unwrap();
    let request = || client.on(&key).wait(LONG).max_waiters(2);
    let mut first = pin!(request().acquire());
    let mut second = pin!(request().acquire());
    assert!(poll_once(first.as_mut()).await.is_pending());
    assert!(poll_once(second.as_mut()).await.is_pending());
    let start = Instant::now();

    let error = request().acquire().await.unwrap_err();

    assert_eq!(error.kind(), LockErrorKind::QueueFull, "{error}");
    assert!(error.is_retryable());
    assert_eq!(error.key(), Some(&*key));
    assert!(start.elapsed() <= slack(&store), "{:?}", start.elapsed());
}

async fn queue_for_nobody_refuses_at_once(store: Store) {
    let key = unique_key("full-at-zero");
    let guard = store.client().on(&key).acquire().await.unwrap();
    let client = store.client();
    let start = Instant::now();

    let error = client.on(&key).max_waiters(0).wait(LONG).acquire().await.unwrap_err();

    assert_eq!(error.kind(), LockErrorKind::QueueFull, "{error}");
    assert!(start.elapsed() <= slack(&store), "{:?}", start.elapsed());
    guard.release().await.unwrap();
    assert!(client.on(&key).max_waiters(0).acquire().await.is_ok(), "a free lock needs no queue");
}

async fn waiters_that_leave_do_not_hold_up_the_others(store: Store) {
    let key = unique_key("leave");
    let guard = store.client().on(&key).acquire().await.unwrap();
    let leavers: Vec<_> = (0..3).map(|_| store.client()).collect();
    let mut tasks = Vec::new();
    for (number, client) in leavers.iter().enumerate() {
        tasks.push(tokio::spawn(client.on(&key).wait(LONG).acquire()));
        queued(&store, &key, number + 1).await;
    }
    let last = tokio::spawn(store.client().on(&key).wait(LONG).acquire());
    queued(&store, &key, 4).await;
    tasks.iter().for_each(tokio::task::JoinHandle::abort);
    queued(&store, &key, 1).await;
    let start = Instant::now();

    guard.release().await.unwrap();
    last.await.unwrap().unwrap().release().await.unwrap();

    assert!(start.elapsed() < bound(&store, ms(5), WOKEN), "{:?}", start.elapsed());
}

async fn local_waiter_inherits_the_place_of_the_first_one(store: Store) {
    let key = unique_key("inherit");
    let guard = store.client().on(&key).acquire().await.unwrap();
    let (early, late) = (store.client(), store.client());
    let order = Arc::new(Mutex::new(Vec::new()));
    let waiter = |client: &LockClient, name: &'static str| {
        let (request, order) = (client.on(&key).wait(LONG), Arc::clone(&order));
        Box::pin(async move {
            let guard = request.acquire().await.unwrap();
            order.lock().unwrap().push(name);
            guard.release().await.unwrap();
        })
    };
    let leaver = tokio::spawn(waiter(&early, "leaver"));
    queued(&store, &key, 1).await;
    let mut heir = waiter(&early, "heir");
    // From here on it stands in the queue of its client.
    assert!(poll_once(heir.as_mut()).await.is_pending());
    let heir = tokio::spawn(heir);
    let other = tokio::spawn(waiter(&late, "other"));
    queued(&store, &key, 2).await;

    leaver.abort();
    assert!(leaver.await.unwrap_err().is_cancelled());
    guard.release().await.unwrap();
    heir.await.unwrap();
    other.await.unwrap();

    assert_eq!(*order.lock().unwrap(), ["heir", "other"]);
}

/// A waiter that stands in the queue and is not polled any more.
async fn sleeper<'a>(
    store: &Store,
    client: &'a LockClient,
    key: &'a str,
) -> Pin<Box<dyn Future<Output = Result<LockGuard, distlock::LockError>> + 'a>> {
    let mut sleeper = Box::pin(client.on(key).wait(LONG).acquire());
    let deadline = Instant::now() + SOON;
    loop {
        assert!(poll_once(sleeper.as_mut()).await.is_pending());
        match store {
            Store::Memory(_) | Store::Quorum(_) => break,
            Store::Redis(server) => {
                let mut connection = server.connection().await;
                let queue = format!("distlock:{{{key}}}:queue");
                let count: usize =
                    redis::AsyncCommands::zcard(&mut connection, queue).await.unwrap();
                if count == 1 {
                    break;
                }
            }
        }
        assert!(Instant::now() < deadline);
        tokio::time::sleep(ms(2)).await;
    }
    queued(store, key, 1).await;
    sleeper
}

async fn unpolled_waiter_does_not_own_the_lock(store: Store) {
    let key = unique_key("unpolled");
    let guard = store.client().on(&key).acquire().await.unwrap();
    let client = store.client();
    let sleeper = sleeper(&store, &client, &key).await;
    let start = Instant::now();

    guard.release().await.unwrap();
    let other = store.client().on(&key).wait(LONG).acquire().await.unwrap();

    // It passes on after one claim lease (500 ms).
    assert!(start.elapsed() < bound(&store, ms(600), LOOKS_AGAIN), "{:?}", start.elapsed());
    assert_eq!(store.owner_of(&key).await.as_deref(), Some(other.owner()));
    other.release().await.unwrap();
    let own = client.on(&key).wait(LONG).acquire().await.unwrap();
    own.release().await.unwrap();
    drop(sleeper);
}

async fn unpolled_waiter_gets_the_lock_once_it_is_polled_again(store: Store) {
    let key = unique_key("polled-again");
    let guard = store.client().on(&key).acquire().await.unwrap();
    let client = store.client();
    let sleeper = sleeper(&store, &client, &key).await;
    guard.release().await.unwrap();
    // Its offer has lapsed.
    freed_within(&store, &key, SOON).await;

    let guard = sleeper.await.unwrap();

    assert_eq!(store.owner_of(&key).await.as_deref(), Some(guard.owner()));
}

async fn unpolled_waiter_is_not_in_the_way_of_a_try(store: Store) {
    let key = unique_key("unpolled-try");
    let guard = store.client().on(&key).acquire().await.unwrap();
    let client = store.client();
    let sleeper = sleeper(&store, &client, &key).await;
    guard.release().await.unwrap();
    freed_within(&store, &key, SOON).await;

    let guard = client.on(&key).try_acquire().await.unwrap();

    assert!(guard.is_some(), "the lock is free, and who does not look does not wait");
    drop(sleeper);
}

async fn waiter_dropped_at_the_grant_gives_it_back(store: Store) {
    let key = unique_key("dropped-at-grant");
    let client = store.client();
    for round in 0..20 {
        let guard = store.client().on(&key).acquire().await.unwrap();
        let mut waiter = pin!(client.on(&key).wait(LONG).acquire());
        assert!(poll_once(waiter.as_mut()).await.is_pending());
        tokio::time::sleep(ms(3)).await;
        let _ = poll_once(waiter.as_mut()).await;
        guard.release().await.unwrap();
        // At different moments of the grant, the claim, the offer.
        for _ in 0..round {
            tokio::task::yield_now().await;
        }
        waiter.set(client.on(&key).wait(LONG).acquire());
        freed(&store, &key).await;
    }
}

async fn many_waiters_of_many_clients_are_never_inside_together(store: Store) {
    let (key, inside) = (unique_key("many"), Inside::default());
    let clients: Vec<_> = (0..3).map(|_| store.client()).collect();
    let tasks: Vec<_> = (0..30)
        .map(|number| {
            let request = clients[number % clients.len()].on(&key).wait(LONG);
            let inside = inside.clone();
            tokio::spawn(request.run(move |_| async move {
                let _visit = inside.enter();
                tokio::time::sleep(ms(2)).await;
            }))
        })
        .collect();
    for task in tasks {
        task.await.unwrap().unwrap();
    }

    assert_eq!((inside.total(), inside.most()), (30, 1));
    eventually("the key is gone", SOON, async || store.owner_of(&key).await.is_none()).await;
}

/// l169: the wait ends about when the lock is released, by another client and by the same one.
async fn time_out_and_grant_at_the_same_moment_leave_nothing(store: Store) {
    let key = unique_key("same-moment");
    let (other, client) = (store.client(), store.client());
    for round in 0..80_u64 {
        let holder = if round % 2 == 0 { &other } else { &client };
        let guard = holder.on(&key).acquire().await.unwrap();
        let release = async {
            tokio::time::sleep(ms(10)).await;
            guard.release().await.unwrap();
        };
        let wait = ms(8) + Duration::from_micros(round * 50);
        let waiter = client.on(&key).wait(wait).acquire();

        let (outcome, ()) = tokio::join!(waiter, release);

        match outcome {
            Ok(guard) => guard.release().await.unwrap(),
            // On a busy machine the store may not have answered in so short a time.
            Err(error) => assert!(
                matches!(error.kind(), LockErrorKind::Timeout | LockErrorKind::Backend),
                "{error}"
            ),
        }
        freed(&store, &key).await;
    }
}

/// k154: whoever times out, at whatever moment of a hand-over, is told of contention.
async fn time_out_under_contention_is_no_failure_of_the_store(store: Store) {
    let (key, inside) = (unique_key("contended"), Inside::default());
    let clients = [store.client(), store.client()];
    for client in &clients {
        client.on(&key).run(|_| async {}).await.unwrap();
    }
    let end = Instant::now() + ms(2_000);
    let tasks: Vec<_> = (0..12_usize)
        .map(|number| {
            let (client, key, inside) = (clients[number % 2].clone(), key.clone(), inside.clone());
            tokio::spawn(async move {
                while Instant::now() < end {
                    let call = client.on(&key).wait(ms(200)).run(|_| async {
                        let _visit = inside.enter();
                        tokio::time::sleep(ms(25)).await;
                    });
                    if let Err(error) = call.await {
                        assert_eq!(error.kind(), LockErrorKind::Timeout, "{error}");
                        assert!(error.owner().is_some(), "{error}");
                    }
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    assert!(inside.total() > 20, "{}", inside.total());
    assert_eq!(inside.most(), 1);
}

async fn other_client_gets_its_turn_beside_a_busy_one(store: Store) {
    let (key, inside) = (unique_key("turns"), Inside::default());
    let (busy, other) = (store.client(), store.client());
    let tasks: Vec<_> = (0..6)
        .map(|_| {
            let (busy, key, inside) = (busy.clone(), key.clone(), inside.clone());
            tokio::spawn(async move {
                loop {
                    let call = busy.on(&key).wait(LONG).run(|_| async {
                        let _visit = inside.enter();
                        tokio::time::sleep(ms(1)).await;
                    });
                    call.await.unwrap();
                }
            })
        })
        .collect();
    eventually("it is busy", SOON, async || inside.total() > 20).await;
    for _ in 0..5 {
        let start = Instant::now();
        let call = other.on(&key).wait(LONG).run(|_| async { drop(inside.enter()) });
        call.await.unwrap();
        // A turn lasts 20 ms.
        assert!(start.elapsed() < bound(&store, ms(100), WOKEN), "{:?}", start.elapsed());
    }
    tasks.iter().for_each(tokio::task::JoinHandle::abort);
    assert_eq!(inside.most(), 1);
}

/// R12, whoever had the lock before, and for how long.
async fn each_local_waiter_gets_the_lease_that_it_asked_for(store: Store) {
    let (key, client) = (unique_key("own-lease"), store.client());
    let guard = client.on(&key).lease(ms(6_000)).acquire().await.unwrap();
    let leases = [ms(2_000), ms(18_000), ms(3_000), ms(40_000)];
    let calls: Vec<_> = leases
        .into_iter()
        .map(|lease| {
            let (store, key) = (store.clone(), key.clone());
            let request = client.on(&key).lease(lease).wait(LONG);
            tokio::spawn(request.run(move |held| async move {
                let (left, ttl) = (held.remaining(), store.remaining(&key).await.unwrap());
                assert!(left <= lease && left >= lease / 3, "{left:?} of {lease:?}");
                // If this process dies now, others wait for this lease, not for one of before.
                assert!(ttl <= lease && ttl >= lease / 3, "{ttl:?} of {lease:?}");
            }))
        })
        .collect();
    tokio::time::sleep(ms(50)).await;

    guard.release().await.unwrap();

    for call in calls {
        call.await.unwrap().unwrap();
    }
    freed_within(&store, &key, SOON).await;
}

async fn unpolled_local_waiter_does_not_own_what_is_passed_on(store: Store) {
    let (key, client) = (unique_key("unpolled-local"), store.client());
    let guard = client.on(&key).acquire().await.unwrap();
    let mut sleeper = Box::pin(client.on(&key).wait(LONG).acquire());
    assert!(poll_once(sleeper.as_mut()).await.is_pending());
    let start = Instant::now();

    guard.release().await.unwrap();
    let other = store.client().on(&key).wait(LONG).acquire().await.unwrap();

    assert!(start.elapsed() < bound(&store, ms(600), LOOKS_AGAIN), "{:?}", start.elapsed());
    other.release().await.unwrap();
    // And it is served when it comes back.
    sleeper.await.unwrap().release().await.unwrap();
    freed_within(&store, &key, SOON).await;
}

async fn guard_by_hand_passes_on_to_a_local_waiter(store: Store) {
    let (key, client) = (unique_key("passed-on"), store.client());
    for by_drop in [false, true] {
        let guard = client.on(&key).acquire().await.unwrap();
        let old = (*guard).clone();
        let mut waiter = Box::pin(client.on(&key).wait(LONG).acquire());
        assert!(poll_once(waiter.as_mut()).await.is_pending());
        if by_drop {
            drop(guard);
        } else {
            guard.release().await.unwrap();
        }

        let guard = waiter.await.unwrap();

        // The owner in the store may be the same; the old hold is over all the same.
        assert!(old.is_lost() && !guard.is_lost());
        assert!(old.extend(ms(1_000)).await.is_err());
        assert_eq!(store.owner_of(&key).await.as_deref(), Some(guard.owner()));
        guard.release().await.unwrap();
        assert_eq!(store.owner_of(&key).await, None);
    }
}

/// d54, d55: places are refreshed while the holder goes on and on, and nobody's turn is lost.
#[tokio::test(start_paused = true)]
async fn waiters_of_a_very_long_hold_keep_their_places() {
    let store = Store::memory();
    let key = unique_key("long-hold");
    let guard = store.client().on(&key).acquire().await.unwrap();
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = Vec::new();
    for number in 0..4 {
        let (request, order) = (store.client().on(&key).wait(ms(600_000)), Arc::clone(&order));
        tasks.push(tokio::spawn(async move {
            let guard = request.acquire().await.unwrap();
            order.lock().unwrap().push(number);
            guard.release().await.unwrap();
        }));
        queued(&store, &key, number + 1).await;
    }

    tokio::time::sleep(ms(300_000)).await;
    guard.release().await.unwrap();
    for task in tasks {
        task.await.unwrap();
    }

    assert_eq!(*order.lock().unwrap(), [0, 1, 2, 3]);
}
