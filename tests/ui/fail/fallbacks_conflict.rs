use distlock::{LockError, distributed_lock};

#[distributed_lock(key = "a", fallback = Ok(0), fallback_with = |_| Ok(1))]
async fn both() -> Result<u8, LockError> {
    Ok(2)
}

fn main() {}
