use distlock::{LockError, distributed_lock};

#[distributed_lock(key = "stock:<sku_id as u64>:<header:x-tenant>:<path>")]
async fn deduct(sku_id: u64) -> Result<u64, LockError> {
    Ok(sku_id)
}

fn main() {}
