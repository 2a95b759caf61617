use distlock::distributed_lock;

#[distributed_lock(key = "stock:<sku_id>")]
async fn value(sku_id: u64) -> bool {
    sku_id > 0
}

#[distributed_lock(key = "stock:<sku_id>")]
async fn option(sku_id: u64) -> Option<u64> {
    Some(sku_id)
}

#[distributed_lock(key = "stock:<sku_id>")]
async fn nothing(sku_id: u64) {
    println!("{sku_id}");
}

fn main() {}
