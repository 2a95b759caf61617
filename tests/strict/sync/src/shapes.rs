//! Shapes that lints like to talk about.

use std::fmt::Display;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use locks::{HeldLock, LockClient, LockError, distributed_lock, lock_key, lock_template};

lock_template!(pub STOCK = "strict:stock:<sku_id as u64>:<shop as str>", lease = "5s");

/// An order.
#[derive(Clone, Debug)]
pub struct Order {
    /// Its number.
    pub id: u64,
    /// Its name.
    pub name: String,
}

/// Patterns, `mut`, underscores.
///
/// # Errors
///
/// Those of the lock.
#[distributed_lock(key = "strict:params:<id>:<_unused>", crate = locks)]
pub fn params(
    Order { id, .. }: Order,
    mut count: u64,
    _unused: &str,
    _: String,
) -> Result<u64, LockError> {
    count += id;
    Ok(count)
}

/// Early exits.
///
/// # Errors
///
/// Those of the lock.
#[distributed_lock(key = STOCK.key(&order.id, &order.name), crate = locks, guard = held)]
pub fn exits(id: Option<u64>, order: &Order) -> Result<Option<HeldLock>, LockError> {
    let Some(id) = id else { return Ok(None) };
    if id == order.id {
        return Ok(Some(held));
    }
    Ok::<_, LockError>(())?;
    Ok(None)
}

/// Options that are expressions.
#[distributed_lock(
    key = { let sum = a + b; lock_key!("strict:sum:<sum>") },
    client = client,
    wait = Duration::from_millis(a),
    fallback_with = |error| error.to_string(),
    when = a > 0,
    crate = locks,
)]
#[must_use]
pub fn expressions(client: Arc<LockClient>, a: u64, b: u64) -> String {
    client.instance().len().to_string() + &(a + b).to_string()
}

/// A value and nothing to report.
#[distributed_lock(key = "strict:unit", crate = locks, fallback = ())]
pub fn unit(log: &mut Vec<u8>) {
    log.push(1);
}

/// A temporary at the end of the body.
///
/// # Errors
///
/// Those of the lock.
#[distributed_lock(key = "strict:temporary:<name>", crate = locks, guard = held)]
pub fn temporary(
    (list, _): (Mutex<Vec<u8>>, u8),
    whole: Mutex<Vec<u8>>,
    name: &str,
) -> Result<usize, LockError> {
    if held.is_lost() {
        return Ok(0);
    }
    Ok(list.lock().map_or(0, |list| list.len()) + whole.lock().map_or(0, |list| list.len()))
}

/// A shop.
#[derive(Debug, Default)]
pub struct Shop<T> {
    id: T,
}

impl<T: Display> Shop<T> {
    const KIND: &'static str = "shop";

    /// A method.
    ///
    /// # Errors
    ///
    /// Those of the lock.
    #[distributed_lock(key = "strict:<Self::KIND>:<self.id>:<sku.as_ref()>", crate = locks)]
    pub fn sell<S: AsRef<str>>(&self, sku: S) -> Result<S, LockError> {
        Ok(sku)
    }

    /// A method that takes itself.
    ///
    /// # Errors
    ///
    /// Those of the lock.
    #[distributed_lock(key = "strict:into:<self.id>", crate = locks)]
    pub fn into_id(self) -> Result<T, LockError> {
        Ok(self.id)
    }

    /// A borrowed result.
    ///
    /// # Errors
    ///
    /// Those of the lock.
    #[distributed_lock(key = "strict:borrow", crate = locks)]
    pub fn borrow<'a>(self: Arc<Self>, order: &'a Order) -> Result<Option<&'a str>, LockError> {
        Ok(Some(&order.name))
    }
}

/// Stacked.
///
/// # Errors
///
/// Those of the lock.
#[distributed_lock(key = "strict:outer:<id>", crate = locks)]
#[distributed_lock(key = "strict:inner:<id>", crate = locks)]
pub fn stacked(id: u64) -> Result<u64, LockError> {
    Ok(id)
}
