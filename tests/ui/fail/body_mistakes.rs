use distlock::{LockError, distributed_lock};

// Each error is the one that the function has without the attribute, and at the same place.

#[distributed_lock(key = "a")]
async fn wrong_value(sku_id: u64) -> Result<u64, LockError> {
    let _ = sku_id;
    Ok("seven")
}

#[distributed_lock(key = "a")]
async fn wrong_return(sku_id: u64) -> Result<u64, LockError> {
    if sku_id == 0 {
        return 0;
    }
    Ok(sku_id)
}

#[distributed_lock(key = "a")]
async fn missing_value(sku_id: u64) -> Result<u64, LockError> {
    Ok::<u64, LockError>(sku_id);
}

#[distributed_lock(key = "a")]
async fn unknown_method(sku_id: u64) -> Result<u64, LockError> {
    Ok(sku_id.sqare())
}

#[distributed_lock(key = "a")]
async fn unknown_name() -> Result<u64, LockError> {
    Ok(sku_id)
}

#[distributed_lock(key = "a")]
async fn value_of_unit(sku_id: u64) -> Result<(), LockError> {
    Ok(sku_id)
}

fn main() {}
