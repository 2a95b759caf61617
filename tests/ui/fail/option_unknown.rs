use distlock::{LockError, distributed_lock};

#[distributed_lock(key = "stock", leese = "3s")]
async fn misspelt() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "stock", ttl = "3s")]
async fn named_as_elsewhere() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "stock", colour = "red")]
async fn unheard_of() -> Result<(), LockError> {
    Ok(())
}

fn main() {}
