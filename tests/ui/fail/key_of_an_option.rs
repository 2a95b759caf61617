use distlock::{LockError, distributed_lock};

#[distributed_lock(key = "stock:lock:<sku_id>")]
async fn option(sku_id: Option<u64>) -> Result<Option<u64>, LockError> {
    Ok(sku_id)
}

#[distributed_lock(key = "stock:lock:<ids>")]
async fn list(ids: Vec<u64>) -> Result<usize, LockError> {
    Ok(ids.len())
}

fn main() {}
