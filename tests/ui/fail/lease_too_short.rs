use distlock::{LockError, distributed_lock};

#[distributed_lock(key = "a", lease = "99ms")]
async fn short() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "a", lease = "0s")]
async fn zero() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "a", lease = "100ms")]
async fn fine() -> Result<(), LockError> {
    Ok(())
}

fn main() {}
