use std::pin::Pin;

use distlock::{LockError, distributed_lock};

#[distributed_lock(key = "stock:<sku_id>")]
fn by_hand(sku_id: u64) -> Pin<Box<dyn Future<Output = Result<u64, LockError>> + Send>> {
    Box::pin(async move { Ok(sku_id) })
}

fn main() {}
