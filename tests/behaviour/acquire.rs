//! Getting a lock, and what stands in the store then.

use std::time::Duration;

use distlock::{LockClient, LockErrorKind, LockKey};
use tokio::time::Instant;

use crate::common::{LONG, LOOKS_AGAIN, LockText, bound, literal, ms, slack};
use crate::support::{Store, on_every_store, unique_key};

on_every_store! {
    acquired_lock_stands_in_the_store_under_its_owner,
    released_lock_is_free,
    held_lock_is_none_to_a_try_of_any_client,
    ttl_is_the_lease_of_the_call,
    holder_is_read_from_the_store,
    namespaces_do_not_share_locks,
    key_that_cannot_be_is_refused_before_the_store_is_asked,
    setting_that_cannot_work_is_refused_before_the_store_is_asked,
    text_without_a_ttl_is_a_foreign_value_and_stays,
    other_type_is_a_foreign_value_and_stays,
    text_with_a_ttl_is_a_holder_that_is_waited_for,
    foreign_value_that_turns_up_while_waiting_is_told,
}

async fn acquired_lock_stands_in_the_store_under_its_owner(store: Store) {
    let (key, client) = (unique_key("owner"), store.client());

    let guard = client.on(&key).acquire().await.unwrap();

    assert_eq!(store.owner_of(&key).await.as_deref(), Some(guard.owner()));
    assert!(guard.owner().starts_with(&format!("{}/", client.instance())), "{}", guard.owner());
    assert_eq!(guard.key(), key);
    assert!(!guard.is_lost());
}

async fn released_lock_is_free(store: Store) {
    let (key, client) = (unique_key("released"), store.client());
    let guard = client.on(&key).acquire().await.unwrap();

    guard.release().await.unwrap();

    assert_eq!(store.owner_of(&key).await, None);
    assert!(client.on(&key).try_acquire().await.unwrap().is_some());
}

async fn held_lock_is_none_to_a_try_of_any_client(store: Store) {
    let (key, client) = (unique_key("try"), store.builder().wait(LONG).build().unwrap());
    let guard = client.on(&key).try_acquire().await.unwrap().unwrap();
    let start = Instant::now();

    assert!(client.on(&key).try_acquire().await.unwrap().is_none(), "the same client");
    assert!(store.client().on(&key).try_acquire().await.unwrap().is_none(), "another one");

    let took = start.elapsed();
    assert!(took <= slack(&store), "a try does not wait, but took {took:?}");
    assert_eq!(store.owner_of(&key).await.as_deref(), Some(guard.owner()));
}

async fn ttl_is_the_lease_of_the_call(store: Store) {
    let key = unique_key("lease");
    let client = store.builder().lease(ms(60_000)).build().unwrap();
    for (request, lease) in
        [(client.on(&key), ms(60_000)), (client.on(&key).lease(ms(30_000)), ms(30_000))]
    {
        let guard = request.acquire().await.unwrap();
        let ttl = store.remaining(&key).await.unwrap();
        assert!(ttl <= lease && ttl >= lease - slack(&store), "{ttl:?} of {lease:?}");
        let by_our_clock = guard.remaining();
        // Less the drift: one per cent, and two milliseconds.
        let earliest = lease - lease / 100 - ms(2) - slack(&store);
        assert!(by_our_clock < lease && by_our_clock >= earliest, "{by_our_clock:?}");
        guard.release().await.unwrap();
    }
}

async fn holder_is_read_from_the_store(store: Store) {
    let (key, asker) = (unique_key("holder"), store.client());
    assert_eq!(asker.holder(literal(&key)).await.unwrap(), None);
    let guard = store.client().on(&key).lease(LONG).acquire().await.unwrap();

    let (owner, remaining) = asker.holder(literal(&key)).await.unwrap().unwrap();

    assert_eq!(owner, guard.owner());
    assert!(remaining <= LONG && remaining >= LONG - slack(&store), "{remaining:?}");
    store.put_foreign(&key, "no lock", None).await;
    let error = asker.holder(literal(&key)).await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::ForeignValue);
}

async fn namespaces_do_not_share_locks(store: Store) {
    let key = unique_key("namespace");
    let [shop, bank] =
        ["shop", "bank"].map(|namespace| store.builder().namespace(namespace).build().unwrap());

    let first = shop.on(&key).try_acquire().await.unwrap().unwrap();
    let second = bank.on(&key).try_acquire().await.unwrap();

    assert!(second.is_some(), "another namespace is another lock");
    assert_eq!(first.key(), format!("shop:{key}"));
    let stored = store.owner_of(&format!("shop:{key}")).await;
    assert_eq!(stored.as_deref(), Some(first.owner()));
    assert!(shop.holder(literal(&key)).await.unwrap().is_some());
}

async fn key_that_cannot_be_is_refused_before_the_store_is_asked(store: Store) {
    let client = store.builder().max_key_bytes(40).build().unwrap();
    for key in [
        LockKey::literal(""),
        LockKey::literal("  "),
        LockKey::literal("<sku_id>"),
        LockKey::literal("x".repeat(41)),
    ] {
        let text = key.as_str().to_owned();
        let error = client.lock(key.clone()).acquire().await.unwrap_err();
        assert_eq!(error.kind(), LockErrorKind::InvalidKey, "{text:?}: {error}");
        assert!(!error.is_retryable());
        let error = client.lock_all([literal("fine"), key]).acquire().await.unwrap_err();
        assert_eq!(error.kind(), LockErrorKind::InvalidKey, "{text:?}: {error}");
    }
    assert!(client.on(&"x".repeat(40)).try_acquire().await.unwrap().is_some());
}

async fn setting_that_cannot_work_is_refused_before_the_store_is_asked(store: Store) {
    let (key, client) = (unique_key("config"), store.client());
    let year = Duration::from_secs(366 * 24 * 60 * 60);
    for (request, name) in [
        (client.on(&key).lease(Duration::ZERO), "lease"),
        (client.on(&key).lease(ms(99)), "lease"),
        (client.on(&key).lease(year), "lease"),
        (client.on(&key).wait(year), "wait"),
        (client.on(&key).max_hold(ms(9_999)), "max_hold"),
        (client.on(&key).max_hold(Duration::ZERO), "max_hold"),
        (client.lock_all([]), "keys"),
    ] {
        let error = request.acquire().await.unwrap_err();
        assert_eq!(error.kind(), LockErrorKind::Config, "{error}");
        assert!(error.to_string().contains(name), "{error} names {name}");
    }
    assert_eq!(store.owner_of(&key).await, None);
    let error = LockClient::builder().build().unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Config);
}

async fn text_without_a_ttl_is_a_foreign_value_and_stays(store: Store) {
    let (key, client) = (unique_key("foreign"), store.client());
    store.put_foreign(&key, "no lock", None).await;
    let start = Instant::now();

    let waiting = client.on(&key).wait(LONG).acquire().await.unwrap_err();
    let trying = client.on(&key).try_acquire().await.unwrap_err();

    for error in [waiting, trying] {
        assert_eq!(error.kind(), LockErrorKind::ForeignValue, "{error}");
        assert_eq!(error.key(), Some(&*key));
        assert!(!error.is_retryable());
    }
    assert!(start.elapsed() <= slack(&store), "nobody waits for it");
    assert_eq!(store.owner_of(&key).await.as_deref(), Some("no lock"));
}

async fn other_type_is_a_foreign_value_and_stays(store: Store) {
    let (key, client) = (unique_key("foreign-type"), store.client());
    store.put_other_type(&key).await;

    for wait in [ms(0), ms(1_000)] {
        let error = client.on(&key).wait(wait).acquire().await.unwrap_err();
        assert_eq!(error.kind(), LockErrorKind::ForeignValue, "{error}");
    }

    store.remove(&key).await;
    assert!(client.on(&key).try_acquire().await.unwrap().is_some());
}

async fn text_with_a_ttl_is_a_holder_that_is_waited_for(store: Store) {
    let (key, client) = (unique_key("foreign-ttl"), store.client());
    let (start, ttl) = (Instant::now(), ms(1_500));
    store.put_foreign(&key, "other program", Some(ttl)).await;

    let error = client.on(&key).wait(ms(0)).acquire().await.unwrap_err();
    assert_eq!((error.kind(), error.owner()), (LockErrorKind::Timeout, Some("other program")));
    let guard = client.on(&key).wait(LONG).acquire().await.unwrap();

    let took = start.elapsed();
    assert!(took >= ttl, "took a lock that was held: {took:?}");
    let latest = bound(&store, ttl + ms(10), LOOKS_AGAIN);
    assert!(took < latest, "the TTL is what is waited for: {took:?}");
    assert_eq!(store.owner_of(&key).await.as_deref(), Some(guard.owner()));
}

async fn foreign_value_that_turns_up_while_waiting_is_told(store: Store) {
    let (key, client) = (unique_key("foreign-late"), store.client());
    store.put_foreign(&key, "other program", Some(ms(2_000))).await;
    let waiter = tokio::spawn(client.on(&key).wait(LONG).acquire());
    crate::common::queued(&store, &key, 1).await;

    store.put_foreign(&key, "no lock", None).await;

    let error = waiter.await.unwrap().unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::ForeignValue, "{error}");
    assert_eq!(store.owner_of(&key).await.as_deref(), Some("no lock"));
}
