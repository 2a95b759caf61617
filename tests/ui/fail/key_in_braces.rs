use distlock::{LockError, distributed_lock};

#[distributed_lock(key = "stock:lock:{sku_id}")]
async fn format_style(sku_id: u64) -> Result<u64, LockError> {
    Ok(sku_id)
}

#[distributed_lock(key = "stock:lock:#{sku_id}")]
async fn spring_style(sku_id: u64) -> Result<u64, LockError> {
    Ok(sku_id)
}

// A hash tag.
#[distributed_lock(key = "stock:{tag}:<sku_id>")]
async fn fine(sku_id: u64) -> Result<u64, LockError> {
    Ok(sku_id)
}

fn main() {}
