//! Waiting for a condition instead of sleeping and hoping, and keys that no other test uses.

use std::process;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

/// Waits until `condition` holds; panics with `what` when it does not within `limit`.
///
/// ```ignore
/// eventually("the key is gone", Duration::from_secs(1), async || owner_of(&key).await.is_none()).await;
/// ```
#[track_caller]
pub(crate) fn eventually(
    what: &str,
    limit: Duration,
    mut condition: impl AsyncFnMut() -> bool,
) -> impl Future<Output = ()> {
    let caller = std::panic::Location::caller();
    async move {
        let start = Instant::now();
        while !condition().await {
            assert!(
                start.elapsed() < limit,
                "not within {limit:?}: {what} (waited for at {caller})"
            );
            tokio::time::sleep(POLL_EVERY).await;
        }
    }
}

/// A key under `prefix` that no other test, test run or process uses.
pub(crate) fn unique_key(prefix: &str) -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
    format!("{prefix}:{}-{now}-{}", process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

const POLL_EVERY: Duration = Duration::from_millis(2);
