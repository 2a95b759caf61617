//! Every exit releases, once, and only what is ours.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use distlock::{HeldLock, LockErrorKind};
use futures_util::FutureExt;
use tokio::time::Instant;

use crate::common::{LONG, LockText, SOON, StandsNow, freed, ms, never_ends};
use crate::support::{Store, eventually, on_every_store, unique_key};

on_every_store! {
    value_error_and_return_release,
    panic_releases,
    dropped_body_releases_in_the_background,
    dropped_guard_releases_in_the_background,
    body_dropped_at_any_await_leaves_nothing,
    body_is_dropped_before_its_lock_is_released,
    released_lock_tells_so_to_whoever_still_looks,
    guards_of_one_hold_release_with_the_last_one,
    release_of_a_lapsed_lock_is_no_error_unless_strict,
    transaction_inside_the_lock_loses_no_update,
}

async fn value_error_and_return_release(store: Store) {
    let (key, client) = (unique_key("exits"), store.client());
    for exit in ["value", "error", "return"] {
        let outcome = client.on(&key).run(|_| async move {
            match exit {
                "error" => Err("by ?")?,
                "return" => return Err("by return"),
                _ => {}
            }
            Ok(exit)
        });
        let outcome = outcome.await.unwrap();
        assert_eq!(outcome.is_ok(), exit == "value");
        assert_eq!(store.owner_of(&key).await, None, "after {exit}");
    }
}

async fn panic_releases(store: Store) {
    let (key, client) = (unique_key("panic"), store.client());
    let call = client.on(&key).run(|_| async {
        tokio::task::yield_now().await;
        panic!("of the body, on purpose");
    });

    let panicked: Result<Result<(), _>, _> = AssertUnwindSafe(call).catch_unwind().await;

    assert!(panicked.is_err());
    freed(&store, &key).await;
    // The client is as good as before.
    client.on(&key).run(|_| async {}).await.unwrap();
}

async fn dropped_body_releases_in_the_background(store: Store) {
    let (key, client) = (unique_key("dropped-body"), store.client());
    let call = tokio::spawn(client.on(&key).run(|_| std::future::pending::<()>()));
    eventually("it is held", SOON, async || store.owner_of(&key).await.is_some()).await;

    call.abort();

    freed(&store, &key).await;
}

async fn dropped_guard_releases_in_the_background(store: Store) {
    let (key, client) = (unique_key("dropped-guard"), store.client());

    drop(client.on(&key).acquire().await.unwrap());

    freed(&store, &key).await;
}

async fn body_dropped_at_any_await_leaves_nothing(store: Store) {
    let (key, client) = (unique_key("any-await"), store.client());
    let rounds = 500;
    for round in 0..rounds {
        let mut call = Box::pin(client.on(&key).wait(LONG).run(|_| async {
            for _ in 0..5 {
                tokio::task::yield_now().await;
                client.on(&key).run(|_| tokio::task::yield_now()).await.unwrap();
            }
        }));
        for _ in 0..round % 17 {
            if crate::common::poll_once(call.as_mut()).await.is_ready() {
                break;
            }
            // On Redis some of the polls come before the answer, some after it.
            if round % 3 == 0 {
                tokio::time::sleep(Duration::from_micros(200)).await;
            }
        }
        drop(call);
        // The next caller is not held up by what is left.
        if round % 50 == 0 {
            freed(&store, &key).await;
        }
    }
    freed(&store, &key).await;
    assert!(client.on(&key).try_acquire().await.unwrap().is_some());
}

/// Looks, when it is dropped, whether the key is still held by `owner`.
struct LastLook<'a> {
    stands: &'a StandsNow,
    held: HeldLock,
    /// From here on the key may be gone without a release.
    ends: Instant,
    seen: &'a std::sync::Mutex<Vec<bool>>,
}

impl Drop for LastLook<'_> {
    fn drop(&mut self) {
        let held = self.stands.owner().as_deref() == Some(self.held.owner());
        self.seen.lock().unwrap().push(held || Instant::now() >= self.ends);
    }
}

async fn body(look: LastLook<'_>, exit: &'static str) {
    let held = look.held.clone();
    let _look = look;
    match exit {
        "panic" => panic!("of the body, on purpose"),
        "pending" => never_ends(held).await,
        _ => tokio::task::yield_now().await,
    }
}

async fn body_is_dropped_before_its_lock_is_released(store: Store) {
    let (key, client) = (unique_key("order"), store.client());
    let (stands, seen) = (StandsNow::of(&store, &key), std::sync::Mutex::new(Vec::new()));
    let lease = ms(4_000);
    let ends = || Instant::now() + lease;
    let look =
        |held: HeldLock, ends: Instant| LastLook { stands: &stands, held, ends, seen: &seen };

    let end = ends();
    client.on(&key).run(|held| body(look(held, end), "value")).await.unwrap();
    freed(&store, &key).await;
    let end = ends();
    let call = client.on(&key).run(|held| body(look(held, end), "panic"));
    assert!(AssertUnwindSafe(call).catch_unwind().await.is_err());
    freed(&store, &key).await;
    let end = ends();
    let call = client.on(&key).run(|held| body(look(held, end), "pending"));
    assert!(tokio::time::timeout(ms(500), call).await.is_err());
    freed(&store, &key).await;
    // At its end, of which our clock is sure a per cent before the store's.
    let end = ends();
    let request = client.on(&key).lease(lease).max_hold(lease);
    let call = request.run(|held| body(look(held, end), "pending"));
    assert_eq!(call.await.unwrap_err().kind(), LockErrorKind::HoldLimit);

    assert_eq!(*seen.lock().unwrap(), [true; 4]);
}

async fn released_lock_tells_so_to_whoever_still_looks(store: Store) {
    let (key, client) = (unique_key("look"), store.client());
    let guard = client.on(&key).acquire().await.unwrap();
    let held = (*guard).clone();
    let mut lost = Box::pin(held.lost());
    assert!(crate::common::poll_once(lost.as_mut()).await.is_pending());

    guard.release().await.unwrap();

    lost.await;
    assert!(held.is_lost());
    assert_eq!(held.remaining(), Duration::ZERO);
    assert!(matches!(held.check().unwrap_err().kind(), LockErrorKind::Lost { .. }));
    assert!(held.extend(ms(1_000)).await.is_err());
    assert_eq!(store.owner_of(&key).await, None, "nothing brings it back");
}

async fn guards_of_one_hold_release_with_the_last_one(store: Store) {
    let (key, client) = (unique_key("last"), store.client());
    let outer = client.on(&key).acquire().await.unwrap();
    let inner = outer.scope(client.on(&key).acquire()).await.unwrap().unwrap();

    outer.release().await.unwrap();

    assert!(!inner.is_lost());
    assert_eq!(store.owner_of(&key).await.as_deref(), Some(inner.owner()));
    inner.release().await.unwrap();
    assert_eq!(store.owner_of(&key).await, None);
}

async fn release_of_a_lapsed_lock_is_no_error_unless_strict(store: Store) {
    let (key, client) = (unique_key("lapsed"), store.client());
    for strict in [false, true] {
        let request = client.on(&key);
        let request = if strict { request.strict() } else { request };
        let guard = request.acquire().await.unwrap();
        store.remove(&key).await;

        let outcome = guard.release().await;

        match strict {
            false => outcome.unwrap(),
            true => {
                let kind = LockErrorKind::Lost { completed: true };
                assert_eq!(outcome.unwrap_err().kind(), kind);
            }
        }
    }
}

/// a13: what was written can be read only some time after the work returned. The lock is outermost, so
/// it is still held by then.
async fn transaction_inside_the_lock_loses_no_update(store: Store) {
    async fn in_transaction(stock: &std::sync::atomic::AtomicU32) {
        use std::sync::atomic::Ordering::SeqCst;
        let read = stock.load(SeqCst);
        tokio::time::sleep(ms(2)).await;
        // The commit.
        stock.store(read + 1, SeqCst);
    }
    let (key, stock) = (unique_key("transaction"), std::sync::atomic::AtomicU32::new(0));
    let clients = [store.client(), store.client()];
    let sell = async |client: &distlock::LockClient| {
        for _ in 0..30 {
            client.on(&key).wait(ms(20_000)).run(|_| in_transaction(&stock)).await.unwrap();
        }
    };

    tokio::join!(sell(&clients[0]), sell(&clients[1]));

    assert_eq!(stock.into_inner(), 60);
}

/// Works where no runtime is. Blocks meanwhile, so that a paused clock does not run away.
fn on_a_thread(work: impl FnOnce() + Send + 'static) {
    std::thread::spawn(work).join().unwrap();
}

on_every_store! {
    guard_dropped_outside_of_any_runtime_releases,
    future_dropped_outside_of_any_runtime_releases,
    waiter_is_served_by_a_guard_dropped_outside_of_any_runtime,
}

async fn guard_dropped_outside_of_any_runtime_releases(store: Store) {
    let (key, client) = (unique_key("no-runtime"), store.client());
    let guard = client.on(&key).acquire().await.unwrap();

    on_a_thread(move || drop(guard));

    freed(&store, &key).await;
}

async fn future_dropped_outside_of_any_runtime_releases(store: Store) {
    let (key, client) = (unique_key("no-runtime-future"), store.client());
    let mut call: std::pin::Pin<Box<dyn Future<Output = _> + Send>> =
        Box::pin(client.on(&key).run(|_| std::future::pending::<()>()));
    eventually("it is held", SOON, async || {
        assert!(crate::common::poll_once(call.as_mut()).await.is_pending());
        store.owner_of(&key).await.is_some()
    })
    .await;

    on_a_thread(move || drop(call));

    freed(&store, &key).await;
}

async fn waiter_is_served_by_a_guard_dropped_outside_of_any_runtime(store: Store) {
    let (key, client) = (unique_key("no-runtime-waiter"), store.client());
    let guard = client.on(&key).acquire().await.unwrap();
    // Whichever comes first releases by itself.
    let waiter = || tokio::spawn(client.on(&key).wait(LONG).run(|_| async {}));
    let waiters = [waiter(), waiter()];
    crate::common::queued(&store, &key, 1).await;

    on_a_thread(move || drop(guard));

    for waiter in waiters {
        waiter.await.unwrap().unwrap();
    }
}
