use distlock::{LockError, distributed_lock};

#[distributed_lock(key = "stock:<sku_id>", fallback = false)]
async fn deduct(sku_id: u64) -> bool {
    sku_id > 0
}

#[distributed_lock(key = "stock:<sku_id>", fallback = false, on_lost = "signal", strict = true)]
async fn strict(sku_id: u64) -> bool {
    sku_id > 0
}

#[distributed_lock(key = "stock:<sku_id>", fallback = Ok(false))]
async fn fine(sku_id: u64) -> Result<bool, LockError> {
    Ok(sku_id > 0)
}

fn main() {}
