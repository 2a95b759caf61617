//! Losing a lock: who learns of it, when, and what becomes of the body.

use std::time::Duration;

use distlock::{LockError, LockErrorKind, OnLost};
use tokio::time::Instant;

use crate::common::{Inside, LockText, SOON, bound, ms, never_ends, slack};
use crate::support::{Store, eventually, on_every_store, unique_key};

on_every_store! {
    body_is_dropped_when_another_owner_has_the_key,
    body_is_dropped_when_the_key_is_gone,
    lost_lock_does_not_touch_the_next_holder,
    lost_lock_never_becomes_valid_again,
    body_that_only_wants_the_signal_runs_on,
    strict_tells_that_the_body_was_perhaps_not_alone,
    guard_learns_of_the_loss,
    scope_of_a_guard_is_dropped_at_the_loss,
    lost_hold_that_is_still_in_hand_is_not_in_the_way_of_others,
    body_is_cancelled_at_max_hold,
    guard_is_lost_at_max_hold_and_the_key_runs_out,
    max_hold_is_no_limit_to_a_shorter_body,
    long_body_keeps_the_lock,
}

const LEASE: Duration = ms(3_000);
const LOST: LockErrorKind = LockErrorKind::Lost { completed: false };

/// The store told so at a renewal, which was before the lease had run out unconfirmed.
fn assert_found_at_a_renewal(error: &LockError) {
    assert_eq!(error.kind(), LOST, "{error}");
    assert!(error.to_string().contains("the store says"), "{error}");
}

async fn body_is_dropped_when_another_owner_has_the_key(store: Store) {
    let (key, client, inside) = (unique_key("overwritten"), store.client(), Inside::default());
    let visit = inside.enter();
    let call = client.on(&key).lease(LEASE).run(move |held| async move {
        let _visit = visit;
        never_ends(held).await;
    });
    let call = tokio::spawn(call);
    eventually("it is held", SOON, async || store.owner_of(&key).await.is_some()).await;

    store.put_foreign(&key, "intruder", Some(ms(60_000))).await;
    let error = call.await.unwrap().unwrap_err();

    assert_found_at_a_renewal(&error);
    assert_eq!(error.key(), Some(&*key));
    assert!(error.is_retryable());
    assert_eq!(inside.now(), 0, "the body is dropped before the error is told");
    assert_eq!(store.owner_of(&key).await.as_deref(), Some("intruder"), "left alone");
}

async fn body_is_dropped_when_the_key_is_gone(store: Store) {
    let (key, client) = (unique_key("deleted"), store.client());
    let call = client.on(&key).lease(LEASE).run(never_ends);
    let call = tokio::spawn(call);
    eventually("it is held", SOON, async || store.owner_of(&key).await.is_some()).await;

    store.remove(&key).await;

    assert_found_at_a_renewal(&call.await.unwrap().unwrap_err());
    assert_eq!(store.owner_of(&key).await, None, "a renewal never creates the key again");
}

async fn lost_lock_does_not_touch_the_next_holder(store: Store) {
    let key = unique_key("next-holder");
    let guard = store.client().on(&key).lease(LEASE).acquire().await.unwrap();
    store.remove(&key).await;
    let next = store.client().on(&key).try_acquire().await.unwrap().unwrap();

    guard.release().await.unwrap();

    tokio::time::sleep(ms(50)).await;
    assert_eq!(store.owner_of(&key).await.as_deref(), Some(next.owner()));
    assert!(!next.is_lost());
}

async fn lost_lock_never_becomes_valid_again(store: Store) {
    let (key, client) = (unique_key("for-good"), store.client());
    let guard = client.on(&key).lease(LEASE).acquire().await.unwrap();
    let owner = guard.owner().to_owned();
    store.remove(&key).await;
    guard.lost().await;

    let (ttl, slept) = (LEASE * 5 / 6, LEASE / 2);
    store.put_foreign(&key, &owner, Some(ttl)).await;
    // A renewal would have been due by then.
    tokio::time::sleep(slept).await;

    assert!(guard.is_lost());
    assert!(guard.extend(ms(1_000)).await.is_err());
    let left = store.remaining(&key).await;
    assert!(left.is_none_or(|left| left <= ttl - slept), "not renewed either: {left:?}");
}

async fn body_that_only_wants_the_signal_runs_on(store: Store) {
    let (key, client) = (unique_key("signal"), store.client());
    let call = client.on(&key).lease(LEASE).on_lost(OnLost::Signal).run(|held| async {
        let held = held;
        store.remove(&key).await;
        held.lost().await;
        tokio::time::sleep(ms(20)).await;
        assert!(held.is_lost());
        assert_eq!(held.remaining(), Duration::ZERO);
        held.check().unwrap_err().kind()
    });

    assert_eq!(call.await.unwrap(), LOST, "the value is not thrown away");
}

async fn strict_tells_that_the_body_was_perhaps_not_alone(store: Store) {
    let (key, client) = (unique_key("strict"), store.client());
    let kind = LockErrorKind::Lost { completed: true };
    let body = async || store.put_foreign(&key, "intruder", Some(ms(50))).await;

    // The release finds another owner, before any renewal did.
    let error = client.on(&key).strict().run(|_| body()).await.unwrap_err();
    assert_eq!(error.kind(), kind, "{error}");
    assert!(!error.is_retryable());

    // The loss was known before the body ended.
    let request = client.on(&key).lease(LEASE).on_lost(OnLost::Signal).strict();
    let call = request.run(|held| async {
        let held = held;
        body().await;
        held.lost().await;
    });
    assert_eq!(call.await.unwrap_err().kind(), kind);

    // By hand.
    let guard = client.on(&key).strict().acquire().await.unwrap();
    body().await;
    assert_eq!(guard.release().await.unwrap_err().kind(), kind);

    // Without `strict`, and without a loss.
    client.on(&key).run(|_| body()).await.unwrap();
    assert_eq!(client.on(&key).strict().run(|_| async { 1 }).await.unwrap(), 1);
}

async fn guard_learns_of_the_loss(store: Store) {
    let (key, client) = (unique_key("guard"), store.client());
    let guard = client.on(&key).lease(LEASE).acquire().await.unwrap();
    assert!(guard.check().is_ok());

    store.remove(&key).await;
    guard.lost().await;

    assert!(guard.is_lost());
    assert_found_at_a_renewal(&guard.check().unwrap_err());
}

async fn scope_of_a_guard_is_dropped_at_the_loss(store: Store) {
    let (key, client, inside) = (unique_key("scope"), store.client(), Inside::default());
    let guard = client.on(&key).lease(LEASE).acquire().await.unwrap();
    store.remove(&key).await;

    let scope = guard.scope(async {
        let _visit = inside.enter();
        never_ends((*guard).clone()).await;
    });

    assert_eq!(scope.await.unwrap_err().kind(), LOST);
    assert_eq!((inside.total(), inside.now()), (1, 0));
}

async fn lost_hold_that_is_still_in_hand_is_not_in_the_way_of_others(store: Store) {
    let (key, client) = (unique_key("in-hand"), store.client());
    let lost = client.on(&key).lease(LEASE).acquire().await.unwrap();
    store.remove(&key).await;
    lost.lost().await;

    let guard = client.on(&key).try_acquire().await.unwrap();
    let guard = guard.expect("the lock is free, as another client would find");
    drop(lost);

    tokio::time::sleep(ms(50)).await;
    assert_eq!(store.owner_of(&key).await.as_deref(), Some(guard.owner()));
    guard.release().await.unwrap();
    client.on(&key).acquire().await.unwrap().release().await.unwrap();
}

async fn body_is_cancelled_at_max_hold(store: Store) {
    let (key, client, inside) = (unique_key("max-hold"), store.client(), Inside::default());
    let (start, cap) = (Instant::now(), ms(2_500));
    let call = client.on(&key).lease(ms(1_500)).max_hold(cap).run(|held| {
        let visit = inside.enter();
        async move {
            let _visit = visit;
            never_ends(held).await;
        }
    });

    let error = call.await.unwrap_err();

    let took = start.elapsed();
    assert_eq!(error.kind(), LockErrorKind::HoldLimit, "{error}");
    assert!(took > cap - ms(50) && took <= cap + slack(&store), "{took:?}");
    assert_eq!(inside.now(), 0);
    let within = bound(&store, ms(200), SOON);
    eventually("the key is gone", within, async || store.owner_of(&key).await.is_none()).await;
}

async fn guard_is_lost_at_max_hold_and_the_key_runs_out(store: Store) {
    let (key, client) = (unique_key("max-hold-guard"), store.client());
    let (start, lease, cap) = (Instant::now(), ms(4_500), ms(4_600));
    let guard = client.on(&key).lease(lease).max_hold(cap).acquire().await.unwrap();

    guard.lost().await;

    // Nothing was renewed past the cap, so this takes no release. A whole lease from the last renewal
    // would be left for another third of it.
    let left = store.remaining(&key).await;
    let at_most = bound(&store, ms(60), lease / 6);
    assert!(left.is_none_or(|left| left <= at_most), "{left:?} past the cap");
    assert!(start.elapsed() <= cap + slack(&store), "{:?}", start.elapsed());
    assert_eq!(guard.check().unwrap_err().kind(), LockErrorKind::HoldLimit);
    assert_eq!(guard.remaining(), Duration::ZERO);
    eventually("the key is gone", at_most, async || store.owner_of(&key).await.is_none()).await;
    drop(guard);
}

async fn max_hold_is_no_limit_to_a_shorter_body(store: Store) {
    let (key, client) = (unique_key("max-hold-short"), store.client());

    let call = client.on(&key).lease(ms(1_500)).max_hold(ms(60_000)).strict().run(|_| async {
        tokio::time::sleep(ms(2_000)).await;
        7
    });

    assert_eq!(call.await.unwrap(), 7);
}

async fn long_body_keeps_the_lock(store: Store) {
    let (key, client, other) = (unique_key("long"), store.client(), store.client());
    let call = client.on(&key).lease(ms(1_500)).strict().run(|held| async {
        let held = held;
        for _ in 0..20 {
            tokio::time::sleep(ms(150)).await;
            assert!(!held.is_lost());
            assert!(other.on(&key).try_acquire().await.unwrap().is_none());
        }
    });

    call.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn frozen_holder_finds_its_lock_lost_at_the_first_look() {
    let store = Store::memory();
    let (key, client, inside) = (unique_key("frozen"), store.client(), Inside::default());
    let guard = client.on(&key).lease(LEASE).acquire().await.unwrap();
    let mut scope = std::pin::pin!(guard.scope(async {
        let _visit = inside.enter();
        tokio::task::yield_now().await;
        panic!("polled after the deadline");
    }));
    assert!(crate::common::poll_once(scope.as_mut()).await.is_pending());

    // Nothing runs while the clock jumps, as after SIGSTOP or a suspend.
    tokio::time::advance(LEASE * 2).await;

    assert!(guard.is_lost(), "before anything was sent");
    assert_eq!(scope.await.unwrap_err().kind(), LOST);
    assert_eq!(inside.now(), 0);
    assert!(store.client().on(&key).try_acquire().await.unwrap().is_some());
}
