use distlock::{LockError, distributed_lock};

#[distributed_lock(keys = "account:<from>")]
async fn literal(from: u64) -> Result<u64, LockError> {
    Ok(from)
}

#[distributed_lock(keys = [])]
async fn empty(from: u64) -> Result<u64, LockError> {
    Ok(from)
}

#[distributed_lock(key = "account:<from>", keys = ["account:<to>"])]
async fn both(from: u64, to: u64) -> Result<u64, LockError> {
    Ok(from + to)
}

#[distributed_lock(keys = ["account:<from>", "account:<too>", 7])]
async fn wrong_elements(from: u64, to: u64) -> Result<u64, LockError> {
    Ok(from + to)
}

fn main() {}
