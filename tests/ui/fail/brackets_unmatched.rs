use distlock::{LockError, distributed_lock};

#[distributed_lock(key = "stock:<sku_id")]
async fn unclosed(sku_id: u64) -> Result<u64, LockError> {
    Ok(sku_id)
}

#[distributed_lock(key = "stock:sku_id>")]
async fn unopened(sku_id: u64) -> Result<u64, LockError> {
    Ok(sku_id)
}

#[distributed_lock(key = "stock:<shop<sku_id>>")]
async fn nested(sku_id: u64) -> Result<u64, LockError> {
    Ok(sku_id)
}

fn main() {}
