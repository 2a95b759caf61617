//! `#[distributed_lock]`: what each option does to a call.

use std::sync::Arc;
use std::time::Duration;

use distlock::{
    LockClient, LockError, LockErrorKind, LockKey, distributed_lock, lock_key, lock_template,
};

/// Whether somebody holds `key`.
async fn held(client: &LockClient, key: &str) -> bool {
    client.holder(LockKey::literal(key.to_owned())).await.unwrap().is_some()
}

/// Holds `key` by hand while `call` runs.
async fn contended<T>(client: &LockClient, key: &str, call: impl Future<Output = T>) -> T {
    let guard = client.lock(LockKey::literal(key.to_owned())).try_acquire().await.unwrap().unwrap();
    let value = call.await;
    drop(guard);
    value
}

#[distributed_lock(key = "attr:probe:<id>", client = client)]
async fn probe(client: &LockClient, id: u64) -> Result<bool, LockError> {
    Ok(held(client, &format!("attr:probe:{id}")).await)
}

#[tokio::test]
async fn the_key_is_held_while_the_body_runs_and_free_after() {
    let client = LockClient::in_memory();

    assert!(probe(&client, 7).await.unwrap());
    assert!(!held(&client, "attr:probe:7").await);
}

#[distributed_lock(key = "attr:contended:<id>", wait = "0s", client = client)]
async fn contended_call(client: &LockClient, id: u64) -> Result<(), LockError> {
    let _ = client;
    unreachable!("the body of {id} must not run");
}

#[tokio::test]
async fn a_refused_lock_is_the_error_and_the_body_does_not_run() {
    let client = LockClient::in_memory();

    let outcome = contended(&client, "attr:contended:7", contended_call(&client, 7)).await;

    assert_eq!(outcome.unwrap_err().kind(), LockErrorKind::Timeout);
}

#[derive(Debug, PartialEq)]
enum StockError {
    Locked(LockErrorKind),
    Empty,
}

impl From<LockError> for StockError {
    fn from(error: LockError) -> Self {
        Self::Locked(error.kind())
    }
}

type StockResult<T> = Result<T, StockError>;

#[distributed_lock(key = "attr:alias", wait = "0s", client = client)]
async fn aliased(client: &LockClient, empty: bool) -> StockResult<u8> {
    let _ = client;
    if empty {
        Err(StockError::Empty)?;
    }
    Ok(1)
}

#[tokio::test]
async fn the_error_type_of_an_alias_takes_the_lock_error() {
    let client = LockClient::in_memory();

    let refused = contended(&client, "attr:alias", aliased(&client, false)).await;
    assert_eq!(refused, Err(StockError::Locked(LockErrorKind::Timeout)));
    assert_eq!(aliased(&client, true).await, Err(StockError::Empty));
    assert_eq!(aliased(&client, false).await, Ok(1));
}

#[distributed_lock(key = "attr:default:<id>")]
async fn on_the_default_client(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

#[tokio::test]
async fn without_a_client_the_default_one_is_used() {
    let client = LockClient::in_memory();

    assert_eq!(client.scope_default(on_the_default_client(3)).await.unwrap(), 3);
    assert_eq!(on_the_default_client(3).await.unwrap_err().kind(), LockErrorKind::NotInstalled);
}

struct Shop {
    locks: Arc<LockClient>,
    name: String,
}

impl Shop {
    #[distributed_lock(key = "attr:<self.name>:<id>", client = self.locks, wait = "0s")]
    async fn sell(&self, id: u64) -> Result<bool, LockError> {
        Ok(held(&self.locks, &format!("attr:{}:{id}", self.name)).await)
    }
}

#[tokio::test]
async fn the_client_may_be_behind_self() {
    let shop = Shop { locks: Arc::new(LockClient::in_memory()), name: "north".into() };

    assert!(shop.sell(1).await.unwrap());
}

#[distributed_lock(
    key = "attr:fallback",
    wait = "0s",
    client = client,
    fallback = Ok(label),
)]
async fn with_fallback(client: &LockClient, label: String) -> Result<String, LockError> {
    let _ = client;
    Ok(format!("{label} ran"))
}

#[tokio::test]
async fn fallback_is_the_value_when_the_body_never_started() {
    let client = LockClient::in_memory();
    let call = || with_fallback(&client, "a".into());

    assert_eq!(contended(&client, "attr:fallback", call()).await.unwrap(), "a");
    assert_eq!(call().await.unwrap(), "a ran");
}

#[distributed_lock(
    key = "attr:fallback_with:<id>",
    wait = "0s",
    lease = "1s",
    max_hold = "2s",
    client = client,
    fallback_with = |error| format!("{id}: {:?}", error.kind()),
)]
async fn with_closure(client: &LockClient, id: u64, work: Duration) -> String {
    let _ = client;
    tokio::time::sleep(work).await;
    String::from("ran")
}

#[tokio::test(start_paused = true)]
async fn fallback_with_is_called_for_refusal_and_for_loss() {
    let client = LockClient::in_memory();
    let call = |work| with_closure(&client, 5, Duration::from_secs(work));

    assert_eq!(contended(&client, "attr:fallback_with:5", call(0)).await, "5: Timeout");
    assert_eq!(call(3).await, "5: HoldLimit");
    assert_eq!(call(1).await, "ran");
}

#[allow(clippy::needless_pass_by_value, reason = "that is what `fallback_with` calls")]
fn kind(error: LockError) -> Option<LockErrorKind> {
    Some(error.kind())
}

#[distributed_lock(key = "attr:path", wait = "0s", client = client, fallback_with = kind)]
async fn with_path(client: &LockClient) -> Option<LockErrorKind> {
    let _ = client;
    None
}

#[tokio::test]
async fn fallback_with_may_be_a_path() {
    let client = LockClient::in_memory();

    let outcome = contended(&client, "attr:path", with_path(&client)).await;

    assert_eq!(outcome, Some(LockErrorKind::Timeout));
}

#[distributed_lock(
    key = "attr:signal",
    wait = "0s",
    client = client,
    on_lost = "signal",
    fallback = 0,
)]
async fn signalled(client: &LockClient) -> u8 {
    let _ = client;
    1
}

#[tokio::test]
async fn a_plain_value_and_fallback_go_with_signal() {
    let client = LockClient::in_memory();

    assert_eq!(contended(&client, "attr:signal", signalled(&client)).await, 0);
    assert_eq!(signalled(&client).await, 1);
}

#[distributed_lock(key = "attr:guard:<id>", client = client, guard = lock)]
async fn with_guard(client: &LockClient, id: u64) -> Result<String, LockError> {
    let _ = client;
    Ok(lock.key().to_owned())
}

#[tokio::test]
async fn guard_names_the_held_lock() {
    let client = LockClient::in_memory();

    assert_eq!(with_guard(&client, 9).await.unwrap(), "attr:guard:9");
}

fn seconds(number: u64) -> Duration {
    Duration::from_secs(number)
}

const LEASE: Duration = Duration::from_secs(4);

#[distributed_lock(
    key = "attr:expressions",
    wait = seconds(patience),
    lease = LEASE,
    max_hold = LEASE * 2,
    max_waiters = 1 + 1,
    name = "expressions",
    reentrant = true,
    strict = false,
    client = client,
)]
async fn with_expressions(client: &LockClient, patience: u64) -> Result<(), LockError> {
    let _ = client;
    Ok(())
}

#[distributed_lock(key = "attr:short", lease = seconds(0), client = client)]
async fn too_short(client: &LockClient) -> Result<(), LockError> {
    let _ = client;
    Ok(())
}

#[tokio::test]
async fn settings_may_be_expressions_and_are_checked_when_they_run() {
    let client = LockClient::in_memory();

    with_expressions(&client, 1).await.unwrap();
    assert_eq!(too_short(&client).await.unwrap_err().kind(), LockErrorKind::Config);
}

#[distributed_lock(
    key = { let total = a + b; lock_key!("attr:sum:<total>") },
    client = client,
)]
async fn computed_key(client: &LockClient, a: u64, b: u64) -> Result<bool, LockError> {
    Ok(held(client, &format!("attr:sum:{}", a + b)).await)
}

#[tokio::test]
async fn the_key_may_be_an_expression() {
    let client = LockClient::in_memory();

    assert!(computed_key(&client, 3, 4).await.unwrap());
}

lock_template! {
    /// One item of the stock.
    STOCK = "attr:stock:<shop>:<sku_id>:<shop>", wait = "0s", lease = "5s";
    NIGHTLY = "attr:nightly";
    ROUTE = "attr:route:<sku_id as u64>", strict = true
}

#[distributed_lock(key = STOCK.key(shop, &sku_id), client = client)]
async fn declared(client: &LockClient, shop: &str, sku_id: u64) -> Result<bool, LockError> {
    Ok(held(client, &format!("attr:stock:{shop}:{sku_id}:{shop}")).await)
}

#[tokio::test]
async fn a_declared_lock_brings_its_key_and_settings() {
    let client = LockClient::in_memory();
    let call = || declared(&client, "north", 7);

    assert!(call().await.unwrap());
    // Its `wait` of zero holds: nothing else would end this call.
    let refused = contended(&client, "attr:stock:north:7:north", call()).await;
    assert_eq!(refused.unwrap_err().kind(), LockErrorKind::Timeout);
}

#[test]
fn a_declared_lock_is_a_small_value() {
    fn is_small<T: Copy + std::fmt::Debug + Send + Sync + 'static>(_: T) -> usize {
        size_of::<T>()
    }

    assert_eq!(is_small(STOCK), 0);
    assert_eq!(format!("{STOCK:?}"), "STOCK");
    assert_eq!(NIGHTLY.key().as_str(), "attr:nightly");
    assert_eq!(ROUTE.key(&7_u64).as_str(), "attr:route:7");
    assert_eq!(STOCK.key("a b", &1).template(), "attr:stock:<shop>:<sku_id>:<shop>");
}

#[test]
fn lock_key_fills_in_what_is_in_scope() {
    struct Order {
        id: u64,
        items: Vec<&'static str>,
    }
    let order = Order { id: 7, items: vec!["a/b"] };
    let pair = (1, "x");

    let key = lock_key!("o:<order.id>:<order.items[0].trim()>:<pair.1>:<u8::MAX>:{<<x>>}");

    assert_eq!(key.as_str(), "o:7:a%2Fb:x:255:{<x>}");
}

#[distributed_lock(key = "attr:when:<id>", when = id > 5, guard = lock, client = client)]
async fn sometimes(client: &LockClient, id: u64) -> Result<(bool, bool), LockError> {
    Ok((held(client, &format!("attr:when:{id}")).await, lock.is_some()))
}

#[tokio::test]
async fn when_decides_whether_to_lock() {
    let client = LockClient::in_memory();

    assert_eq!(sometimes(&client, 5).await.unwrap(), (false, false));
    assert_eq!(sometimes(&client, 6).await.unwrap(), (true, true));
}

#[distributed_lock(keys = ["attr:account:<from>", lock_key!("attr:account:<to>")], client = client)]
async fn transfer(client: &LockClient, from: u64, to: u64) -> Result<(bool, bool), LockError> {
    let both = [from, to].map(|id| format!("attr:account:{id}"));
    Ok((held(client, &both[0]).await, held(client, &both[1]).await))
}

#[tokio::test]
async fn several_keys_are_held_together() {
    let client = LockClient::in_memory();

    assert_eq!(transfer(&client, 1, 2).await.unwrap(), (true, true));
    assert_eq!(transfer(&client, 1, 1).await.unwrap(), (true, true));
    assert!(!held(&client, "attr:account:1").await);
}

#[derive(Debug)]
struct NoName;

impl From<LockError> for NoName {
    fn from(_: LockError) -> Self {
        Self
    }
}

#[distributed_lock(
    key = { let name = name.ok_or(NoName)?; lock_key!("attr:leaves:<name>") },
    client = { tokio::task::yield_now().await; client },
)]
async fn options_that_leave(client: &LockClient, name: Option<&str>) -> Result<bool, NoName> {
    Ok(held(client, &format!("attr:leaves:{}", name.unwrap_or_default())).await)
}

#[tokio::test]
async fn options_may_wait_and_leave_the_function() {
    let client = LockClient::in_memory();

    assert!(options_that_leave(&client, Some("x")).await.unwrap());
    assert!(options_that_leave(&client, None).await.is_err());
}

#[distributed_lock(
    key = "attr:answers:<name>",
    wait = "0s",
    client = client,
    guard = lock,
    fallback = {
        tokio::task::yield_now().await;
        Ok(name + "?")
    },
)]
async fn answers_later(client: &LockClient, name: String) -> Result<String, LockError> {
    let _ = client;
    Ok(name + lock.key())
}

#[tokio::test]
async fn a_fallback_may_take_the_arguments_and_wait() {
    let client = LockClient::in_memory();
    let call = || answers_later(&client, "x".into());

    assert_eq!(contended(&client, "attr:answers:x", call()).await.unwrap(), "x?");
    assert_eq!(call().await.unwrap(), "xattr:answers:x");
}
