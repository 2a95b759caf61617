//! `#[distributed_lock]` and parameters: every pattern works, placeholders may name any binding,
//! and everything that was passed by value is gone before the lock is free again.

#![deny(warnings)]

use std::sync::{Arc, Mutex};

use distlock::{LockClient, LockError, LockKey, MemoryStore, distributed_lock};

async fn held(client: &LockClient, key: &str) -> bool {
    client.holder(LockKey::literal(key.to_owned())).await.unwrap().is_some()
}

struct Json<T>(T);
struct State<T>(T);

struct Order {
    sku: u64,
    name: String,
    #[allow(dead_code)]
    note: String,
}

fn order() -> Order {
    Order { sku: 7, name: "a b".into(), note: "n".into() }
}

#[distributed_lock(key = "params:struct:<sku>:<name>", client = client)]
async fn half_of_a_struct(
    client: &LockClient,
    Json(Order { sku, name, .. }): Json<Order>,
) -> Result<bool, LockError> {
    let text: String = name;
    Ok(held(client, &format!("params:struct:{sku}:a%20b")).await && text == "a b")
}

#[distributed_lock(key = "params:renamed:<number>", client = locks)]
async fn renamed_fields(
    State(locks): State<LockClient>,
    Order { sku: number, name: _, note: _ }: Order,
) -> Result<bool, LockError> {
    Ok(held(&locks, &format!("params:renamed:{number}")).await)
}

#[distributed_lock(key = "params:tuple:<a>:<b>", client = client)]
async fn whole_tuple(client: &LockClient, (a, b): (u32, String)) -> Result<String, LockError> {
    assert!(held(client, &format!("params:tuple:{a}:{b}")).await);
    Ok(b)
}

#[distributed_lock(key = "params:half:<a>", client = client)]
async fn half_a_tuple(client: &LockClient, (mut a, _): (u32, String)) -> Result<u32, LockError> {
    assert!(held(client, &format!("params:half:{a}")).await);
    a += 1;
    Ok(a)
}

#[distributed_lock(key = "params:mut:<id>", client = client)]
async fn mutable(client: &LockClient, mut id: u64) -> Result<u64, LockError> {
    assert!(held(client, "params:mut:7").await);
    id += 1;
    Ok(id)
}

#[distributed_lock(key = "params:underscore:<_id>", client = client)]
async fn underscored(client: &LockClient, _id: u64) -> Result<bool, LockError> {
    Ok(held(client, "params:underscore:7").await)
}

#[distributed_lock(key = "params:range:<text[from..]>:<text.get(from..to).unwrap()>", client = client)]
async fn ranges(
    client: &LockClient,
    text: String,
    from: usize,
    to: usize,
) -> Result<bool, LockError> {
    Ok(held(client, "params:range:bcd:bc").await && text.len() > to)
}

#[distributed_lock(key = "params:wild", client = client)]
async fn wild(client: &LockClient, _: String, _: &str) -> Result<bool, LockError> {
    Ok(held(client, "params:wild").await)
}

#[distributed_lock(key = "params:references:<a>:<b>:<c>:<d.sku>", client = client)]
async fn references(
    client: &LockClient,
    &a: &u32,
    (b, _): &(u32, String),
    &(c, _): &(u32, u32),
    ref d @ Order { ref name, .. }: Order,
) -> Result<bool, LockError> {
    Ok(held(client, "params:references:1:2:3:7").await
        && a == 1
        && *b == 2
        && c == 3
        && *name == d.name)
}

#[distributed_lock(key = "params:nested:<x>:<y>:<rest.0>", client = client)]
async fn nested(
    client: &LockClient,
    [(x, _), (_, y), ..]: [(u8, u8); 3],
    rest @ (_, _): (u8, u8),
) -> Result<bool, LockError> {
    Ok(held(client, "params:nested:1:4:8").await && (x, y, rest.1) == (1, 4, 9))
}

#[distributed_lock(key = "params:raw:<r#type>:<r#type.len()>:<type>", client = client)]
async fn raw_name(client: &LockClient, r#type: &str) -> Result<bool, LockError> {
    let name = r#type;
    Ok(held(client, &format!("params:raw:{name}:{}:{name}", name.len())).await)
}

#[tokio::test]
async fn placeholders_name_any_binding() {
    let client = LockClient::in_memory();

    assert!(half_of_a_struct(&client, Json(order())).await.unwrap());
    assert!(renamed_fields(State(client.clone()), order()).await.unwrap());
    assert_eq!(whole_tuple(&client, (1, "x".into())).await.unwrap(), "x");
    assert_eq!(half_a_tuple(&client, (1, "x".into())).await.unwrap(), 2);
    assert_eq!(mutable(&client, 7).await.unwrap(), 8);
    assert!(underscored(&client, 7).await.unwrap());
    assert!(ranges(&client, "abcd".into(), 1, 3).await.unwrap());
    assert!(wild(&client, String::new(), "").await.unwrap());
    assert!(references(&client, &1, &(2, "x".into()), &(3, 0), order()).await.unwrap());
    assert!(nested(&client, [(1, 2), (3, 4), (5, 6)], (8, 9)).await.unwrap());
    assert!(raw_name(&client, "t").await.unwrap());
}

#[distributed_lock(
    key = "params:fallback:<sku>",
    wait = "0s",
    client = client,
    fallback = Ok(format!("{sku} {name}")),
    // What a pattern with `..` binds is a reference here.
    when = *sku > 0,
)]
async fn fallback_sees_bindings(
    client: &LockClient,
    Json(Order { sku, name, .. }): Json<Order>,
) -> Result<String, LockError> {
    assert!(held(client, &format!("params:fallback:{sku}")).await);
    Ok(name)
}

#[tokio::test]
async fn a_fallback_sees_the_bindings() {
    let client = LockClient::in_memory();
    let guard = client.lock(LockKey::literal("params:fallback:7")).try_acquire().await.unwrap();

    assert_eq!(fallback_sees_bindings(&client, Json(order())).await.unwrap(), "7 a b");
    drop(guard);
    assert_eq!(fallback_sees_bindings(&client, Json(order())).await.unwrap(), "a b");
}

/// Notes, when it is dropped, its name and whether the lock is held.
#[derive(Clone)]
struct Probe {
    name: &'static str,
    key: &'static str,
    store: MemoryStore,
    log: Arc<Mutex<Vec<(&'static str, bool)>>>,
}

impl Drop for Probe {
    fn drop(&mut self) {
        let held = self.store.get(self.key).is_some();
        self.log.lock().unwrap().push((self.name, held));
    }
}

struct Probes {
    client: LockClient,
    probe: Probe,
}

impl Probes {
    fn new(key: &'static str) -> Self {
        let store = MemoryStore::new();
        let client = LockClient::builder().memory_store(store.clone()).build().unwrap();
        Self { client, probe: Probe { name: "original", key, store, log: Arc::default() } }
    }

    fn probe(&self, name: &'static str) -> Probe {
        let mut probe = self.probe.clone();
        probe.name = name;
        probe
    }

    fn log(&self) -> Vec<(&'static str, bool)> {
        std::mem::take(&mut self.probe.log.lock().unwrap())
    }
}

#[allow(unused_variables)]
#[distributed_lock(key = "params:drop", client = client)]
async fn owns_much(
    client: LockClient,
    unused: Probe,
    _underscored: Probe,
    _: Probe,
    (half, _): (Probe, Probe),
    field_only: (Probe, Probe),
    fail: bool,
) -> Result<(), LockError> {
    let local = field_only.0.clone();
    if fail {
        client.lock(LockKey::literal("")).try_acquire().await?;
        panic!("an empty key is no key");
    }
    drop(local);
    Ok(())
}

impl Probes {
    async fn call(&self) -> Vec<(&'static str, bool)> {
        let p = |name| self.probe(name);
        owns_much(
            self.client.clone(),
            p("unused"),
            p("underscored"),
            p("wild"),
            (p("half"), p("other half")),
            (p("field"), p("other field")),
            false,
        )
        .await
        .unwrap();
        self.log()
    }
}

#[tokio::test]
async fn all_arguments_are_dropped_before_the_lock_is_free() {
    let log = Probes::new("params:drop").call().await;

    let free: Vec<_> = log.iter().filter(|(_, held)| !held).collect();
    assert!(free.is_empty(), "{log:?}");
    for name in ["unused", "underscored", "wild", "half", "other half", "field", "other field"] {
        assert!(log.iter().any(|(dropped, _)| *dropped == name), "{name}: {log:?}");
    }
}

#[distributed_lock(key = "params:order", client = client)]
async fn in_order(client: &LockClient, _a: Probe, _b: Probe, _c: Probe) -> Result<(), LockError> {
    let _ = client;
    Ok(())
}

#[tokio::test]
async fn arguments_are_dropped_in_the_order_of_an_ordinary_function() {
    let probes = Probes::new("params:order");
    let p = |name| probes.probe(name);

    in_order(&probes.client, p("a"), p("b"), p("c")).await.unwrap();

    assert_eq!(probes.log(), [("c", true), ("b", true), ("a", true)]);
}

#[tokio::test]
async fn a_dropped_call_drops_its_arguments_first() {
    #[distributed_lock(key = "params:cancelled", client = client)]
    async fn waits(client: &LockClient, _a: Probe) -> Result<(), LockError> {
        let _ = client;
        std::future::pending().await
    }
    let probes = Probes::new("params:cancelled");

    let mut call = Box::pin(waits(&probes.client, probes.probe("a")));
    while probes.probe.store.get("params:cancelled").is_none() {
        assert!(
            tokio::time::timeout(std::time::Duration::from_millis(1), &mut call).await.is_err()
        );
    }
    drop(call);

    assert_eq!(probes.log(), [("a", true)]);
}
