//! Three ways to sell one item.

use std::fmt;

use distlock::{LockError, distributed_lock};

use crate::instance::Till;

/// The classic bug: read, check, write, and between them enough time for others to read the same.
pub(crate) async fn sell(till: &Till, sku_id: u64) -> Result<Sale, SellError> {
    let items = till.shop.items(sku_id)?;
    if items == 0 {
        return Ok(Sale::SoldOut);
    }
    till.charge_card().await;
    till.shop.write_sale(sku_id, items - 1)?;
    Ok(Sale::Sold)
}

/// The very same, for one caller at a time over all instances.
#[distributed_lock(key = "stock:lock:<sku_id>", wait = "5s", lease = "1s")]
pub(crate) async fn sell_locked(till: &Till, sku_id: u64) -> Result<Sale, SellError> {
    sell(till, sku_id).await
}

/// Without a lock, but the write itself is conditional: the last line of defence behind any lock.
pub(crate) async fn sell_conditionally(till: &Till, sku_id: u64) -> Result<Sale, SellError> {
    if till.shop.items(sku_id)? == 0 {
        return Ok(Sale::SoldOut);
    }
    till.charge_card().await;
    if till.shop.write_sale_if_in_stock(sku_id)? { Ok(Sale::Sold) } else { Ok(Sale::Refused) }
}

/// How an attempt to sell ended.
pub(crate) enum Sale {
    /// The store refused the write: the stock that was read is no longer there.
    Refused,
    Sold,
    SoldOut,
}

#[derive(Debug)]
pub(crate) enum SellError {
    Lock(LockError),
    Shop(rusqlite::Error),
}

impl From<LockError> for SellError {
    fn from(error: LockError) -> Self {
        Self::Lock(error)
    }
}

impl From<rusqlite::Error> for SellError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Shop(error)
    }
}

impl fmt::Display for SellError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lock(error) => write!(f, "lock: {error}"),
            Self::Shop(error) => write!(f, "shop: {error}"),
        }
    }
}

impl std::error::Error for SellError {}
