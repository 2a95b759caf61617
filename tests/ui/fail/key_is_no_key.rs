use distlock::{LockError, LockKey, distributed_lock};

#[distributed_lock(key = format!("stock:{sku_id}"))]
async fn formatted(sku_id: u64) -> Result<u64, LockError> {
    Ok(sku_id)
}

#[distributed_lock(key = 7)]
async fn number(sku_id: u64) -> Result<u64, LockError> {
    Ok(sku_id)
}

#[distributed_lock(key = name_of(sku_id))]
async fn string(sku_id: u64) -> Result<u64, LockError> {
    Ok(sku_id)
}

#[distributed_lock(key = LockKey::literal("fine"))]
async fn fine() -> Result<(), LockError> {
    Ok(())
}

fn name_of(sku_id: u64) -> String {
    sku_id.to_string()
}

fn main() {}
