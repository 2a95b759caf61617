//! What a body or a guard sees of its lock.

use std::time::Duration;

use distlock::{HeldLock, LockErrorKind};
use tokio::time::Instant;

use crate::common::{LockText, SOON, ms, poll_once, slack};
use crate::support::{Store, eventually, on_every_store, unique_key};

on_every_store! {
    remaining_goes_up_again_by_renewal,
    extend_is_the_lease_from_now_on,
    extend_never_reaches_past_max_hold,
    extend_to_what_cannot_work_is_refused,
    look_does_not_keep_the_lock,
    lost_is_pending_while_the_lock_is_held,
    ttl_after_a_renewal_is_the_lease,
}

async fn remaining_goes_up_again_by_renewal(store: Store) {
    let (key, client) = (unique_key("remaining"), store.client());
    let lease = ms(4_500);
    let guard = client.on(&key).lease(lease).acquire().await.unwrap();
    let mut last = guard.remaining();
    assert!(last <= lease && last > lease / 3, "{last:?}");

    eventually("it was renewed", SOON, async || {
        let now = guard.remaining();
        assert!(now > lease / 3, "never let run down: {now:?}");
        std::mem::replace(&mut last, now) < now
    })
    .await;
}

async fn extend_is_the_lease_from_now_on(store: Store) {
    let (key, client) = (unique_key("extend"), store.client());
    let (old, new) = (ms(1_500), ms(9_000));
    let guard = client.on(&key).lease(old).acquire().await.unwrap();

    guard.extend(new).await.unwrap();

    let ttl = store.remaining(&key).await.unwrap();
    assert!(ttl >= new - slack(&store) && ttl <= new, "{ttl:?}");
    assert!(guard.remaining() >= new - ms(92) - slack(&store), "{:?}", guard.remaining());
    // The next renewal is due a third into it, and to the new lease; none before takes anything off.
    let mut last = ttl;
    eventually("it is renewed", SOON, async || {
        tokio::time::sleep(ms(50)).await;
        let left = store.remaining(&key).await.unwrap();
        assert!(left > 2 * old, "not to the old lease: {left:?}");
        std::mem::replace(&mut last, left) < left
    })
    .await;
    guard.release().await.unwrap();
    assert_eq!(store.owner_of(&key).await, None);
}

async fn extend_never_reaches_past_max_hold(store: Store) {
    let (key, client) = (unique_key("extend-max"), store.client());
    let (start, cap) = (Instant::now(), ms(2_500));
    let guard = client.on(&key).lease(ms(1_500)).max_hold(cap).acquire().await.unwrap();

    guard.extend(ms(60_000)).await.unwrap();

    let ttl = store.remaining(&key).await.unwrap();
    assert!(ttl <= cap, "{ttl:?}");
    guard.lost().await;
    assert!(start.elapsed() <= cap + slack(&store), "{:?}", start.elapsed());
    assert_eq!(guard.check().unwrap_err().kind(), LockErrorKind::HoldLimit);
}

async fn extend_to_what_cannot_work_is_refused(store: Store) {
    let (key, client) = (unique_key("extend-config"), store.client());
    let guard = client.on(&key).acquire().await.unwrap();

    for lease in [Duration::ZERO, ms(99), Duration::MAX] {
        let error = guard.extend(lease).await.unwrap_err();
        assert_eq!(error.kind(), LockErrorKind::Config, "{error}");
    }

    assert!(!guard.is_lost());
}

async fn look_does_not_keep_the_lock(store: Store) {
    let (key, client) = (unique_key("look"), store.client());
    let looks: Vec<HeldLock> =
        client.on(&key).run(|held| async move { vec![held.clone(), held] }).await.unwrap();

    assert_eq!(store.owner_of(&key).await, None);
    drop(client);
    assert!(looks.iter().all(HeldLock::is_lost));
    assert_eq!(looks[0].key(), key);
    let error = looks[1].extend(ms(500)).await.unwrap_err();
    assert!(matches!(error.kind(), LockErrorKind::Lost { .. }), "{error}");
}

async fn lost_is_pending_while_the_lock_is_held(store: Store) {
    let (key, client) = (unique_key("pending"), store.client());
    let guard = client.on(&key).lease(ms(1_500)).acquire().await.unwrap();
    let mut lost = Box::pin(guard.lost());

    assert!(tokio::time::timeout(ms(2_500), lost.as_mut()).await.is_err());
    store.remove(&key).await;

    tokio::time::timeout(SOON, lost.as_mut()).await.expect("woken by the loss");
    assert!(poll_once(Box::pin(guard.lost()).as_mut()).await.is_ready());
}

async fn ttl_after_a_renewal_is_the_lease(store: Store) {
    let (key, client) = (unique_key("ttl"), store.client());
    let _guard = client.on(&key).lease(ms(3_000)).acquire().await.unwrap();

    eventually("it sinks", SOON, async || store.remaining(&key).await.unwrap() < ms(2_500)).await;
    eventually("it is renewed", SOON, async || store.remaining(&key).await.unwrap() > ms(2_600))
        .await;

    assert!(store.remaining(&key).await.unwrap() <= ms(3_000));
}
