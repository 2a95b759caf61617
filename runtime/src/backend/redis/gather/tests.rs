//! What is due at the same moment, on runtimes that end.

use std::pin::pin;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use tokio::runtime::{self, Runtime};

use super::*;
use crate::backend::Backend;
use crate::backend::contract::server::RedisServer;
use crate::backend::contract::{LEASE, lock};
use crate::backend::redis::acquires::Acquire;

fn runtime() -> Runtime {
    runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// A task that is made on a runtime that ends is dropped at once, within the call that makes it.
#[test]
fn what_is_sent_while_its_runtime_ends_holds_nothing_up() {
    let server = RedisServer::start();
    let (living, ended) = (runtime(), runtime());
    let backend = server.backend();
    let way = living.block_on(async {
        backend.open().await.unwrap();
        backend.runtimes.current().unwrap().way()
    });
    let gathering: Arc<Gathering<Acquire>> = Arc::default();
    let answers: Vec<_> = (0..3 * SMALLEST_SHARE)
        .map(|i| {
            let (caller, answer) = oneshot::channel();
            let lock = lock(&format!("stock:{i}"), "ours");
            gathering
                .state()
                .gathered
                .push((Acquire { lock, lease: LEASE, fenced: false }, caller));
            answer
        })
        .collect();
    let (done, is_done) = mpsc::channel();
    thread::spawn(move || {
        let handle = ended.handle().clone();
        drop(ended);
        let _entered = handle.enter();
        let mut sending = pin!(Sending { gathering, taken: false }.send(way));
        let polled = sending.as_mut().poll(&mut Context::from_waker(std::task::Waker::noop()));
        done.send(polled.is_pending()).unwrap();
    });
    assert_eq!(is_done.recv_timeout(Duration::from_secs(10)), Ok(true));
    drop(answers);
}
