use distlock::{LockError, distributed_lock};

#[distributed_lock(key = "stock:lock:<sku_id>", leese = "10s")]
fn deduct(sku_id: u64) -> Result<u64, LockError> {
    Ok(sku_id)
}

struct Shop;

impl Shop {
    #[distributed_lock(key = "stock:lock:<sku_id>")]
    pub fn deduct(&self, sku_id: u64) -> Result<u64, LockError> {
        deduct(sku_id)
    }
}

fn main() {}
