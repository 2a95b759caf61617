use distlock::{LockError, distributed_lock};

#[distributed_lock(key = "a:<sku_id>")]
fn wrong_value(sku_id: u64) -> Result<u64, LockError> {
    Ok("seven")
}

#[distributed_lock(key = "a")]
fn wrong_return(sku_id: u64) -> Result<u64, LockError> {
    if sku_id == 0 {
        return 0;
    }
    Ok(sku_id)
}

#[distributed_lock(key = "a")]
fn missing_value(sku_id: u64) -> Result<u64, LockError> {
    Ok::<u64, LockError>(sku_id);
}

#[distributed_lock(key = "a")]
fn no_such_method(sku_id: u64) -> Result<u64, LockError> {
    Ok(sku_id.sqare())
}

#[distributed_lock(key = "a", fallback = ())]
fn unit(sku_id: u64) {
    sku_id
}

#[distributed_lock(key = "a")]
fn waits(sku_id: u64) -> Result<u64, LockError> {
    std::future::ready(()).await;
    Ok(sku_id)
}

#[distributed_lock(key = "a", client = { std::future::ready(()).await; distlock::LockClient::in_memory() })]
fn waits_in_an_option(sku_id: u64) -> Result<u64, LockError> {
    Ok(sku_id)
}

fn main() {}
