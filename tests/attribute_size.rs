//! What `#[distributed_lock]` adds to a future: at most its arguments and 256 bytes.

use distlock::{LockError, distributed_lock};

type Big = [u8; 1000];

/// The same body plain, locked, and locked with a fallback that needs an argument.
macro_rules! pair {
    ($name:ident or $first:expr, ($($param:pat => $ty:ty),*) $body:block) => {
        mod $name {
            use super::*;

            pub(super) async fn plain($($param: $ty),*) -> Result<u8, LockError> $body

            #[distributed_lock(key = "size:lock")]
            pub(super) async fn locked($($param: $ty),*) -> Result<u8, LockError> $body

            #[distributed_lock(
                key = "size:lock",
                guard = held,
                lease = "5s",
                fallback = Ok($first)
            )]
            pub(super) async fn fallback($($param: $ty),*) -> Result<u8, LockError> {
                let _ = held;
                $body
            }
        }
    };
}

pair!(uses_all or a[0], (a => Big, b => (Big, Big), mut c => Big) {
    tokio::task::yield_now().await;
    c[0] += 1;
    Ok(a[0] + b.0[0] + b.1[0] + c[0])
});
pair!(uses_none or a[0], (a => Big, _b => (Big, Big), _ => Big) {
    let _ = a;
    tokio::task::yield_now().await;
    Ok(0)
});
pair!(uses_part or a[0], (a => Big, (b, _) => (Big, Big)) {
    let first = a[0];
    tokio::task::yield_now().await;
    Ok(first + b[0])
});
pair!(owns or a[0], (a => Vec<u8>, (b, _) => (String, String)) {
    tokio::task::yield_now().await;
    drop(a);
    Ok(b.as_bytes()[0])
});
pair!(never_waits or a[0], (a => Big) {
    let first = a[0];
    Ok(first)
});

#[distributed_lock(key = "size:<a[0]>")]
async fn key_of_a_big_argument(a: Big) -> Result<u8, LockError> {
    tokio::task::yield_now().await;
    Ok(a[0])
}

#[test]
fn what_the_key_looks_at_is_not_stored_again() {
    let size = size_of_val(&key_of_a_big_argument([0; 1000]));

    assert!(size <= 3 * 1000 + 256, "{size}");
}

#[test]
fn a_future_grows_by_its_arguments_and_little_more() {
    const BIG: Big = [0; 1000];
    macro_rules! check {
        ($name:ident, $arguments:expr, $($argument:expr),*) => {
            let plain = size_of_val(&$name::plain($($argument),*));
            for locked in [
                size_of_val(&$name::locked($($argument),*)),
                size_of_val(&$name::fallback($($argument),*)),
            ] {
                assert!(
                    locked <= plain + $arguments + 256,
                    "{}: {plain} -> {locked} for {} of arguments", stringify!($name), $arguments,
                );
            }
        };
    }
    check!(uses_all, 4000, BIG, (BIG, BIG), BIG);
    check!(uses_none, 4000, BIG, (BIG, BIG), BIG);
    check!(uses_part, 3000, BIG, (BIG, BIG));
    check!(owns, 72, vec![], (String::new(), String::new()));
    check!(never_waits, 1000, BIG);
}

macro_rules! stack {
    ($($name:ident calls $next:ident),*) => {$(
        #[distributed_lock(key = "size:stack")]
        #[tracing::instrument]
        async fn $name(depth: u64) -> Result<u64, LockError> {
            $next(depth + 1).await
        }
    )*};
}

stack!(a calls b, b calls c, c calls d, d calls e, e calls f, f calls g, g calls last);

#[distributed_lock(key = "size:stack")]
#[tracing::instrument]
async fn last(depth: u64) -> Result<u64, LockError> {
    Ok(depth)
}

#[tokio::test]
async fn eight_nested_calls_stay_small_and_need_no_recursion_limit() {
    let client = distlock::LockClient::in_memory();
    let call = a(0);

    assert!(size_of_val(&call) < 8 * 1024, "{}", size_of_val(&call));
    assert_eq!(client.scope_default(call).await.unwrap(), 7);
}
