use distlock::{LockError, distributed_lock};

// Each error is the one that the function has without the attribute, and at the same place.

#[distributed_lock(key = "a")]
async fn moved(name: String) -> Result<String, LockError> {
    drop(name);
    Ok(name)
}

#[distributed_lock(key = "a")]
async fn not_mutable(sku_id: u64) -> Result<u64, LockError> {
    sku_id += 1;
    Ok(sku_id)
}

#[distributed_lock(key = "a")]
async fn returns_a_local(name: String) -> Result<&'static str, LockError> {
    Ok(name.as_str())
}

fn main() {}
