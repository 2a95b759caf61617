use distlock::{LockError, distributed_lock};

#[distributed_lock(key = "a", wait = "10", lease = "10 s", max_hold = "1m30")]
async fn texts() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "a", wait = 3, lease = 1.5, max_hold = 30s)]
async fn numbers() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "a", wait = "-1s", lease = "9999999h", max_hold = "")]
async fn out_of_range() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "a", wait = true)]
async fn switch() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "a", wait = 3 * 1000)]
async fn expression() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "a", wait = "0s", lease = "1m30s", max_hold = "1.5h")]
async fn fine() -> Result<(), LockError> {
    Ok(())
}

fn main() {}
