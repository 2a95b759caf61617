use distlock::distributed_lock;

#[derive(Debug)]
enum StockError {
    Empty,
}

type StockResult<T> = Result<T, StockError>;

#[distributed_lock(key = "stock:<sku_id>")]
async fn direct(sku_id: u64) -> Result<u64, StockError> {
    Ok(sku_id)
}

#[distributed_lock(key = "stock:<sku_id>")]
async fn alias(sku_id: u64) -> StockResult<u64> {
    if sku_id == 0 { Err(StockError::Empty) } else { Ok(sku_id) }
}

fn main() {}
