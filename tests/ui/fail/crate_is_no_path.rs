use distlock::{LockError, distributed_lock};

#[distributed_lock(key = "a", crate = "distlock")]
async fn text() -> Result<(), LockError> {
    Ok(())
}

fn main() {}
