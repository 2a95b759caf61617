use distlock::{LockError, distributed_lock};

#[distributed_lock(
    key = "stock:<shop>:<sku>",
    lease = "50ms",
    wait = 3,
    leese = "10s",
    on_lost = "abort",
    guard = sku_id,
    fallback = Ok(0),
    fallback_with = |_| Ok(0),
)]
const fn deduct(shops: u64, sku_id: u64) -> Result<u64, LockError> {
    Ok(shops + sku_id)
}

// It is still there: no further error.
const SUM: Result<u64, LockError> = deduct(1, 2);

fn main() {}
