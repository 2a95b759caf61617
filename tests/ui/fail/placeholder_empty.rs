use distlock::{LockError, distributed_lock};

#[distributed_lock(key = "stock:lock:<>")]
async fn empty(sku_id: u64) -> Result<u64, LockError> {
    Ok(sku_id)
}

#[distributed_lock(key = "stock:< >:lock")]
async fn blank(sku_id: u64) -> Result<u64, LockError> {
    Ok(sku_id)
}

fn main() {}
