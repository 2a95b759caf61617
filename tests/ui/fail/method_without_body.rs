use distlock::{LockError, distributed_lock};

trait Shop {
    #[distributed_lock(key = "shop:<sku_id>")]
    async fn deduct(&self, sku_id: u64) -> Result<bool, LockError>;
}

fn main() {}
