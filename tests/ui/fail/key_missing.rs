use distlock::{LockError, distributed_lock};

#[distributed_lock(wait = "3s")]
async fn without_key(db: u8, sku_id: u64) -> Result<u64, LockError> {
    Ok(sku_id + u64::from(db))
}

#[distributed_lock]
async fn without_anything() -> Result<(), LockError> {
    Ok(())
}

fn main() {}
