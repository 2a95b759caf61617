//! `#[distributed_lock]` on the functions that people write: what compiles without it compiles with
//! it, and means the same.

#![deny(warnings)]
#![allow(
    clippy::double_must_use,
    clippy::mixed_attributes_style,
    clippy::needless_arbitrary_self_type,
    reason = "people write that, too"
)]

use std::fmt::{Debug, Display};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;

use distlock::{LockClient, LockError, LockKey, distributed_lock};

async fn held(client: &LockClient, key: &str) -> bool {
    client.holder(LockKey::literal(key.to_owned())).await.unwrap().is_some()
}

/// Runs `test` with a default client of its own.
async fn with_default<T>(test: impl AsyncFnOnce(LockClient) -> T) -> T {
    let client = LockClient::in_memory();
    client.scope_default(test(client.clone())).await
}

struct Shop {
    id: u32,
}

struct Tuple(u8);

impl Shop {
    const KIND: &'static str = "shop";

    #[distributed_lock(key = "shape:ref:<self.id>")]
    async fn by_ref(&self) -> Result<u32, LockError> {
        Ok(self.id)
    }

    #[distributed_lock(key = "shape:mut:<self.id>")]
    async fn by_mut(&mut self) -> Result<u32, LockError> {
        self.id += 1;
        Ok(self.id)
    }

    #[distributed_lock(key = "shape:value:<self.id>")]
    async fn by_value(self) -> Result<u32, LockError> {
        Ok(self.id)
    }

    #[distributed_lock(key = "shape:mut_value:<self.id>")]
    async fn by_mut_value(mut self) -> Result<Self, LockError> {
        self.id += 1;
        Ok(self)
    }

    #[distributed_lock(key = "shape:arc:<self.id>")]
    async fn by_arc(self: Arc<Self>) -> Result<u32, LockError> {
        Ok(self.id)
    }

    #[distributed_lock(key = "shape:boxed:<self.id>")]
    async fn by_box(self: Box<Self>) -> Result<u32, LockError> {
        Ok(self.id)
    }

    #[distributed_lock(key = "shape:typed:<self.id>")]
    async fn by_typed_ref(self: &Self) -> Result<u32, LockError> {
        Ok(self.id)
    }

    #[distributed_lock(key = "shape:pin:<self.id>")]
    async fn by_pin(self: Pin<&mut Self>) -> Result<u32, LockError> {
        Ok(self.id)
    }

    #[distributed_lock(key = "shape:<Self::KIND>:<id>")]
    async fn associated(id: u32) -> Result<Self, LockError> {
        Ok(Self { id })
    }
}

impl Tuple {
    #[distributed_lock(key = "shape:tuple:<self.0>")]
    async fn field(&self) -> Result<u8, LockError> {
        Ok(self.0)
    }
}

#[tokio::test]
async fn every_receiver_works() {
    with_default(async |_| {
        let mut shop = Shop { id: 1 };
        assert_eq!(shop.by_ref().await.unwrap(), 1);
        assert_eq!(shop.by_mut().await.unwrap(), 2);
        assert_eq!(shop.by_typed_ref().await.unwrap(), 2);
        assert_eq!(Pin::new(&mut shop).by_pin().await.unwrap(), 2);
        assert_eq!(shop.by_mut_value().await.unwrap().id, 3);
        assert_eq!(Shop { id: 4 }.by_value().await.unwrap(), 4);
        assert_eq!(Arc::new(Shop { id: 5 }).by_arc().await.unwrap(), 5);
        assert_eq!(Box::new(Shop { id: 6 }).by_box().await.unwrap(), 6);
        assert_eq!(Shop::associated(7).await.unwrap().id, 7);
        assert_eq!(Tuple(8).field().await.unwrap(), 8);
    })
    .await;
}

struct Generic<'a, T, const N: usize> {
    items: &'a [T; N],
}

impl<'a, T: Display + Sync, const N: usize> Generic<'a, T, N>
where
    T: Debug,
{
    #[distributed_lock(key = "shape:generic:<self.items[0]>:<key.as_ref()>")]
    async fn first<K, F>(&self, key: K, with: F) -> Result<&'a T, LockError>
    where
        K: AsRef<str> + Send,
        F: for<'x> Fn(&'x T) -> &'x T,
    {
        let _ = key;
        with(&self.items[0]);
        Ok(&self.items[N - 1])
    }
}

#[distributed_lock(key = "shape:free:<id>")]
async fn generic<'a, T: ?Sized + Display, const N: usize>(
    id: &'a T,
    _: [u8; N],
) -> Result<(&'a T, usize), LockError> {
    Ok((id, N))
}

#[tokio::test]
async fn generics_lifetimes_and_where_clauses_are_kept() {
    with_default(async |_| {
        let items = [3, 4];
        let generic_shop = Generic { items: &items };
        assert_eq!(generic_shop.first("k", |x| x).await.unwrap(), &4);
        assert_eq!(generic("x", [0; 4]).await.unwrap(), ("x", 4));
    })
    .await;
}

#[distributed_lock(key = "shape:impl:<id>")]
async fn impl_argument(id: impl Display + Clone) -> Result<String, LockError> {
    Ok(id.to_string())
}

#[distributed_lock(key = "shape:impl_return")]
async fn impl_in_result(up_to: u32) -> Result<impl Iterator<Item = u32>, LockError> {
    Ok((0..up_to).filter(|number| number % 2 == 0))
}

#[distributed_lock(key = "shape:impl_only", fallback_with = |_error| 0)]
async fn impl_return(number: u32) -> impl Display + Debug {
    number
}

#[tokio::test]
async fn impl_trait_works_in_arguments_and_results() {
    with_default(async |_| {
        assert_eq!(impl_argument(5).await.unwrap(), "5");
        assert_eq!(impl_in_result(5).await.unwrap().collect::<Vec<_>>(), [0, 2, 4]);
        assert_eq!(impl_return(3).await.to_string(), "3");
    })
    .await;
}

struct Node {
    children: Vec<String>,
}

struct Ref<'a>(&'a str);

#[distributed_lock(key = "shape:borrow:<id>")]
async fn borrows<'a>(node: &'a Node, id: usize) -> Result<Option<Ref<'a>>, LockError> {
    Ok(node.children.get(id).map(|child| Ref(child)))
}

#[distributed_lock(key = "shape:elided")]
async fn elided(node: &mut Node) -> Result<Option<&mut String>, LockError> {
    Ok(node.children.first_mut())
}

#[tokio::test]
async fn results_borrow_from_arguments() {
    with_default(async |_| {
        let mut node = Node { children: vec!["a".into(), "b".into()] };
        assert_eq!(borrows(&node, 1).await.unwrap().unwrap().0, "b");
        elided(&mut node).await.unwrap().unwrap().push('!');
        assert_eq!(node.children[0], "a!");
    })
    .await;
}

#[distributed_lock(key = "shape:dyn")]
async fn boxed_iterator(node: &Node) -> Result<Box<dyn Iterator<Item = &str> + '_>, LockError> {
    Ok(Box::new(node.children.iter().map(String::as_str)))
}

#[distributed_lock(key = "shape:impl_borrow")]
async fn impl_iterator<'a>(
    node: &'a Node,
    _: &str,
) -> Result<impl Iterator<Item = &'a str> + use<'a>, LockError> {
    Ok(node.children.iter().map(String::as_str))
}

trait Named {
    type Error;
    type Name<'a>
    where
        Self: 'a;

    async fn named(&self) -> Result<Self::Name<'_>, Self::Error>;
}

impl Named for Node {
    type Error = LockError;
    type Name<'a> = &'a str;

    #[distributed_lock(key = "shape:projection")]
    async fn named(&self) -> Result<Self::Name<'_>, Self::Error> {
        Ok(&self.children[0])
    }
}

#[tokio::test]
async fn opaque_and_projected_results_borrow_as_well() {
    with_default(async |_| {
        let node = Node { children: vec!["a".into(), "b".into()] };
        assert_eq!(boxed_iterator(&node).await.unwrap().count(), 2);
        assert_eq!(impl_iterator(&node, "").await.unwrap().count(), 2);
        assert_eq!(node.named().await.unwrap(), "a");
    })
    .await;
}

#[distributed_lock(key = "shape:never", fallback_with = |error| panic!("{error}"))]
async fn never() -> ! {
    panic!("on purpose")
}

#[tokio::test]
async fn a_function_that_never_returns_releases_when_it_panics() {
    with_default(async |client| {
        let default = client.clone();
        let diverges =
            tokio::spawn(async move { default.scope_default(async { never().await }).await });
        assert!(diverges.await.unwrap_err().is_panic());
        assert!(!held(&client, "shape:never").await);
    })
    .await;
}

type Callback = Box<dyn Fn() -> u8 + Send + Sync>;

#[distributed_lock(key = "shape:coercion")]
async fn coerces(number: u8) -> Result<Callback, LockError> {
    Ok(Box::new(move || number))
}

#[distributed_lock(key = "shape:none")]
async fn infers(flag: bool) -> Result<Option<u8>, LockError> {
    if flag {
        return Ok(None);
    }
    Ok(Some(1))
}

#[distributed_lock(key = "shape:unit", fallback = (), on_lost = "signal")]
async fn unit(flag: bool) {
    if flag {
        return;
    }
    assert!(!flag);
}

#[tokio::test]
async fn inference_and_coercion_reach_into_the_body() {
    with_default(async |_| {
        assert_eq!(coerces(3).await.unwrap()(), 3);
        assert_eq!(infers(true).await.unwrap(), None);
        assert_eq!(infers(false).await.unwrap(), Some(1));
        unit(true).await;
        unit(false).await;
    })
    .await;
}

#[distributed_lock(key = "shape:flow")]
async fn control_flow(way: u8) -> Result<u8, LockError> {
    let found = 'search: {
        for number in 0..10 {
            match number {
                3 if way == 0 => return Ok(number),
                4 if way == 1 => break 'search number,
                5 if way == 2 => {
                    let nested = async {
                        if number == 5 {
                            return 50;
                        }
                        0
                    };
                    return Ok(nested.await);
                }
                6 if way == 3 => Err(LockKey::literal("").check().unwrap_err())?,
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

#[tokio::test]
async fn every_way_out_releases_and_keeps_its_value() {
    with_default(async |client| {
        for (way, value) in [(0, 3), (1, 4), (2, 50), (4, 9)] {
            assert_eq!(control_flow(way).await.unwrap(), value);
            assert!(!held(&client, "shape:flow").await);
        }
        assert!(control_flow(3).await.is_err());
        assert!(!held(&client, "shape:flow").await);
    })
    .await;
}

trait Store {
    const NAME: &'static str;

    async fn load(&self, id: u64) -> Result<String, LockError>;

    #[distributed_lock(key = "shape:<Self::NAME>:<id>")]
    async fn store(&self, id: u64) -> Result<String, LockError> {
        self.load(id + 1).await
    }
}

impl Store for Shop {
    const NAME: &'static str = "trait";

    #[distributed_lock(key = "shape:<Self::NAME>:<self.id>:<id>")]
    async fn load(&self, id: u64) -> Result<String, LockError> {
        Ok(format!("{} {id}", self.id))
    }
}

#[tokio::test]
async fn traits_and_their_default_methods_work() {
    with_default(async |_| {
        assert_eq!(Shop { id: 1 }.store(2).await.unwrap(), "1 3");
    })
    .await;
}

/// Documented.
#[distributed_lock(key = "shape:attributes:<id>")]
#[must_use]
#[allow(clippy::unused_async)]
#[cfg(not(any()))]
pub(crate) async fn keeps_attributes(
    #[cfg(any())] missing: Missing,
    #[allow(unused_variables)] unused: String,
    #[cfg(not(any()))] id: u64,
) -> Result<u64, LockError> {
    #![allow(unused_mut)]
    //! Documented inside.
    let mut id = id;
    Ok(id)
}

#[distributed_lock(key = "shape:recursion:<depth>")]
async fn recursion(depth: u32) -> Result<u32, LockError> {
    if depth == 0 {
        return Ok(0);
    }
    Ok(Box::pin(recursion(depth - 1)).await? + 1)
}

#[distributed_lock(key = "shape:same_key")]
async fn same_key(depth: u32) -> Result<u32, LockError> {
    if depth == 0 { Ok(0) } else { Ok(Box::pin(same_key(depth - 1)).await? + 1) }
}

#[distributed_lock(key = "shape:outer:<id>")]
#[distributed_lock(key = "shape:inner:<id>:<pair.0>")]
async fn stacked(client: &LockClient, id: u64, pair: (u8, u8)) -> Result<bool, LockError> {
    Ok(held(client, &format!("shape:outer:{id}")).await
        && held(client, &format!("shape:inner:{id}:{}", pair.0)).await)
}

type Log = std::sync::Mutex<Vec<&'static str>>;

fn note<'a>(log: &Log, what: &'static str, client: &'a LockClient) -> &'a LockClient {
    log.lock().unwrap().push(what);
    client
}

#[distributed_lock(key = "shape:order:a", client = note(log, "upper", client))]
#[distributed_lock(key = "shape:order:b", client = note(log, "lower", client))]
async fn stacked_order(client: &LockClient, log: &Log) -> Result<(), LockError> {
    note(log, "body", client);
    Ok(())
}

#[tokio::test]
async fn of_two_locks_the_lower_one_is_taken_first() {
    let log = Log::default();

    stacked_order(&LockClient::in_memory(), &log).await.unwrap();

    assert_eq!(*log.lock().unwrap(), ["lower", "upper", "body"]);
}

struct Request {
    id: u64,
    name: String,
    #[allow(dead_code)]
    note: String,
}

#[distributed_lock(key = "shape:opened:outer:<id>:<name>", client = client)]
#[distributed_lock(key = "shape:opened:middle:<name>", client = client)]
#[distributed_lock(key = "shape:opened:inner:<id>", client = client, when = *id > 0)]
async fn stacked_on_a_pattern(
    client: &LockClient,
    Request { id, name, .. }: Request,
    _: (),
) -> Result<bool, LockError> {
    let keys = [
        format!("shape:opened:outer:{id}:{name}"),
        format!("shape:opened:middle:{name}"),
        format!("shape:opened:inner:{id}"),
    ];
    for key in keys {
        if !held(client, &key).await {
            return Ok(false);
        }
    }
    Ok(true)
}

#[distributed_lock(key = "shape:const:<N>:<id>")]
async fn const_in_key<const N: usize>(id: u64) -> Result<[u64; N], LockError> {
    Ok([id; N])
}

macro_rules! locked {
    ($name:ident, $key:literal, $param:ident, $value:expr) => {
        #[distributed_lock(key = $key, wait = "1s")]
        async fn $name($param: u64) -> Result<u64, LockError> {
            Ok($value)
        }
    };
    ($name:ident) => {
        #[distributed_lock(key = "shape:macro:<id>")]
        async fn $name(id: u64) -> Result<u64, LockError> {
            let id = id + 1;
            Ok(id)
        }
    };
    ($name:ident with $param:ident) => {
        #[distributed_lock(key = "shape:macro:<id>")]
        async fn $name($param: u64) -> Result<u64, LockError> {
            Ok($param)
        }
    };
}

locked!(from_macro, "shape:macro:<id>", id, id + 1);
locked!(inside_macro);
locked!(mixed_macro with id);

#[tokio::test]
async fn attributes_recursion_stacking_and_macros_work() {
    with_default(async |client| {
        assert_eq!(keeps_attributes(String::new(), 5).await.unwrap(), 5);
        assert_eq!(recursion(4).await.unwrap(), 4);
        assert_eq!(same_key(4).await.unwrap(), 4);
        assert!(stacked(&client, 1, (2, 3)).await.unwrap());
        let request = Request { id: 1, name: "x".into(), note: "y".into() };
        assert!(stacked_on_a_pattern(&client, request, ()).await.unwrap());
        assert_eq!(const_in_key::<2>(3).await.unwrap(), [3, 3]);
        assert_eq!(from_macro(1).await.unwrap(), 2);
        assert_eq!(inside_macro(1).await.unwrap(), 2);
        assert_eq!(mixed_macro(1).await.unwrap(), 1);
    })
    .await;
}

#[tokio::test]
async fn a_nested_function_can_be_locked() {
    #[distributed_lock(key = "shape:nested:<id>")]
    async fn nested(id: u8) -> Result<u8, LockError> {
        Ok(id)
    }
    assert_eq!(with_default(async |_| nested(1).await.unwrap()).await, 1);
}

#[distributed_lock(key = "shape:send:<id>")]
async fn is_send(id: String) -> Result<String, LockError> {
    tokio::task::yield_now().await;
    Ok(id)
}

#[distributed_lock(key = "shape:not_send:<id>")]
async fn is_not_send(id: Rc<str>) -> Result<Rc<str>, LockError> {
    tokio::task::yield_now().await;
    Ok(id)
}

#[tokio::test]
async fn send_is_neither_forced_nor_lost() {
    fn send<T: Send>(value: T) -> T {
        value
    }
    with_default(async |_| {
        assert_eq!(send(is_send("x".into())).await.unwrap(), "x");
        assert_eq!(&*is_not_send("x".into()).await.unwrap(), "x");
    })
    .await;
}

#[distributed_lock(key = "shape:test", client = LockClient::in_memory())]
#[tokio::test]
async fn the_attribute_goes_above_tokio_test() -> Result<(), LockError> {
    Ok(())
}

#[tracing::instrument(skip(pair), fields(extra = pair.0))]
#[distributed_lock(key = "shape:instrument:<id>:<pair.0>")]
async fn below_instrument(client: &LockClient, id: u64, pair: (u8, u8)) -> Result<bool, LockError> {
    Ok(held(client, &format!("shape:instrument:{id}:{}", pair.0)).await)
}

#[distributed_lock(key = "shape:instrument:<id>:<pair.0>")]
#[tracing::instrument(skip(pair), fields(extra = pair.0))]
async fn above_instrument(client: &LockClient, id: u64, pair: (u8, u8)) -> Result<bool, LockError> {
    Ok(held(client, &format!("shape:instrument:{id}:{}", pair.0)).await)
}

#[tokio::test]
async fn instrument_works_above_and_below() {
    with_default(async |client| {
        assert!(below_instrument(&client, 1, (2, 3)).await.unwrap());
        assert!(above_instrument(&client, 1, (2, 3)).await.unwrap());
    })
    .await;
}
