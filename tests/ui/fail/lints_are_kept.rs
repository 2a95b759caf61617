#![deny(unused, deprecated)]

use distlock::{LockError, distributed_lock};

// Each lint is the one that the function has without the attribute, and at the same place.

#[distributed_lock(key = "a:<id>")]
pub async fn parameters(
    id: u64,
    unused: String,
    (half, _): (u8, u8),
    (left, right): (u8, u8),
    mut changed: u8,
    mut unchanged: u8,
    _underscored: u8,
    #[allow(unused_variables)] allowed: u8,
) -> Result<u8, LockError> {
    changed += 1;
    Ok(left + changed + unchanged)
}

#[distributed_lock(key = "a", guard = held)]
pub async fn guard() -> Result<(), LockError> {
    let variable = 1;
    Ok(())
}

#[deprecated]
#[must_use]
#[distributed_lock(key = "a")]
pub async fn old() -> Result<(), LockError> {
    return Ok(());
    println!("never");
}

pub async fn calls_old() {
    old();
}

fn main() {}
