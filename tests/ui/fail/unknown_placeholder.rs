use distlock::{LockError, distributed_lock};

#[distributed_lock(key = "stock:lock:<sku_idd>")]
async fn deduct(db: u8, sku_id: u64) -> Result<u64, LockError> {
    Ok(sku_id + u64::from(db))
}

#[distributed_lock(key = "stock:lock:<sku_id>:<REGION>")]
async fn one_parameter(sku_id: u64) -> Result<u64, LockError> {
    Ok(sku_id)
}

#[distributed_lock(key = "größe:<id>")]
async fn no_parameters() -> Result<(), LockError> {
    Ok(())
}

struct Shop;

impl Shop {
    #[distributed_lock(key = "shop:<self.id>:<name>")]
    async fn no_receiver(names: String) -> Result<String, LockError> {
        Ok(names)
    }
}

fn main() {}
