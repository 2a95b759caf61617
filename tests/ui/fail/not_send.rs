use std::rc::Rc;

use distlock::{LockError, distributed_lock};

#[distributed_lock(key = "a")]
async fn not_send() -> Result<u64, LockError> {
    let count = Rc::new(1);
    tokio::task::yield_now().await;
    Ok(*count)
}

fn main() {
    fn send<T: Send>(_: T) {}
    send(not_send());
}
