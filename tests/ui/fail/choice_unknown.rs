use distlock::{LockError, distributed_lock};

#[distributed_lock(key = "a", on_lost = "cancle", on_unavailable = "open")]
async fn words() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "a", on_lost = signal, reentrant = "no", strict = 1)]
async fn kinds() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "a", max_waiters = "many", name = 7)]
async fn values() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "a", max_waiters = -1, name = "")]
async fn more_values() -> Result<(), LockError> {
    Ok(())
}

fn main() {}
