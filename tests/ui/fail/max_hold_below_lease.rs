use distlock::{LockError, distributed_lock};

#[distributed_lock(key = "a", lease = "30s", max_hold = "20s")]
async fn below_lease() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "a", max_hold = "5s")]
async fn below_default_lease() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "a", max_hold = "0s")]
async fn zero() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "a", lease = "5s", max_hold = "5s")]
async fn fine() -> Result<(), LockError> {
    Ok(())
}

fn main() {}
