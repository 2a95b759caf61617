use distlock::distributed_lock;

#[distributed_lock(key = "stock:lock:<sku_id>")]
fn deduct(sku_id: u64) -> bool {
    sku_id > 0
}

#[distributed_lock(key = "stock:lock:<sku_id>", fallback = false, strict = true)]
fn strictly(sku_id: u64) -> bool {
    sku_id > 0
}

#[distributed_lock(key = "jobs:nightly")]
fn nightly() {}

fn main() {}
