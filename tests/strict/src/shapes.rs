//! Shapes that lints like to talk about.

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use locks::{HeldLock, LockClient, LockError, distributed_lock, lock_key, lock_template};

lock_template!(pub STOCK = "strict:stock:<sku_id>", lease = "5s");
lock_template!(pub(crate) STOCK_LOCK = "strict:stock_lock:<a>:<b>", strict = true);
lock_template!(PRIVATE = "strict:private");

/// An order.
#[derive(Clone, Debug)]
pub struct Order {
    /// Its number.
    pub id: u64,
    /// Its name.
    pub name: String,
}

/// Extractor.
#[derive(Clone, Debug)]
pub struct Json<T>(
    /// What was extracted.
    pub T,
);

/// Documented.
///
/// # Errors
///
/// Those of the lock.
#[distributed_lock(key = "strict:json:<id>", crate = locks)]
pub async fn json(Json(Order { id, .. }): Json<Order>, _: String) -> Result<u64, LockError> {
    std::future::ready(Ok(id)).await
}

/// Unused and underscored parameters.
///
/// # Errors
///
/// Those of the lock.
#[distributed_lock(key = "strict:underscore:<_id>:<_name>", crate = locks)]
pub async fn underscored(_id: u64, _name: String, _none: &str) -> Result<(), LockError> {
    std::future::ready(Ok(())).await
}

/// `mut`.
///
/// # Errors
///
/// Those of the lock.
#[distributed_lock(key = "strict:mut:<id>", crate = locks)]
pub async fn mutable(mut id: u64, (mut a, b): (u64, u64)) -> Result<u64, LockError> {
    std::future::ready(()).await;
    id += 1;
    a += b;
    Ok(id + a)
}

/// Early exits.
///
/// # Errors
///
/// Those of the lock.
#[distributed_lock(key = "strict:exits:<order.id>", crate = locks, guard = held)]
pub async fn exits(id: Option<u64>, order: &Order) -> Result<Option<HeldLock>, LockError>
where
    Order: Clone,
{
    let Some(id) = id else { return Ok(None) };
    if id == order.id {
        return Ok(Some(held));
    }
    std::future::ready(Ok::<_, LockError>(())).await?;
    Ok(None)
}

/// Options that are expressions.
#[distributed_lock(
    key = { let sum = a + b; lock_key!("strict:sum:<sum>") },
    client = client,
    wait = Duration::from_millis(a),
    lease = Duration::from_secs(5),
    fallback_with = |error| error.to_string(),
    when = a > 0,
    crate = locks,
)]
pub async fn expressions(client: Arc<LockClient>, a: u64, b: u64) -> String {
    std::future::ready(client.instance().len().to_string() + &(a + b).to_string()).await
}

/// A value and nothing to report.
#[distributed_lock(
    key = "strict:unit",
    crate = locks,
    fallback = (),
    on_lost = "signal"
)]
pub async fn unit(log: &mut Vec<u8>) {
    std::future::ready(()).await;
    log.push(1);
}

/// A fallback that is called.
#[distributed_lock(key = "strict:ignored", crate = locks, fallback_with = drop)]
pub async fn ignored() {
    std::future::ready(()).await;
}

/// A shop.
#[derive(Debug, Default)]
pub struct Shop<T> {
    id: T,
}

impl<T: Display + Send + Sync> Shop<T> {
    const KIND: &'static str = "shop";

    /// A method.
    ///
    /// # Errors
    ///
    /// Those of the lock.
    #[distributed_lock(key = "strict:<Self::KIND>:<self.id>:<sku.as_ref()>", crate = locks)]
    pub async fn sell<S: AsRef<str> + Send + Sync>(&self, sku: S) -> Result<S, LockError> {
        std::future::ready(()).await;
        Ok(sku)
    }

    /// A method that does not look at itself.
    ///
    /// # Errors
    ///
    /// Those of the lock.
    #[distributed_lock(key = "strict:shop:into:<self.id>", crate = locks)]
    pub async fn into_id(self) -> Result<T, LockError> {
        std::future::ready(()).await;
        Ok(self.id)
    }

    /// An `Arc` for `self`, and a borrowed result.
    ///
    /// # Errors
    ///
    /// Those of the lock.
    #[distributed_lock(key = STOCK.key(&7), crate = locks)]
    pub async fn borrow<'a>(
        self: Arc<Self>,
        order: &'a Order,
    ) -> Result<Option<&'a str>, LockError> {
        std::future::ready(()).await;
        Ok(Some(&order.name))
    }
}

/// A trait with locked methods.
pub trait Store {
    /// A default method.
    fn name(&self) -> String {
        PRIVATE.key().to_string() + STOCK_LOCK.key(&1, "b").as_str()
    }

    /// Documented in the trait.
    fn load(&self, id: u64) -> impl Future<Output = Result<u64, LockError>> + Send;
}

impl Store for Order {
    #[distributed_lock(key = "strict:store:<self.id>:<id>", crate = locks)]
    async fn load(&self, id: u64) -> Result<u64, LockError> {
        std::future::ready(Ok(id + self.id)).await
    }
}

/// Stacked.
///
/// # Errors
///
/// Those of the lock.
#[distributed_lock(key = "strict:outer:<id>", crate = locks)]
#[distributed_lock(key = "strict:inner:<id>", crate = locks)]
pub async fn stacked(id: u64) -> Result<u64, LockError> {
    std::future::ready(Ok(id)).await
}

/// A trait without boxes.
pub trait Twice {
    /// Adds.
    fn twice(&self, id: u64) -> impl Future<Output = Result<u64, LockError>> + Send;
}

impl Twice for u64 {
    #[distributed_lock(key = "strict:twice:<id>", crate = locks)]
    async fn twice(&self, id: u64) -> Result<Self, LockError> {
        Ok(std::future::ready(*self).await + id)
    }
}
