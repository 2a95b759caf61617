use std::pin::Pin;

use async_trait::async_trait;
use distlock::{LockError, distributed_lock};

#[distributed_lock(key = "stock:<sku_id>")]
fn by_hand(sku_id: u64) -> Pin<Box<dyn Future<Output = Result<u64, LockError>> + Send>> {
    Box::pin(async move { Ok(sku_id) })
}

#[async_trait]
trait Shop {
    async fn deduct(&self, sku_id: u64) -> Result<u64, LockError>;
}

#[async_trait]
impl Shop for () {
    // `instrument` has rewritten the boxed future before the lock sees it.
    #[tracing::instrument(skip(self))]
    #[distributed_lock(key = "stock:<sku_id>")]
    async fn deduct(&self, sku_id: u64) -> Result<u64, LockError> {
        Ok(sku_id)
    }
}

fn main() {}
