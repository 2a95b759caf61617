use distlock::distributed_lock;

#[distributed_lock(key = "a", fallback = "none", on_lost = "signal")]
async fn value() -> u8 {
    1
}

#[distributed_lock(key = "a", fallback_with = |_| "none")]
async fn closure() -> u8 {
    1
}

#[distributed_lock(key = "a", fallback_with = |error| error.colour())]
async fn closure_body() -> u8 {
    1
}

fn main() {}
