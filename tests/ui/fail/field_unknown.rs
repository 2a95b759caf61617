use distlock::{LockError, distributed_lock};

struct Order {
    id: u64,
}

#[distributed_lock(key = "order:<order.idd>")]
async fn field(order: Order) -> Result<u64, LockError> {
    Ok(order.id)
}

#[distributed_lock(key = "order:<order.number()>")]
async fn method(order: Order) -> Result<u64, LockError> {
    Ok(order.id)
}

fn main() {}
