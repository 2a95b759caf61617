use distlock::{LockError, distributed_lock};

#[distributed_lock("stock:lock:<sku_id>", wait = "3s")]
async fn deduct(sku_id: u64) -> Result<u64, LockError> {
    Ok(sku_id)
}

#[distributed_lock(key = "stock:lock:<sku_id>", 3)]
async fn number(sku_id: u64) -> Result<u64, LockError> {
    Ok(sku_id)
}

fn main() {}
