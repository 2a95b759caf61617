//! Reentrancy follows the call chain: who enters, who waits, who is refused.
//!
//! Where a call on a key stands that the running body holds, and what becomes of it:
//!
//! | the call is made | it |
//! |---|---|
//! | in the body, or in a function that it awaits | enters |
//! | in a branch of `join!`, `select!` or `FuturesUnordered` in the body | enters, one branch at a time |
//! | in a branch, with nothing held outside | excludes the other branches |
//! | under `block_in_place` and `block_on` in the body | enters |
//! | in a task of a `LocalSet` that the body itself drives | enters: it is polled by the body |
//! | in a task of a `LocalSet` around the body | waits: a likely self-deadlock |
//! | in a spawned task | waits: a likely self-deadlock |
//! | in a spawned task of `LockScope::current().instrument(..)` | enters |
//! | in `spawn_blocking` | waits: a likely self-deadlock |
//! | beside a guard held by hand | waits: a likely self-deadlock |
//! | in `guard.scope(..)` | enters |
//! | by another client | waits |

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use distlock::{LockClient, LockError, LockErrorKind, LockScope};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::common::{ANSWERED, Inside, LONG, LockText, SOON, freed, ms, slack};
use crate::support::{Store, eventually, on_every_store, unique_key};

on_every_store! {
    nested_call_enters_at_once,
    recursion_releases_once,
    branches_with_nothing_held_outside_exclude_each_other,
    fifty_futures_of_one_task_are_inside_one_after_the_other,
    branches_inside_one_hold_enter_one_after_the_other,
    branch_waits_for_its_sibling_no_longer_than_its_wait,
    ancestor_never_blocks_a_descendant,
    stacked_keys_are_held_until_their_own_function_ends,
    nested_call_in_select_enters,
    spawned_task_does_not_inherit,
    instrumented_task_enters_and_keeps_the_lock,
    instrumented_task_is_dropped_when_the_lock_is_lost,
    instrumented_task_that_starts_too_late_does_not_run,
    guard_held_by_hand_is_in_scope_only_where_it_says_so,
    not_reentrant_call_is_refused_at_once,
    nested_call_leaves_the_lease_of_the_outer_one_alone,
    nested_call_after_the_loss_does_not_enter,
    another_client_in_the_same_chain_is_another_owner,
    loop_of_nested_calls_ends_with_one_hold,
    next_call_of_the_same_task_is_a_new_hold,
    blocking_work_beside_the_body_does_not_inherit,
    local_tasks_inherit_only_from_the_body_that_drives_them,
}

/// The error of a call that another owner kept out.
fn kept_out<T: std::fmt::Debug>(outcome: Result<T, LockError>) {
    let error = outcome.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Timeout, "{error}");
    assert!(error.to_string().contains("likely self-deadlock"), "{error}");
}

async fn nested_call_enters_at_once(store: Store) {
    let (key, client) = (unique_key("nested"), store.client());
    let outer = client.on(&key).run(|outer| async {
        let outer = outer;
        let start = Instant::now();
        let inner = client.on(&key).wait(Duration::ZERO).run(|inner| async move {
            assert!(!inner.is_lost());
            inner.owner().to_owned()
        });
        assert_eq!(inner.await.unwrap(), outer.owner(), "the same hold");
        assert!(start.elapsed() <= slack(&store));
        assert_eq!(store.owner_of(&key).await.as_deref(), Some(outer.owner()), "still held");
        // A guard taken inside may outlive the body: then the lock lasts as long as the guard.
        client.on(&key).acquire().await.unwrap()
    });
    let guard = outer.await.unwrap();
    assert!(!guard.is_lost());
    assert_eq!(store.owner_of(&key).await.as_deref(), Some(guard.owner()));
    guard.release().await.unwrap();
    assert_eq!(store.owner_of(&key).await, None);
}

fn recurse<'a>(
    client: &'a LockClient,
    key: &'a str,
    depth: u32,
) -> Pin<Box<dyn Future<Output = Result<u32, LockError>> + Send + 'a>> {
    Box::pin(async move {
        let below = client.on(key).run(|_| async move {
            if depth == 0 { Ok(0) } else { recurse(client, key, depth - 1).await }
        });
        Ok(below.await?? + 1)
    })
}

async fn recursion_releases_once(store: Store) {
    let (key, client) = (unique_key("recursion"), store.client());

    assert_eq!(recurse(&client, &key, 5).await.unwrap(), 6);

    assert_eq!(store.owner_of(&key).await, None);
    assert!(store.client().on(&key).try_acquire().await.unwrap().is_some());
}

async fn branches_with_nothing_held_outside_exclude_each_other(store: Store) {
    let (key, client, inside) = (unique_key("join"), store.client(), Inside::default());
    let branch = || {
        client.on(&key).run(|_| async {
            let _visit = inside.enter();
            tokio::time::sleep(ms(20)).await;
        })
    };

    let (first, second, third) = tokio::join!(branch(), branch(), branch());

    first.and(second).and(third).unwrap();
    assert_eq!((inside.total(), inside.most()), (3, 1));
}

async fn fifty_futures_of_one_task_are_inside_one_after_the_other(store: Store) {
    let (key, client, inside) = (unique_key("unordered"), store.client(), Inside::default());
    let calls: FuturesUnordered<_> = (0..50)
        .map(|_| {
            client.on(&key).wait(ms(20_000)).run(|_| async {
                let _visit = inside.enter();
                tokio::task::yield_now().await;
            })
        })
        .collect();

    let outcomes: Vec<_> = calls.collect().await;

    assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
    assert_eq!((inside.total(), inside.most()), (50, 1));
}

async fn branches_inside_one_hold_enter_one_after_the_other(store: Store) {
    let (key, client, inside) = (unique_key("siblings"), store.client(), Inside::default());
    let outer = client.on(&key).run(|_| async {
        let calls: FuturesUnordered<_> = (0..20)
            .map(|_| {
                client.on(&key).run(|_| async {
                    let _visit = inside.enter();
                    tokio::time::sleep(ms(1)).await;
                })
            })
            .collect();
        calls.collect::<Vec<_>>().await
    });

    let outcomes = outer.await.unwrap();

    assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
    assert_eq!((inside.total(), inside.most()), (20, 1));
}

async fn branch_waits_for_its_sibling_no_longer_than_its_wait(store: Store) {
    let (key, client) = (unique_key("sibling-wait"), store.client());
    let outer = client.on(&key).run(|_| async {
        let (done, is_done) = oneshot::channel::<()>();
        // Inside for as long as the other one waits.
        let long = client.on(&key).run(|_| tokio::time::timeout(LONG, is_done));
        let short = async {
            tokio::task::yield_now().await;
            let start = Instant::now();
            let outcome = client.on(&key).wait(ms(50)).acquire().await;
            done.send(()).unwrap();
            (outcome.map(drop), start.elapsed())
        };
        tokio::join!(long, short)
    });

    let (long, (short, waited)) = outer.await.unwrap();

    long.unwrap().expect("it was not outwaited").unwrap();
    let error = short.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Timeout, "{error}");
    assert_eq!(error.key(), Some(&*key));
    assert!(waited >= ms(50) && waited <= ms(50) + slack(&store), "{waited:?}");
}

async fn ancestor_never_blocks_a_descendant(store: Store) {
    let (key, client) = (unique_key("descendant"), store.client());
    let outer = client.on(&key).run(|_| async {
        // A sibling waits at the gate while the other branch goes deeper.
        let deep = client.on(&key).run(|_| async {
            let deeper = client.on(&key).wait(ms(0)).run(|_| async {
                tokio::time::sleep(ms(20)).await;
                client.on(&key).wait(ms(0)).run(|_| async { 3 }).await
            });
            deeper.await
        });
        let sibling = client.on(&key).run(|_| async {});
        tokio::join!(deep, sibling)
    });

    let (deep, sibling) = outer.await.unwrap();

    assert_eq!(deep.unwrap().unwrap().unwrap(), 3);
    sibling.unwrap();
}

async fn stacked_keys_are_held_until_their_own_function_ends(store: Store) {
    let (a, b, client) = (unique_key("stack-a"), unique_key("stack-b"), store.client());
    let outer = client.on(&a).run(|held| async move { (held.owner().to_owned(), ()) });
    let _ = outer.await.unwrap();
    for inner_fails in [false, true] {
        let f = client.on(&a).run(|f_held| async {
            let f_held = f_held;
            let g = client.on(&b).run(|_| async {
                let h = client.on(&a).run(|h_held| async move {
                    assert!(!h_held.is_lost());
                    if inner_fails { Err("h failed") } else { Ok(()) }
                });
                let h = h.await.unwrap();
                assert_eq!(h.is_err(), inner_fails);
                assert!(store.owner_of(&a).await.is_some(), "f still holds a after h");
                assert!(store.owner_of(&b).await.is_some(), "g still holds b after h");
            });
            g.await.unwrap();
            assert_eq!(store.owner_of(&a).await.as_deref(), Some(f_held.owner()));
            assert_eq!(store.owner_of(&b).await, None, "b is gone after g");
        });
        f.await.unwrap();
        assert_eq!(store.owner_of(&a).await, None);
    }
}

async fn nested_call_in_select_enters(store: Store) {
    let (key, client) = (unique_key("select"), store.client());
    let outer = client.on(&key).run(|_| async {
        tokio::select! {
            inner = client.on(&key).wait(ms(0)).run(|_| async { 1 }) => inner,
            () = tokio::time::sleep(SOON) => panic!("a nested call does not wait"),
        }
    });

    assert_eq!(outer.await.unwrap().unwrap(), 1);
}

async fn spawned_task_does_not_inherit(store: Store) {
    let (key, client) = (unique_key("spawn"), store.client());
    let request = client.on(&key).wait(ms(100));
    let child = client.on(&key).run(|_| async { tokio::spawn(request.acquire()).await.unwrap() });

    kept_out(child.await.unwrap());
}

async fn instrumented_task_enters_and_keeps_the_lock(store: Store) {
    let (key, client) = (unique_key("instrument"), store.client());
    let (go, gone) = oneshot::channel::<()>();
    let (begin, begun) = oneshot::channel::<()>();
    let request = client.on(&key).wait(ms(0));
    let child = client.on(&key).run(|held| async move {
        let child = tokio::spawn(LockScope::current().instrument(async move {
            begin.send(()).unwrap();
            gone.await.unwrap();
            request.run(|held| async move { held.owner().to_owned() }).await
        }));
        // It joins at its first poll.
        begun.await.unwrap();
        (child, held.owner().to_owned())
    });
    let (child, owner) = child.await.unwrap();

    // The parent has ended, its child has not.
    tokio::time::sleep(ms(20)).await;
    assert_eq!(store.owner_of(&key).await.as_deref(), Some(&*owner));
    go.send(()).unwrap();

    assert_eq!(child.await.unwrap().unwrap().unwrap(), owner);
    freed(&store, &key).await;
}

async fn instrumented_task_is_dropped_when_the_lock_is_lost(store: Store) {
    let (key, client, inside) = (unique_key("instrument-lost"), store.client(), Inside::default());
    let (begin, begun) = oneshot::channel::<()>();
    let visit = inside.enter();
    let mut child = None;
    let run = client.on(&key).lease(ms(1_500)).run(|_| async {
        child = Some(tokio::spawn(LockScope::current().instrument(async move {
            let _visit = visit;
            begin.send(()).unwrap();
            std::future::pending::<()>().await;
        })));
        begun.await.unwrap();
    });
    run.await.unwrap();

    store.remove(&key).await;

    let error = child.unwrap().await.unwrap().unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Lost { completed: false }, "{error}");
    assert_eq!(inside.now(), 0, "the body is dropped by then");
}

async fn instrumented_task_that_starts_too_late_does_not_run(store: Store) {
    let (key, client) = (unique_key("instrument-late"), store.client());
    let scope = client.on(&key).run(|_| async { LockScope::current() }).await.unwrap();

    let outcome = scope.instrument(async { panic!("runs without the lock") }).await;

    let error = outcome.unwrap_err();
    assert!(matches!(error.kind(), LockErrorKind::Lost { .. }), "{error}");
    assert_eq!(store.owner_of(&key).await, None, "being able to look must not keep it");
}

async fn guard_held_by_hand_is_in_scope_only_where_it_says_so(store: Store) {
    let (key, client) = (unique_key("by-hand"), store.client());
    let guard = client.on(&key).acquire().await.unwrap();

    kept_out(client.on(&key).wait(ms(20)).acquire().await);
    let inner =
        guard.scope(client.on(&key).wait(ms(0)).run(|held| async move { held.owner().to_owned() }));

    assert_eq!(inner.await.unwrap().unwrap(), guard.owner());
    assert!(!guard.is_lost());
    kept_out(client.on(&key).wait(ms(20)).acquire().await);
}

async fn not_reentrant_call_is_refused_at_once(store: Store) {
    let (key, client) = (unique_key("not-reentrant"), store.client());
    let outer = client.on(&key).run(|_| async {
        let start = Instant::now();
        let outcome = client.on(&key).not_reentrant().wait(LONG).acquire().await;
        (outcome.map(drop), start.elapsed())
    });

    let (outcome, took) = outer.await.unwrap();

    let error = outcome.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Reentrant, "{error}");
    assert!(!error.is_retryable());
    assert!(took <= slack(&store), "{took:?}");
}

async fn nested_call_leaves_the_lease_of_the_outer_one_alone(store: Store) {
    let (key, client) = (unique_key("own-lease"), store.client());
    let outer_lease = ms(30_000);
    let outer = client.on(&key).lease(outer_lease).run(|held| async {
        let held = held;
        for lease in [ms(100), ms(60_000)] {
            client.on(&key).lease(lease).run(|_| async {}).await.unwrap();
            let (left, ttl) = (held.remaining(), store.remaining(&key).await.unwrap());
            assert!(left > outer_lease / 2 && left < outer_lease, "{left:?}");
            assert!(ttl > outer_lease / 2 && ttl <= outer_lease, "{ttl:?}");
        }
    });

    outer.await.unwrap();
}

async fn nested_call_after_the_loss_does_not_enter(store: Store) {
    let (key, client) = (unique_key("nested-lost"), store.client());
    let guard =
        client.on(&key).lease(ms(1_500)).on_lost(distlock::OnLost::Signal).acquire().await.unwrap();
    store.remove(&key).await;
    guard.lost().await;

    let nested = guard.scope(client.on(&key).acquire()).await.unwrap();

    let error = nested.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Lost { completed: false }, "{error}");
}

async fn another_client_in_the_same_chain_is_another_owner(store: Store) {
    let key = unique_key("other-client");
    let (client, other) = (store.client(), store.client());
    let outer =
        client.on(&key).run(|_| async { other.on(&key).wait(ANSWERED).acquire().await.map(drop) });

    assert_eq!(outer.await.unwrap().unwrap_err().kind(), LockErrorKind::Timeout);
}

async fn loop_of_nested_calls_ends_with_one_hold(store: Store) {
    let (key, client, inside) = (unique_key("loop"), store.client(), Inside::default());
    let outer = client.on(&key).lease(ms(1_500)).run(|_| async {
        for _ in 0..300 {
            let inner = client.on(&key).run(|_| async {
                let _visit = inside.enter();
                tokio::task::yield_now().await;
                tokio::time::sleep(ms(1)).await;
            });
            inner.await.unwrap();
        }
        store.owner_of(&key).await.is_some()
    });

    assert!(outer.await.unwrap());
    assert_eq!((inside.total(), inside.most()), (300, 1));
    assert_eq!(store.owner_of(&key).await, None);
}

async fn next_call_of_the_same_task_is_a_new_hold(store: Store) {
    let (key, client) = (unique_key("again"), store.client());
    let owner = || client.on(&key).run(|held| async move { held.owner().to_owned() });

    let (first, second) = (owner().await.unwrap(), owner().await.unwrap());

    assert_ne!(first, second);
}

async fn blocking_work_beside_the_body_does_not_inherit(store: Store) {
    let (key, client) = (unique_key("blocking"), store.client());
    let request = client.on(&key).wait(ms(50));
    let run = client.on(&key).run(|_| async {
        let here = tokio::runtime::Handle::current();
        let (done, outcome) = oneshot::channel();
        // A thread, not `spawn_blocking`: that would stop the paused clock of the memory store.
        std::thread::spawn(move || {
            let _entered = here.enter();
            let task = here.spawn(request.acquire());
            let _ = done.send(task);
        });
        outcome.await.unwrap().await.unwrap()
    });

    kept_out(run.await.unwrap());
}

async fn local_tasks_inherit_only_from_the_body_that_drives_them(store: Store) {
    let (key, client) = (unique_key("local"), store.client());
    let client = Arc::new(client);
    let around = tokio::task::LocalSet::new();
    let outcome = around.run_until(async {
        let run = client.on(&key).run(|_| async {
            let request = client.on(&key).wait(ms(50));
            tokio::task::spawn_local(request.acquire()).await.unwrap().map(drop)
        });
        run.await.unwrap()
    });
    kept_out(outcome.await);

    let run = client.on(&key).run(|_| async {
        let own = tokio::task::LocalSet::new();
        let request = client.on(&key).wait(ms(50));
        own.run_until(async { tokio::task::spawn_local(request.acquire()).await.unwrap() })
            .await
            .map(drop)
    });
    run.await.unwrap().unwrap();
    eventually("the key is free", SOON, async || store.owner_of(&key).await.is_none()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn blocking_on_a_nested_call_enters_and_spawn_blocking_does_not() {
    let store = Store::redis();
    let (key, client) = (unique_key("block-on"), store.client());
    let run = client.on(&key).run(|_| async {
        let here = tokio::runtime::Handle::current();
        let nested = client.on(&key).wait(ms(0));
        let in_place = tokio::task::block_in_place(|| here.block_on(nested.acquire())).map(drop);
        let beside = client.on(&key).wait(ms(50));
        let beside = tokio::task::spawn_blocking(move || here.block_on(beside.acquire()));
        (in_place, beside.await.unwrap().map(drop))
    });

    let (in_place, beside) = run.await.unwrap();

    in_place.unwrap();
    kept_out(beside);
}
