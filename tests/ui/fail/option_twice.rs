use distlock::{LockError, distributed_lock};

#[distributed_lock(key = "stock", wait = "3s", key = "other", wait = "4s")]
async fn twice() -> Result<(), LockError> {
    Ok(())
}

fn main() {}
