#![deny(unused, deprecated)]

use distlock::{LockError, distributed_lock};

#[deprecated]
#[must_use]
#[distributed_lock(key = "a:<named>", guard = held)]
fn old(
    unused: String,
    (half, _): (u8, u8),
    mut unchanged: u8,
    named: u8,
) -> Result<u8, LockError> {
    let variable = 1;
    return Ok(unchanged);
    println!("never");
}

fn main() {
    old(String::new(), (1, 2), 3, 4);
}
