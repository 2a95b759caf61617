//! The soak of `examples/soak.rs`, as short as a test must be.

#![cfg(target_os = "linux")]

use std::time::Duration;

use crate::example::{Size, soak};

#[allow(dead_code, unreachable_pub)]
#[path = "../examples/soak.rs"]
mod example;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_returns_to_where_it_was() {
    let size = Size { keys: 20_000, contention: Duration::from_secs(6) };

    assert_eq!(soak(size).await.unwrap(), &[] as &[String]);
}
