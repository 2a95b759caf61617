use distlock::{LockError, distributed_lock};

#[distributed_lock(key = "sum:<a + b>")]
async fn operator(a: u64, b: u64) -> Result<u64, LockError> {
    Ok(a + b)
}

#[distributed_lock(key = "id:<7>:<sku id>:<format!(\"{id}\")>")]
async fn others(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

#[distributed_lock(key = "const:<crate::REGION>")]
async fn path(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {}
