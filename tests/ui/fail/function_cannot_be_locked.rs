use std::pin::Pin;

use distlock::{LockError, distributed_lock};

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

#[distributed_lock(key = "a", fallback_with = |error| panic!("{error}"))]
fn returns_a_boxed_future(sku_id: u64) -> Pin<Box<dyn Future<Output = u64> + Send>> {
    let future = async move { sku_id };
    Box::pin(future)
}

fn main() {}
