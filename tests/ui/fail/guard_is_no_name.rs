use distlock::{LockError, distributed_lock};

#[distributed_lock(key = "a", guard = "held")]
async fn text() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "a", guard = id)]
async fn parameter(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {}
