use distlock::{LockError, distributed_lock};

#[distributed_lock(key = "a", client = url)]
async fn text(url: &str) -> Result<usize, LockError> {
    Ok(url.len())
}

#[distributed_lock(key = "a", client = locks)]
async fn unknown() -> Result<(), LockError> {
    Ok(())
}

fn main() {}
