//! The steps.

use std::future::{Future, poll_fn};
use std::hint::black_box;
use std::task::Poll;

use distlock::{LockClient, LockKey, LockRequest, lock_key};
use tokio::task::{JoinSet, yield_now};

/// A step that can be repeated.
#[derive(Debug)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) run: fn(u64),
}

pub(crate) static CASES: &[Case] = &[
    Case { name: "key-of-template", run: key_of_template },
    Case { name: "call", run: call },
    Case { name: "guard", run: guard },
    Case { name: "nested-call", run: nested_call },
    Case { name: "poll", run: poll },
    Case { name: "poll-without-lock", run: poll_without_lock },
    Case { name: "queued-call", run: queued_call },
];

/// Rendering the key.
fn key_of_template(iterations: u64) {
    for number in 0..iterations {
        let (sku_id, region) = (black_box(number), black_box("eu west"));
        drop(black_box(lock_key!("stock:lock:<sku_id>:<region>")));
    }
}

/// A call on a free lock.
fn call(iterations: u64) {
    block_on(async {
        let locks = LockClient::in_memory();
        for sku_id in 0..iterations {
            locks.lock(lock_key!("stock:lock:<sku_id>")).run(|_| async {}).await.expect("free");
        }
    });
}

/// A lock taken and released by hand.
fn guard(iterations: u64) {
    block_on(async {
        let locks = LockClient::in_memory();
        for sku_id in 0..iterations {
            let guard = locks.lock(lock_key!("stock:lock:<sku_id>")).acquire().await.expect("free");
            guard.release().await.expect("no loss");
        }
    });
}

/// A call inside a call on the same lock.
fn nested_call(iterations: u64) {
    block_on(async {
        let locks = LockClient::in_memory();
        let outer = request(&locks).run(|_| async {
            for _ in 0..iterations {
                request(&locks).run(|_| async {}).await.expect("entered");
            }
        });
        outer.await.expect("free");
    });
}

/// A poll of a body under its lock.
fn poll(iterations: u64) {
    block_on(async {
        let locks = LockClient::in_memory();
        request(&locks).run(|_| pending_times(iterations)).await.expect("free");
    });
}

/// What of the step before is the runtime's.
fn poll_without_lock(iterations: u64) {
    block_on(pending_times(iterations));
}

/// A call that waits in the local queue behind others.
fn queued_call(iterations: u64) {
    block_on(async {
        let locks = LockClient::in_memory();
        let mut callers = JoinSet::new();
        for _ in 0..CALLERS {
            let locks = locks.clone();
            callers.spawn(async move {
                for _ in 0..iterations / CALLERS {
                    request(&locks).run(|_| yield_now()).await.expect("in turn");
                }
            });
        }
        callers.join_all().await;
    });
}

fn request(locks: &LockClient) -> LockRequest {
    locks.lock(LockKey::literal("stock:lock:7"))
}

fn pending_times(times: u64) -> impl Future<Output = ()> {
    let mut left = times;
    poll_fn(move |cx| {
        if left == 0 {
            return Poll::Ready(());
        }
        left -= 1;
        cx.waker().wake_by_ref();
        Poll::Pending
    })
}

fn block_on(future: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime")
        .block_on(future);
}

const CALLERS: u64 = 8;
