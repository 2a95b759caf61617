use distlock::{LockError, distributed_lock};

#[distributed_lock(key = "stock:lock:<sku_id>", on_lost = "cancel")]
fn deduct(sku_id: u64) -> Result<u64, LockError> {
    Ok(sku_id)
}

fn main() {}
