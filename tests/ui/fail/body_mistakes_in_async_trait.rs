use async_trait::async_trait;
use distlock::{LockError, distributed_lock};

#[async_trait]
trait Shop {
    async fn wrong_value(&self, sku_id: u64) -> Result<u64, LockError>;
    async fn missing_value(&self, sku_id: u64) -> Result<u64, LockError>;
    async fn unknown_field(&self, sku_id: u64) -> Result<u64, LockError>;
    async fn moved(&self, name: String) -> Result<String, LockError>;
    async fn unknown_placeholder(&self, sku_id: u64, name: String) -> Result<u64, LockError>;
    async fn no_error(&self, sku_id: u64) -> bool;
    #[distributed_lock(key = "a:<sku_id>")]
    async fn no_body(&self, sku_id: u64) -> Result<u64, LockError>;
}

struct North;

// Each error is the one that the method has without our attribute, and at the same place.
#[async_trait]
impl Shop for North {
    #[distributed_lock(key = "a:<sku_id>")]
    async fn wrong_value(&self, sku_id: u64) -> Result<u64, LockError> {
        let _ = sku_id;
        Ok("seven")
    }

    #[distributed_lock(key = "a:<sku_id>")]
    async fn missing_value(&self, sku_id: u64) -> Result<u64, LockError> {
        Ok::<u64, LockError>(sku_id);
    }

    #[distributed_lock(key = "a:<sku_id>")]
    async fn unknown_field(&self, sku_id: u64) -> Result<u64, LockError> {
        Ok(sku_id + self.stock)
    }

    #[distributed_lock(key = "a")]
    async fn moved(&self, name: String) -> Result<String, LockError> {
        drop(name);
        Ok(name)
    }

    #[distributed_lock(key = "a:<sku>:<__self>:<__arg1>")]
    async fn unknown_placeholder(&self, sku_id: u64, _: String) -> Result<u64, LockError> {
        Ok(sku_id)
    }

    #[distributed_lock(key = "a:<sku_id>")]
    async fn no_error(&self, sku_id: u64) -> bool {
        sku_id > 0
    }
}

fn main() {}
