//! `#[distributed_lock]`: options with a choice, in each of their values; and what wins over what.

use std::time::Duration;

use distlock::{HeldLock, LockClient, LockError, LockErrorKind, MemoryStore, distributed_lock};
use tokio::time::sleep;

/// A client, and the store to take its locks away with.
fn shop() -> (LockClient, MemoryStore) {
    let store = MemoryStore::new();
    (LockClient::builder().memory_store(store.clone()).build().unwrap(), store)
}

/// The same with everything that a builder can set the other way round.
fn strict_shop() -> (LockClient, MemoryStore) {
    let store = MemoryStore::new();
    let builder = LockClient::builder().memory_store(store.clone());
    (builder.strict().not_reentrant().wait(Duration::ZERO).build().unwrap(), store)
}

fn kind<T: std::fmt::Debug>(outcome: Result<T, LockError>) -> LockErrorKind {
    outcome.unwrap_err().kind()
}

/// Works long enough for a renewal to find the lock gone, and says whether it saw that.
async fn lose(store: &MemoryStore, key: &str, held: &HeldLock) -> bool {
    store.remove(key);
    sleep(Duration::from_secs(30)).await;
    held.is_lost()
}

#[distributed_lock(key = "option:on_lost:default", client = client, guard = held)]
async fn by_default(client: &LockClient, store: &MemoryStore) -> Result<bool, LockError> {
    Ok(lose(store, "option:on_lost:default", &held).await)
}

#[distributed_lock(
    key = "option:on_lost:cancel",
    client = client,
    guard = held,
    on_lost = "cancel"
)]
async fn cancelled(client: &LockClient, store: &MemoryStore) -> Result<bool, LockError> {
    Ok(lose(store, "option:on_lost:cancel", &held).await)
}

#[distributed_lock(
    key = "option:on_lost:signal",
    client = client,
    guard = held,
    on_lost = "signal"
)]
async fn signalled(client: &LockClient, store: &MemoryStore) -> Result<bool, LockError> {
    Ok(lose(store, "option:on_lost:signal", &held).await)
}

#[tokio::test(start_paused = true)]
async fn on_lost_cancels_or_signals() {
    let (client, store) = shop();

    let lost = LockErrorKind::Lost { completed: false };
    assert_eq!(kind(by_default(&client, &store).await), lost);
    assert_eq!(kind(cancelled(&client, &store).await), lost);
    assert!(signalled(&client, &store).await.unwrap());
}

#[distributed_lock(
    key = "option:strict:on",
    client = client,
    guard = held,
    on_lost = "signal",
    strict = true
)]
async fn strict(client: &LockClient, store: &MemoryStore) -> Result<bool, LockError> {
    Ok(lose(store, "option:strict:on", &held).await)
}

#[distributed_lock(
    key = "option:strict:off",
    client = client,
    guard = held,
    on_lost = "signal",
    strict = false
)]
async fn not_strict(client: &LockClient, store: &MemoryStore) -> Result<bool, LockError> {
    Ok(lose(store, "option:strict:off", &held).await)
}

#[tokio::test(start_paused = true)]
async fn strict_reports_a_lock_that_was_gone_at_the_end() {
    let (client, store) = shop();

    let lost = LockErrorKind::Lost { completed: true };
    assert_eq!(kind(strict(&client, &store).await), lost);
    assert!(not_strict(&client, &store).await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn an_attribute_wins_over_the_builder() {
    let (client, store) = strict_shop();

    assert!(not_strict(&client, &store).await.unwrap());
    assert_eq!(
        kind(signalled(&client, &store).await),
        LockErrorKind::Lost { completed: true },
        "what the attribute leaves open, the builder decides"
    );
}

#[distributed_lock(
    key = "option:value",
    client = client,
    guard = held,
    on_lost = "signal",
    fallback = false
)]
async fn plain_value(client: &LockClient, store: &MemoryStore) -> bool {
    lose(store, "option:value", &held).await
}

#[tokio::test(start_paused = true)]
async fn a_plain_value_comes_back_even_from_a_strict_client() {
    let (client, store) = strict_shop();

    assert!(plain_value(&client, &store).await);
}

#[distributed_lock(key = "option:reentrant", client = client, reentrant = true)]
async fn reentrant(client: &LockClient, depth: u8) -> Result<u8, LockError> {
    if depth == 0 { Ok(0) } else { Box::pin(reentrant(client, depth - 1)).await }
}

#[distributed_lock(key = "option:not_reentrant", client = client, reentrant = false)]
async fn not_reentrant(client: &LockClient, depth: u8) -> Result<u8, LockError> {
    if depth == 0 { Ok(0) } else { Box::pin(not_reentrant(client, depth - 1)).await }
}

#[tokio::test]
async fn a_nested_call_enters_or_is_refused() {
    let (client, _) = shop();

    assert_eq!(reentrant(&client, 2).await.unwrap(), 0);
    assert_eq!(not_reentrant(&client, 0).await.unwrap(), 0);
    assert_eq!(kind(not_reentrant(&client, 1).await), LockErrorKind::Reentrant);
    let (client, _) = strict_shop();
    assert_eq!(reentrant(&client, 2).await.unwrap(), 0);
}

#[distributed_lock(
    key = "option:unavailable:error",
    client = client,
    wait = "1s",
    on_unavailable = "error"
)]
async fn fails_closed(client: &LockClient) -> Result<(), LockError> {
    unreachable!("{client:?} has no store");
}

#[distributed_lock(
    key = "option:unavailable:open",
    client = client,
    wait = "1s",
    guard = held,
    on_unavailable = "run_unlocked"
)]
async fn fails_open(client: &LockClient) -> Result<bool, LockError> {
    let _ = client;
    Ok(held.is_some())
}

#[tokio::test]
async fn without_a_store_a_body_runs_only_where_its_site_says_so() {
    // Nobody listens on port 1.
    let client = LockClient::builder().url("redis://127.0.0.1:1").build().unwrap();

    assert_eq!(kind(fails_closed(&client).await), LockErrorKind::Backend);
    assert!(!fails_open(&client).await.unwrap());
    let (client, _) = shop();
    assert!(fails_open(&client).await.unwrap());
}

#[distributed_lock(key = "option:release:await", client = client, release = "await")]
async fn awaited(client: &LockClient) -> Result<u8, LockError> {
    Ok(1)
}

#[distributed_lock(key = "option:release:background", client = client, release = "background")]
async fn in_background(client: &LockClient) -> Result<u8, LockError> {
    Ok(2)
}

#[tokio::test(start_paused = true)]
async fn release_is_awaited_or_goes_on_in_the_background() {
    let (client, store) = shop();

    assert_eq!((awaited(&client).await.unwrap(), in_background(&client).await.unwrap()), (1, 2));

    client.shutdown(Duration::from_secs(5)).await.unwrap();
    assert_eq!(store.get("option:release:await"), None);
    assert_eq!(store.get("option:release:background"), None);
    let (strict, _) = strict_shop();
    assert_eq!(kind(in_background(&strict).await), LockErrorKind::Config);
}
