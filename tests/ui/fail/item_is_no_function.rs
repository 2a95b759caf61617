use distlock::distributed_lock;

#[distributed_lock(key = "a")]
struct Shop;

#[distributed_lock(key = "a")]
impl Shop {}

#[distributed_lock(key = "a", leese = "1s")]
trait Sell {}

#[distributed_lock(key = "a")]
mod shop {}

#[distributed_lock(key = "a")]
const SKU: u64 = 7;

fn main() {}
