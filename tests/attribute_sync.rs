//! `#[distributed_lock]` on functions that are not async: what each option does, and that the
//! function stays what it was.

#![deny(warnings)]
#![allow(
    clippy::needless_arbitrary_self_type,
    clippy::unnecessary_wraps,
    clippy::must_use_candidate,
    reason = "people write that, too"
)]

use std::fmt::{Debug, Display};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use distlock::{
    BlockingClient, FencingToken, HeldLock, LockClient, LockError, LockErrorKind, LockKey,
    MemoryStore, distributed_lock, lock_key, lock_template,
};

/// A store, two clients of it, and what to take locks away with.
struct Shop {
    store: MemoryStore,
    locks: LockClient,
    other: BlockingClient,
}

impl Shop {
    fn new() -> Self {
        let store = MemoryStore::new();
        let client = || LockClient::builder().memory_store(store.clone()).build().unwrap();
        Self { locks: client(), other: client().blocking(), store }
    }

    /// Runs `body` with a default client.
    fn open<T>(body: impl FnOnce(&Self) -> T) -> T {
        let shop = Self::new();
        shop.locks.blocking().scope_default(|| body(&shop))
    }

    /// Runs `body` while another client holds `key`.
    fn contended<T>(&self, key: &str, body: impl FnOnce() -> T) -> T {
        let guard = self.other.lock(LockKey::literal(key.to_owned())).acquire().unwrap();
        let value = body();
        guard.release().unwrap();
        value
    }

    fn is_held(&self, key: &str) -> bool {
        self.store.get(key).is_some()
    }
}

fn kind<T: Debug>(outcome: Result<T, LockError>) -> LockErrorKind {
    outcome.unwrap_err().kind()
}

#[distributed_lock(key = "sync:probe:<id>", client = shop.locks)]
fn probe(shop: &Shop, id: u64) -> Result<bool, LockError> {
    Ok(shop.is_held(&format!("sync:probe:{id}")))
}

#[test]
fn the_key_is_held_while_the_body_runs_and_free_after() {
    let shop = Shop::new();

    assert!(probe(&shop, 7).unwrap());
    assert!(!shop.is_held("sync:probe:7"));
}

#[distributed_lock(key = "sync:refused", wait = "100ms")]
fn refused() -> Result<(), LockError> {
    unreachable!("the body must not run")
}

#[test]
fn a_refused_lock_is_the_error_after_wait() {
    Shop::open(|shop| {
        let started = Instant::now();

        let error = shop.contended("sync:refused", refused).unwrap_err();

        assert_eq!(error.kind(), LockErrorKind::Timeout);
        let waited = started.elapsed();
        assert!(waited >= Duration::from_millis(100) && waited < Duration::from_secs(2));
    });
}

#[distributed_lock(key = "sync:threads", wait = "20s", client = locks)]
fn one_at_a_time(locks: &LockClient, inside: &Mutex<u32>) -> Result<u32, LockError> {
    let _ = locks;
    let mut inside = inside.try_lock().expect("nobody else is in here");
    thread::yield_now();
    *inside += 1;
    Ok(*inside)
}

#[test]
fn threads_exclude_each_other() {
    let (shop, count) = (Shop::new(), Mutex::new(0));
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..50 {
                    one_at_a_time(&shop.locks, &count).unwrap();
                }
            });
        }
    });

    assert_eq!(count.into_inner().unwrap(), 200);
}

#[distributed_lock(key = "sync:fallback:<label>", wait = "0s", fallback = Ok(label + "?"))]
fn fallback(label: String) -> Result<String, LockError> {
    Ok(label + "!")
}

#[distributed_lock(key = "sync:value", wait = "0s", fallback = limit, guard = held)]
fn value(limit: u8) -> u8 {
    if held.is_lost() {
        return 0;
    }
    limit + 1
}

#[distributed_lock(key = "sync:with:<id>", wait = "0s", fallback_with = |error| {
    format!("{id}: {:?}", error.kind())
})]
fn fallback_with(id: u64) -> String {
    String::from("ran")
}

#[distributed_lock(key = "sync:unit", wait = "0s", fallback = ())]
fn unit(log: &mut Vec<&'static str>) {
    log.push("ran");
}

#[test]
fn fallbacks_answer_for_a_refused_lock() {
    Shop::open(|shop| {
        let call = || fallback("a".into());
        assert_eq!(shop.contended("sync:fallback:a", call).unwrap(), "a?");
        assert_eq!(call().unwrap(), "a!");
        assert_eq!(shop.contended("sync:value", || value(3)), 3);
        assert_eq!(value(3), 4);
        assert_eq!(shop.contended("sync:with:5", || fallback_with(5)), "5: Timeout");
        assert_eq!(fallback_with(5), "ran");
        let mut log = vec![];
        shop.contended("sync:unit", || unit(&mut log));
        assert!(log.is_empty());
        unit(&mut log);
        assert_eq!(log, ["ran"]);
    });
}

#[distributed_lock(key = "sync:when:<id>", when = id > 5, guard = held)]
fn sometimes(id: u64) -> Result<Option<HeldLock>, LockError> {
    Ok(held)
}

#[distributed_lock(keys = ["sync:account:<from>", lock_key!("sync:account:<to>")])]
fn transfer(shop: &Shop, from: u64, to: u64) -> Result<bool, LockError> {
    Ok([from, to].iter().all(|id| shop.is_held(&format!("sync:account:{id}"))))
}

lock_template!(STOCK = "sync:stock:<sku_id as u64>", wait = "0s", on_lost = "cancel");

#[distributed_lock(key = STOCK.key(&sku_id))]
fn declared(shop: &Shop, sku_id: u64) -> Result<bool, LockError> {
    Ok(shop.is_held(&format!("sync:stock:{sku_id}")))
}

fn named(name: Option<&str>) -> Result<&str, LockError> {
    name.ok_or_else(|| LockKey::literal("").check().unwrap_err())
}

#[distributed_lock(key = { let name = named(name)?; lock_key!("sync:leaves:<name>") })]
fn key_that_leaves(shop: &Shop, name: Option<&str>) -> Result<bool, LockError> {
    Ok(shop.is_held(&format!("sync:leaves:{}", name.unwrap_or_default())))
}

#[test]
fn keys_and_conditions_work() {
    Shop::open(|shop| {
        assert!(sometimes(5).unwrap().is_none());
        assert_eq!(sometimes(6).unwrap().unwrap().key(), "sync:when:6");
        assert!(transfer(shop, 1, 2).unwrap());
        assert!(transfer(shop, 1, 1).unwrap());
        assert!(declared(shop, 7).unwrap());
        assert_eq!(
            kind(shop.contended("sync:stock:7", || declared(shop, 7))),
            LockErrorKind::Timeout
        );
        assert!(key_that_leaves(shop, Some("x")).unwrap());
        assert_eq!(kind(key_that_leaves(shop, None)), LockErrorKind::InvalidKey);
    });
}

#[distributed_lock(key = "sync:open", client = locks, wait = "1s", on_unavailable = "run_unlocked",
    guard = held)]
fn fails_open(locks: &LockClient) -> Result<bool, LockError> {
    let _ = locks;
    Ok(held.is_some())
}

#[distributed_lock(key = "sync:closed", client = locks, wait = "1s", fallback = Ok(name + "?"))]
fn fails_closed(locks: &LockClient, name: String) -> Result<String, LockError> {
    unreachable!("{locks:?} has no store for {name}")
}

#[test]
fn without_a_store_a_body_runs_only_where_its_site_says_so() {
    // Nobody listens on port 1.
    let nowhere = LockClient::builder().url("redis://127.0.0.1:1").build().unwrap();

    assert!(!fails_open(&nowhere).unwrap());
    assert_eq!(fails_closed(&nowhere, "a".into()).unwrap(), "a?");
    assert!(fails_open(&Shop::new().locks).unwrap());
}

#[tokio::test]
async fn a_client_that_is_shut_down_is_answered_for_like_any_refusal() {
    let shop = Shop::new();
    shop.locks.shutdown(Duration::from_secs(1)).await.unwrap();

    assert_eq!(kind(probe(&shop, 1)), LockErrorKind::ShutDown);
    assert_eq!(fails_closed(&shop.locks, "a".into()).unwrap(), "a?");
}

/// Takes the lock away and waits until that is known.
fn lose(shop: &Shop, key: &str, held: &HeldLock) -> bool {
    let deadline = Instant::now() + Duration::from_secs(10);
    shop.store.remove(key);
    while !held.is_lost() && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(10));
    }
    held.is_lost()
}

#[distributed_lock(key = "sync:lost", lease = "1500ms", guard = held)]
fn loses(shop: &Shop) -> Result<bool, LockError> {
    Ok(lose(shop, "sync:lost", &held))
}

#[distributed_lock(
    key = "sync:strict",
    lease = "1500ms",
    guard = held,
    strict = true,
    on_lost = "signal"
)]
fn loses_strictly(shop: &Shop) -> Result<bool, LockError> {
    Ok(lose(shop, "sync:strict", &held))
}

#[distributed_lock(
    key = "sync:capped",
    lease = "1s",
    max_hold = "1100ms",
    guard = held,
    fallback = false
)]
fn outlasts_its_cap() -> bool {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !held.is_lost() && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(10));
    }
    held.is_lost()
}

#[test]
fn after_a_loss_the_value_is_returned_unless_strict() {
    Shop::open(|shop| {
        assert!(loses(shop).unwrap());
        assert_eq!(kind(loses_strictly(shop)), LockErrorKind::Lost { completed: true });
        assert!(outlasts_its_cap());
    });
}

#[distributed_lock(key = "sync:fenced", fencing = true, guard = held)]
fn fenced() -> Result<FencingToken, LockError> {
    held.blocking_fencing_token()
}

#[test]
fn tokens_grow_from_call_to_call() {
    Shop::open(|_| {
        let first = fenced().unwrap();
        assert!(fenced().unwrap() > first);
    });
}

#[distributed_lock(key = "sync:recursion", wait = "0s", guard = held)]
fn recursion(depth: u32) -> Result<(u32, String), LockError> {
    if depth == 0 { Ok((0, held.owner().to_owned())) } else { recursion(depth - 1) }
}

#[distributed_lock(key = "sync:once", reentrant = false)]
fn not_reentrant(depth: u32) -> Result<u32, LockError> {
    if depth == 0 { Ok(0) } else { not_reentrant(depth - 1) }
}

#[distributed_lock(key = "sync:mixed:<id>", wait = "0s")]
fn inner(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

#[distributed_lock(key = "sync:mixed:<id>", wait = "0s")]
async fn outer(id: u64) -> Result<u64, LockError> {
    tokio::task::yield_now().await;
    inner(id)
}

#[distributed_lock(key = "sync:mixed:<id>", wait = "0s")]
fn around_a_runtime(id: u64) -> Result<u64, LockError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(outer(id))
}

#[test]
fn nested_calls_enter() {
    Shop::open(|shop| {
        assert_eq!(recursion(5).unwrap().0, 0);
        assert_eq!(not_reentrant(0).unwrap(), 0);
        assert_eq!(kind(not_reentrant(1)), LockErrorKind::Reentrant);
        assert_eq!(around_a_runtime(3).unwrap(), 3);
        assert!(!shop.is_held("sync:mixed:3"));
    });
}

#[tokio::test]
async fn async_code_enters_its_own_lock_through_a_sync_call() {
    let shop = Shop::new();

    assert_eq!(shop.locks.scope_default(outer(7)).await.unwrap(), 7);
}

#[distributed_lock(key = "sync:sibling", wait = "200ms", client = locks)]
fn sibling(locks: &LockClient) -> Result<(), LockError> {
    let _ = locks;
    Ok(())
}

#[tokio::test]
async fn a_sync_call_beside_a_sibling_that_waits_for_it_ends_in_time() {
    let locks = LockClient::in_memory();
    let key = || LockKey::literal("sync:sibling");
    let outcome = locks
        .lock(key())
        .run(|_| async {
            // Inside, and not polled on before this thread is free again.
            let mut inside = Box::pin(locks.lock(key()).run(|_| std::future::pending::<()>()));
            tokio::select! {
                biased;
                _ = &mut inside => unreachable!(),
                () = tokio::task::yield_now() => {}
            }
            let outcome = sibling(&locks);
            drop(inside);
            outcome
        })
        .await
        .unwrap();

    assert_eq!(kind(outcome), LockErrorKind::Timeout);
}

struct Node {
    id: u32,
    children: Vec<String>,
}

impl Node {
    const KIND: &'static str = "node";

    #[distributed_lock(key = "sync:ref:<self.id>")]
    fn by_ref(&self) -> Result<Option<&str>, LockError> {
        Ok(self.children.first().map(String::as_str))
    }

    #[distributed_lock(key = "sync:mut:<self.id>")]
    fn by_mut(&mut self) -> Result<&mut String, LockError> {
        self.id += 1;
        Ok(&mut self.children[0])
    }

    #[distributed_lock(key = "sync:value:<self.id>")]
    fn by_value(mut self) -> Result<Self, LockError> {
        self.id += 1;
        Ok(self)
    }

    #[distributed_lock(key = "sync:arc:<self.id>")]
    fn by_arc(self: Arc<Self>) -> Result<u32, LockError> {
        Ok(self.id)
    }

    #[distributed_lock(key = "sync:box:<self.id>")]
    fn by_box(self: Box<Self>) -> Result<u32, LockError> {
        Ok(self.id)
    }

    #[distributed_lock(key = "sync:rc:<self.id>")]
    fn by_rc(self: Rc<Self>) -> Result<Rc<Self>, LockError> {
        Ok(self)
    }

    #[distributed_lock(key = "sync:pin:<self.id>")]
    fn by_pin(self: Pin<&mut Self>) -> Result<u32, LockError> {
        Ok(self.id)
    }

    #[distributed_lock(key = "sync:typed:<self.id>")]
    fn by_typed_ref(self: &Self) -> Result<u32, LockError> {
        Ok(self.id)
    }

    #[distributed_lock(key = "sync:<Self::KIND>:<id>")]
    fn associated(id: u32) -> Result<Self, LockError> {
        Ok(Self { id, children: vec![] })
    }
}

#[test]
fn every_receiver_works() {
    Shop::open(|_| {
        let mut node = Node { id: 1, children: vec!["a".into()] };
        assert_eq!(node.by_ref().unwrap(), Some("a"));
        node.by_mut().unwrap().push('!');
        assert_eq!(node.by_typed_ref().unwrap(), 2);
        assert_eq!(Pin::new(&mut node).by_pin().unwrap(), 2);
        let node = node.by_value().unwrap();
        assert_eq!((node.id, &*node.children[0]), (3, "a!"));
        assert_eq!(Arc::new(node).by_arc().unwrap(), 3);
        assert_eq!(Box::new(Node::associated(4).unwrap()).by_box().unwrap(), 4);
        assert_eq!(Rc::new(Node::associated(5).unwrap()).by_rc().unwrap().id, 5);
    });
}

trait Store {
    const NAME: &'static str;

    fn load(&self, id: u64) -> Result<String, LockError>;

    #[distributed_lock(key = "sync:<Self::NAME>:<id>")]
    fn store(&self, id: u64) -> Result<String, LockError> {
        self.load(id + 1)
    }
}

impl Store for Node {
    const NAME: &'static str = "trait";

    #[distributed_lock(key = "sync:load:<self.id>:<id>")]
    fn load(&self, id: u64) -> Result<String, LockError> {
        Ok(format!("{} {id}", self.id))
    }
}

#[distributed_lock(key = "sync:generic:<id>:<N>")]
fn generic<'a, T, F, const N: usize>(
    id: &'a T,
    with: F,
    items: [u8; N],
) -> Result<(&'a T, usize), LockError>
where
    T: ?Sized + Display,
    F: for<'x> Fn(&'x [u8]) -> &'x u8,
{
    with(&items);
    Ok((id, N))
}

#[distributed_lock(key = "sync:impl:<id>")]
fn impl_argument(id: impl Display + Clone) -> Result<impl Iterator<Item = String>, LockError> {
    Ok(std::iter::repeat_n(id.to_string(), 2))
}

#[distributed_lock(key = "sync:impl_return", fallback_with = |_error| 0)]
fn impl_return(number: u32) -> impl Display + Debug {
    number
}

#[distributed_lock(key = "sync:elided")]
fn elided(node: &mut Node, _: &str) -> Result<Option<&'static str>, LockError> {
    Ok(node.children.pop().map(|_| "popped"))
}

#[distributed_lock(key = "sync:iterator:<node.id>")]
fn iterator<'a>(
    node: &'a Node,
    _: &str,
) -> Result<impl Iterator<Item = &'a str> + use<'a>, LockError> {
    Ok(node.children.iter().map(String::as_str))
}

#[distributed_lock(key = "sync:dyn:<number>")]
fn coerces(number: u8) -> Result<Box<dyn Fn() -> u8 + Send>, LockError> {
    Ok(Box::new(move || number))
}

/// A future inside of something else is nobody's mistake.
type Task = Box<dyn Fn(u8) -> Pin<Box<dyn Future<Output = u8>>>>;

#[distributed_lock(key = "sync:task", fallback_with = |_| None)]
fn makes_tasks() -> Option<Task> {
    Some(Box::new(|number| Box::pin(async move { number })))
}

#[test]
fn generics_borrows_and_opaque_types_work() {
    Shop::open(|_| {
        let mut node = Node { id: 1, children: vec!["a".into(), "b".into()] };
        assert_eq!(node.store(2).unwrap(), "1 3");
        assert_eq!(generic("x", |items| &items[0], [0; 4]).unwrap(), ("x", 4));
        assert_eq!(impl_argument(5).unwrap().collect::<String>(), "55");
        assert_eq!(impl_return(3).to_string(), "3");
        assert_eq!(iterator(&node, "").unwrap().count(), 2);
        assert_eq!(elided(&mut node, "").unwrap(), Some("popped"));
        assert_eq!(coerces(3).unwrap()(), 3);
        assert!(makes_tasks().is_some());
    });
}

#[distributed_lock(key = "sync:never", fallback_with = |error| panic!("{error}"))]
fn never() -> ! {
    panic!("on purpose")
}

#[test]
fn a_panic_releases() {
    let shop = Shop::new();
    let locks = shop.locks.blocking();

    thread::spawn(move || locks.scope_default(|| never())).join().unwrap_err();

    let deadline = Instant::now() + Duration::from_secs(5);
    while shop.is_held("sync:never") {
        assert!(Instant::now() < deadline, "not released");
        thread::yield_now();
    }
}

#[distributed_lock(key = "sync:flow")]
fn control_flow(way: u8) -> Result<u8, LockError> {
    let found = 'search: {
        for number in 0..10 {
            match number {
                3 if way == 0 => return Ok(number),
                4 if way == 1 => break 'search number,
                6 if way == 3 => LockKey::literal("").check()?,
                _ => {}
            }
        }
        9
    };
    let add = |by| {
        if by == 0 {
            return found;
        }
        found + by
    };
    Ok(add(0))
}

#[test]
fn every_way_out_releases_and_keeps_its_value() {
    Shop::open(|shop| {
        for (way, value) in [(0, 3), (1, 4), (2, 9)] {
            assert_eq!(control_flow(way).unwrap(), value);
            assert!(!shop.is_held("sync:flow"));
        }
        assert_eq!(kind(control_flow(3)), LockErrorKind::InvalidKey);
        assert!(!shop.is_held("sync:flow"));
    });
}

/// Documented.
#[distributed_lock(key = "sync:attributes:<id>")]
#[must_use = "of use"]
#[inline]
#[cfg(not(any()))]
pub(crate) fn keeps_attributes(
    #[cfg(any())] missing: Missing,
    #[allow(unused_variables)] unused: String,
    #[cfg(not(any()))] id: u64,
) -> Result<u64, LockError> {
    #![allow(unused_mut)]
    let mut id = id;
    Ok(id)
}

#[distributed_lock(key = "sync:instrumented:<id>")]
#[tracing::instrument(skip(shop))]
fn above_instrument(shop: &Shop, id: u64) -> Result<bool, LockError> {
    Ok(shop.is_held(&format!("sync:instrumented:{id}")))
}

#[tracing::instrument(skip(shop))]
#[distributed_lock(key = "sync:instrumented:<id>")]
fn below_instrument(shop: &Shop, id: u64) -> Result<bool, LockError> {
    Ok(shop.is_held(&format!("sync:instrumented:{id}")))
}

#[distributed_lock(key = "sync:upper:<id>:<name>")]
#[distributed_lock(key = "sync:lower:<id>", when = *id > 0)]
fn stacked(shop: &Shop, Request { id, name, .. }: Request, _: ()) -> Result<bool, LockError> {
    Ok(shop.is_held(&format!("sync:upper:{id}:{name}"))
        && shop.is_held(&format!("sync:lower:{id}")))
}

struct Request {
    id: u64,
    name: String,
    #[allow(dead_code)]
    note: String,
}

macro_rules! locked {
    ($name:ident, $key:literal, $param:ident) => {
        #[distributed_lock(key = $key, wait = "1s")]
        fn $name($param: u64) -> Result<u64, LockError> {
            Ok($param)
        }
    };
}

locked!(from_macro, "sync:macro:<id>", id);

#[test]
fn attributes_stacking_and_macros_work() {
    Shop::open(|shop| {
        assert_eq!(keeps_attributes(String::new(), 5).unwrap(), 5);
        assert!(above_instrument(shop, 1).unwrap());
        assert!(below_instrument(shop, 1).unwrap());
        let request = Request { id: 1, name: "x".into(), note: "y".into() };
        assert!(stacked(shop, request, ()).unwrap());
        assert_eq!(from_macro(1).unwrap(), 1);
    });
}

#[test]
#[distributed_lock(key = "sync:test", client = LockClient::in_memory(), fallback_with = |error| panic!("{error}"))]
fn a_test_may_be_locked() {}

/// Notes, when it is dropped, its name and whether the lock is held.
struct Probe<'a>(&'static str, &'a Shop, &'a Mutex<Vec<(&'static str, bool)>>);

impl Drop for Probe<'_> {
    fn drop(&mut self) {
        self.2.lock().unwrap().push((self.0, self.1.is_held("sync:drop")));
    }
}

#[allow(unused_variables)]
#[distributed_lock(key = "sync:drop", client = shop.locks)]
fn owns_much<'a>(
    shop: &'a Shop,
    unused: Probe<'a>,
    _underscored: Probe<'a>,
    _: Probe<'a>,
    (half, _): (Probe<'a>, Probe<'a>),
) -> Result<(), LockError> {
    Ok(())
}

#[test]
fn all_arguments_are_dropped_in_order_and_before_the_lock_is_free() {
    let (shop, log) = (Shop::new(), Mutex::default());
    let probe = |name| Probe(name, &shop, &log);

    owns_much(
        &shop,
        probe("unused"),
        probe("underscored"),
        probe("wild"),
        (probe("half"), probe("other half")),
    )
    .unwrap();

    let log = log.into_inner().unwrap();
    let order: Vec<_> = log.iter().map(|(name, _)| *name).collect();
    assert_eq!(order, ["half", "other half", "wild", "underscored", "unused"]);
    assert!(log.iter().all(|(_, held)| *held), "{log:?}");
}
