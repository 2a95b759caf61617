use distlock::{LockError, distributed_lock};

#[tokio::test]
#[distributed_lock(key = "a")]
async fn test() -> Result<(), LockError> {
    Ok(())
}

#[tokio::main]
#[distributed_lock(key = "a")]
async fn main() -> Result<(), LockError> {
    Ok(())
}
