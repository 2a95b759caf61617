use std::pin::Pin;

use distlock::{LockError, distributed_lock};

type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

#[distributed_lock(key = "stock:lock:<sku_id>", fallback = Box::pin(async { 0 }))]
fn with_a_fallback(sku_id: u64) -> BoxFuture<u64> {
    let future = async move { sku_id };
    Box::pin(future)
}

#[distributed_lock(key = "stock:lock:<sku_id>")]
fn without(sku_id: u64) -> BoxFuture<Result<u64, LockError>> {
    let future = async move { Ok(sku_id) };
    Box::pin(future)
}

fn main() {}
