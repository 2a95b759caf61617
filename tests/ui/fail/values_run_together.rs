use distlock::{LockError, distributed_lock};

#[distributed_lock(key = "stock:<shop>-<sku_id>")]
async fn deduct(shop: u64, sku_id: u64) -> Result<u64, LockError> {
    Ok(shop + sku_id)
}

fn main() {}
