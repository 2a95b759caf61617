use distlock::{LockError, distributed_lock};

#[distributed_lock(key = "stock", wait)]
async fn nothing() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "stock", wait = , lease = "1")]
async fn nothing_after_the_equals_sign() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "stock", wait("3s"), lease = "1")]
async fn in_brackets() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "stock" wait = "3s")]
async fn without_comma() -> Result<(), LockError> {
    Ok(())
}

fn main() {}
