//! Every option, with and without a trailing comma, in any order.

use std::time::Duration;

use distlock::{HeldLock, LockClient, LockError, distributed_lock};

#[distributed_lock(
    on_unavailable = "run_unlocked",
    client = &locks,
    crate = distlock,
    fallback_with = |error| Err(error),
    guard = held,
    key = "all:<id>",
    lease = "5s",
    max_hold = "1m",
    max_waiters = 10,
    name = "all",
    on_lost = "cancel",
    reentrant = false,
    release = "await",
    strict = true,
    wait = "500ms",
    when = id > 0,
)]
async fn all(locks: LockClient, id: u64) -> Result<Option<HeldLock>, LockError> {
    let _ = locks;
    println!("{id}");
    Ok(held)
}

#[distributed_lock(wait = Duration::ZERO, keys = ["a:<a>", "b:<b>"], on_unavailable = "error", release = "background")]
async fn several(a: u64, b: u64) -> Result<u64, LockError> {
    Ok(a + b)
}

fn main() {
    drop(all(LockClient::in_memory(), 1));
    drop(several(1, 2));
}
