use distlock::{LockError, distributed_lock, lock_template};

#[distributed_lock(key = "a", release = "background", strict = true)]
async fn both() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "a", release = "later", strict = true)]
async fn unknown() -> Result<(), LockError> {
    Ok(())
}

lock_template!(BOTH = "a", strict = true, release = "background");

fn main() {}
