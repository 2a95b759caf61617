use distlock::{LockError, distributed_lock};

#[distributed_lock(key = "a")]
fn plain() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "a")]
const fn constant() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "a")]
extern "C" fn foreign() {}

#[distributed_lock(key = "a")]
fn returns_a_future() -> impl Future<Output = Result<(), LockError>> {
    async { Ok(()) }
}

fn main() {}
