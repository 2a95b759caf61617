use distlock::{LockError, distributed_lock};

#[distributed_lock(key = "")]
async fn empty() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = " \t")]
async fn blank() -> Result<(), LockError> {
    Ok(())
}

fn main() {}
