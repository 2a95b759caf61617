//! `#[distributed_lock]` under `#[async_trait]`: the lock is held while the body runs, not while its
//! future is made.

#![deny(warnings)]

use std::rc::Rc;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use distlock::{LockClient, LockError, LockKey, distributed_lock, lock_key};

async fn held(client: &LockClient, key: &str) -> bool {
    client.holder(LockKey::literal(key.to_owned())).await.unwrap().is_some()
}

async fn with_default<T>(test: impl AsyncFnOnce(LockClient) -> T) -> T {
    let client = LockClient::in_memory();
    client.scope_default(test(client.clone())).await
}

struct Order {
    sku: u64,
    name: String,
}

#[async_trait]
trait Shop: Send + Sync {
    async fn by_ref(&self, client: &LockClient, id: u64) -> Result<bool, LockError>;
    async fn by_mut(&mut self, client: &LockClient) -> Result<bool, LockError>;
    async fn by_value(self, client: LockClient) -> Result<bool, LockError>
    where
        Self: Sized;
    async fn by_arc(self: Arc<Self>, client: &LockClient) -> Result<bool, LockError>;
    async fn patterns(
        &self,
        client: &LockClient,
        Order { sku, name: _ }: Order,
        mut count: u32,
        _: (),
    ) -> Result<u32, LockError>;
    async fn unit(&self, log: &Mutex<Vec<bool>>, client: &LockClient);
    async fn generic<T: AsRef<str> + Send>(&self, name: T) -> Result<T, LockError>
    where
        Self: Sized;
    async fn associated(id: u64) -> Result<u64, LockError>
    where
        Self: Sized;

    #[distributed_lock(key = "boxed:default:<self.tenant()>:<id>")]
    async fn default_method(&self, client: &LockClient, id: u64) -> Result<bool, LockError> {
        Ok(held(client, &format!("boxed:default:{}:{id}", self.tenant())).await)
    }

    fn tenant(&self) -> String;
}

#[derive(Clone)]
struct North {
    id: u64,
}

#[async_trait]
impl Shop for North {
    #[distributed_lock(key = "boxed:ref:<self.id>:<id>")]
    async fn by_ref(&self, client: &LockClient, id: u64) -> Result<bool, LockError> {
        tokio::task::yield_now().await;
        if id == 0 {
            return Ok(false);
        }
        Ok(held(client, &format!("boxed:ref:{}:{id}", self.id)).await)
    }

    #[distributed_lock(key = "boxed:mut:<self.id>")]
    async fn by_mut(&mut self, client: &LockClient) -> Result<bool, LockError> {
        self.id += 1;
        Ok(held(client, &format!("boxed:mut:{}", self.id - 1)).await)
    }

    #[distributed_lock(key = "boxed:value:<self.id>")]
    #[allow(unused_variables)]
    async fn by_value(self, client: LockClient) -> Result<bool, LockError> {
        let unused = 1;
        Ok(held(&client, &format!("boxed:value:{}", self.id)).await)
    }

    #[distributed_lock(key = "boxed:arc:<self.id>", guard = lock)]
    async fn by_arc(self: Arc<Self>, client: &LockClient) -> Result<bool, LockError> {
        Ok(held(client, lock.key()).await)
    }

    #[distributed_lock(key = "boxed:patterns:<sku>:<count>")]
    async fn patterns(
        &self,
        client: &LockClient,
        Order { sku, name: _ }: Order,
        mut count: u32,
        _: (),
    ) -> Result<u32, LockError> {
        assert!(held(client, &format!("boxed:patterns:{sku}:{count}")).await);
        count += 1;
        Ok(count)
    }

    #[distributed_lock(key = "boxed:unit", fallback_with = drop)]
    async fn unit(&self, log: &Mutex<Vec<bool>>, client: &LockClient) {
        let held = held(client, "boxed:unit").await;
        log.lock().unwrap().push(held);
    }

    #[distributed_lock(key = "boxed:generic:<name.as_ref()>")]
    async fn generic<T: AsRef<str> + Send>(&self, name: T) -> Result<T, LockError> {
        Ok(name)
    }

    #[distributed_lock(key = "boxed:outer:<id>")]
    #[distributed_lock(key = "boxed:inner:<id>")]
    async fn associated(id: u64) -> Result<u64, LockError> {
        Ok(id)
    }

    fn tenant(&self) -> String {
        "north".into()
    }
}

#[tokio::test]
async fn the_lock_is_held_while_the_body_runs() {
    with_default(async |client| {
        let mut north = North { id: 1 };
        assert!(north.by_ref(&client, 2).await.unwrap());
        assert!(!north.by_ref(&client, 0).await.unwrap());
        assert!(north.by_mut(&client).await.unwrap());
        assert!(north.clone().by_value(client.clone()).await.unwrap());
        assert!(Arc::new(north.clone()).by_arc(&client).await.unwrap());
        assert_eq!(north.generic("x").await.unwrap(), "x");
        assert_eq!(North::associated(3).await.unwrap(), 3);
        let order = Order { sku: 1, name: "x".into() };
        assert_eq!(order.name, "x");
        assert_eq!(north.patterns(&client, order, 4, ()).await.unwrap(), 5);
    })
    .await;
}

#[tokio::test]
async fn default_methods_are_locked() {
    with_default(async |client| {
        assert!(North { id: 1 }.default_method(&client, 2).await.unwrap());
    })
    .await;
}

#[tokio::test]
async fn a_method_without_a_value_is_locked() {
    with_default(async |client| {
        let log = Mutex::default();
        North { id: 1 }.unit(&log, &client).await;
        assert_eq!(*log.lock().unwrap(), [true]);
    })
    .await;
}

#[async_trait(?Send)]
trait Local {
    async fn local(&self, id: Rc<str>) -> Result<Rc<str>, LockError>;
}

#[async_trait(?Send)]
impl Local for () {
    #[distributed_lock(key = "boxed:local:<id>")]
    async fn local(&self, id: Rc<str>) -> Result<Rc<str>, LockError> {
        tokio::task::yield_now().await;
        Ok(id)
    }
}

#[tokio::test]
async fn methods_that_are_not_send_work() {
    with_default(async |_| assert_eq!(&*().local("x".into()).await.unwrap(), "x")).await;
}

struct South {
    locks: LockClient,
    id: u64,
}

#[async_trait]
trait Options {
    async fn by_ref(&self) -> Result<bool, LockError>;
    async fn by_mut(&mut self) -> Result<bool, LockError>;
    async fn by_arc(self: Arc<Self>) -> Result<bool, LockError>;
    async fn fallback(&self, default: String) -> String;
}

#[async_trait]
impl Options for South {
    #[distributed_lock(key = "boxed:options:<self.id>", client = self.locks, when = self.id > 0)]
    async fn by_ref(&self) -> Result<bool, LockError> {
        Ok(held(&self.locks, "boxed:options:1").await)
    }

    #[distributed_lock(key = lock_key!("boxed:options:<self.id>"), client = &self.locks)]
    async fn by_mut(&mut self) -> Result<bool, LockError> {
        self.id = 1;
        Ok(held(&self.locks, "boxed:options:1").await)
    }

    #[distributed_lock(key = "boxed:options:<self.id>", client = self.locks)]
    async fn by_arc(self: Arc<Self>) -> Result<bool, LockError> {
        Ok(held(&self.locks, "boxed:options:1").await)
    }

    #[distributed_lock(
        key = "boxed:options:<self.id>",
        client = self.locks,
        wait = std::time::Duration::from_secs(self.id - 1),
        on_lost = "signal",
        fallback = format!("{default} {}", self.id),
    )]
    async fn fallback(&self, default: String) -> String {
        format!("ran {default}")
    }
}

#[tokio::test]
async fn options_see_self() {
    let locks = LockClient::in_memory();
    let mut south = South { locks: locks.clone(), id: 1 };

    assert!(south.by_ref().await.unwrap());
    assert!(south.by_mut().await.unwrap());
    assert_eq!(south.fallback("x".into()).await, "ran x");
    let guard = locks.lock(LockKey::literal("boxed:options:1")).acquire().await.unwrap();
    assert_eq!(south.fallback("x".into()).await, "x 1");
    guard.release().await.unwrap();
    assert!(Arc::new(south).by_arc().await.unwrap());
}

#[async_trait]
trait Instrumented {
    async fn above(&self, client: &LockClient, id: u64) -> Result<bool, LockError>;
    async fn below(&self, client: &LockClient) -> Result<bool, LockError>;
    async fn unit(&self, log: &Mutex<Vec<bool>>, client: &LockClient);
}

#[async_trait]
impl Instrumented for () {
    #[tracing::instrument(skip(self, client))]
    #[distributed_lock(key = "boxed:instrument:<id>", client = client)]
    #[tracing::instrument(skip_all)]
    async fn above(&self, client: &LockClient, id: u64) -> Result<bool, LockError> {
        Ok(held(client, &format!("boxed:instrument:{id}")).await)
    }

    #[tracing::instrument(skip_all)]
    #[distributed_lock(key = "boxed:instrument:unit", fallback_with = drop)]
    async fn unit(&self, log: &Mutex<Vec<bool>>, client: &LockClient) {
        let held = held(client, "boxed:instrument:unit").await;
        log.lock().unwrap().push(held);
    }

    #[distributed_lock(key = "boxed:instrument")]
    #[tracing::instrument(skip_all)]
    async fn below(&self, client: &LockClient) -> Result<bool, LockError> {
        Ok(held(client, "boxed:instrument").await)
    }
}

#[tokio::test]
async fn instrument_works_above_and_below() {
    with_default(async |client| {
        assert!(().below(&client).await.unwrap());
        assert!(().above(&client, 7).await.unwrap());
        let log = Mutex::default();
        Instrumented::unit(&(), &log, &client).await;
        assert_eq!(*log.lock().unwrap(), [true]);
    })
    .await;
}
