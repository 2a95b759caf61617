//! Acquires that are due at the same moment.

use std::future::poll_fn;
use std::task::Poll;

use super::*;
use crate::join::all;

#[tokio::test]
async fn acquires_of_one_moment_share_a_pipeline() {
    let server = RedisServer::start();
    let channel = server.backend().open().await.unwrap();
    let locks: Vec<_> = (0..20).map(|i| lock(&format!("stock:{i}"), "ours")).collect();
    server.run::<()>(&["SET", "stock:7", "theirs", "PX", "60000"]);
    server.run::<()>(&["LPUSH", "stock:8", "a list"]);

    let answers = all(locks.iter().map(|lock| channel.acquire(lock, LEASE)).collect()).await;

    for (index, answer) in answers.into_iter().enumerate() {
        match index {
            7 => assert_eq!(answer.unwrap(), Acquired::HeldBy("theirs".into())),
            8 => assert_eq!(kind_of(answer), StoreErrorKind::Foreign),
            _ => assert_eq!(answer.unwrap(), Acquired::Granted),
        }
    }
    assert_eq!(server.run::<String>(&["GET", "stock:19"]), "ours");
}

/// The one that leaves may be the one that started the others' pipeline. Its release finds nothing, so
/// the acquire must not come after it.
#[tokio::test]
async fn an_acquire_that_is_dropped_is_sent_before_its_release_or_never() {
    let server = RedisServer::start();
    let channel = server.backend().open().await.unwrap();
    let locks: Vec<_> = (0..4).map(|i| lock(&format!("stock:{i}"), "ours")).collect();
    for leaving in 0..locks.len() {
        let mut acquires: Vec<_> = locks.iter().map(|lock| channel.acquire(lock, LEASE)).collect();
        poll_fn(|context| {
            assert!(acquires.iter_mut().all(|acquire| acquire.as_mut().poll(context).is_pending()));
            Poll::Ready(())
        })
        .await;

        drop(acquires.remove(leaving));
        channel.release_in_order(&locks[leaving], CLAIM).await.unwrap();

        for answer in all(acquires).await {
            assert_eq!(answer.unwrap(), Acquired::Granted);
        }
        // What comes later on the channel is answered later.
        assert_eq!(channel.inspect(&locks[leaving].key).await.unwrap(), None, "{leaving}");
        for lock in &locks {
            channel.release(lock, CLAIM).await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_key_without_rights_spoils_no_other_acquire() {
    let server = RedisServer::start();
    let rules = ["+@all", "~mine:*", "~distlock:*", "&*"];
    let channel = server.backend_as("app", &rules).open().await.unwrap();
    let keys = ["mine:0", "mine:1", "theirs", "mine:2"];
    let locks = keys.map(|key| lock(key, "ours"));

    let answers = all(locks.iter().map(|lock| channel.acquire(lock, LEASE)).collect()).await;

    let kinds = answers.into_iter().map(|answer| answer.map_err(|error| error.kind));
    let granted = || Ok(Acquired::Granted);
    let expected = [granted(), granted(), Err(StoreErrorKind::Refused), granted()];
    assert_eq!(kinds.collect::<Vec<_>>(), expected);
}

/// What many callers at once allocate and move is most of what they cost.
#[tokio::test]
async fn requests_that_go_together_are_small() {
    let server = RedisServer::start();
    let channel = server.backend().open().await.unwrap();
    let ours = lock("k", "ours");
    for size in [
        size_of_val(&*channel.acquire(&ours, LEASE)),
        size_of_val(&*channel.draw(&ours, Some(LEASE))),
        size_of_val(&*channel.release(&ours, CLAIM)),
    ] {
        assert!(size <= 640, "{size} bytes");
    }
}

/// So many requests may be on their way that one more must wait for a place, unless nothing ever does. A
/// runtime that stands still in between is a thread that others overtake.
#[test]
fn an_acquire_that_is_dropped_is_not_sent_after_its_release_however_many_are_on_their_way() {
    let server = RedisServer::start();
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (reading, calling) = (runtime(), runtime());
    let channel = reading.block_on(server.backend().open()).unwrap();
    let locks: Vec<_> = (0..3).map(|i| lock(&format!("stock:{i}"), "ours")).collect();
    let mut others: Vec<_> = (0..2000).map(|_| channel.inspect(&"other".into())).collect();
    let mut acquires: Vec<_> = locks.iter().map(|lock| channel.acquire(lock, LEASE)).collect();
    calling.block_on(async {
        poll_fn(|context| {
            assert!(others.iter_mut().all(|other| other.as_mut().poll(context).is_pending()));
            assert!(acquires.iter_mut().all(|acquire| acquire.as_mut().poll(context).is_pending()));
            Poll::Ready(())
        })
        .await;
        for _ in 0..3 {
            // By the second turn those that go together are gone.
            tokio::task::yield_now().await;
        }
    });

    drop(acquires.pop());
    reading.block_on(channel.release_in_order(&locks[2], CLAIM)).unwrap();

    calling.block_on(tokio::task::yield_now());
    assert_eq!(reading.block_on(channel.inspect(&locks[2].key)).unwrap(), None);
}

/// Whoever joins the others must not wait for the worker of the first one, which may be blocked by any
/// code: the last task that was made there can be taken over by nobody.
#[test]
fn a_worker_that_is_blocked_holds_up_no_acquire_of_another_one() {
    let server = RedisServer::start();
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let channel = server.backend().open().await.unwrap();
        let locks = ["first", "second"].map(|key| lock(key, "ours"));
        let mut acquires = locks.map(|lock| channel.acquire(&lock, LEASE));
        let (blocked, is_blocked) = tokio::sync::oneshot::channel();
        let (unblock, unblocked) = std::sync::mpsc::channel::<()>();
        let mut blocked = Some(blocked);
        let blocking = tokio::spawn(poll_fn(move |context| {
            if let Some(blocked) = blocked.take() {
                assert!(acquires.iter_mut().all(|it| it.as_mut().poll(context).is_pending()));
                blocked.send(()).unwrap();
                // Until the other one is answered, or the test has failed.
                let _ = unblocked.recv();
            }
            Poll::Ready(())
        }));
        is_blocked.await.unwrap();

        let other = channel.acquire(&lock("other", "ours"), LEASE);
        let answer = tokio::time::timeout(channel.answers_within() + SLACK, other).await;

        drop(unblock);
        blocking.await.unwrap();
        assert_eq!(answer.expect("held up").unwrap(), Acquired::Granted);
    });
}

/// As above, for those with a token.
#[tokio::test]
async fn a_key_without_rights_spoils_no_other_draw() {
    let server = RedisServer::start();
    let rules = ["+@all", "~mine:*", "~distlock:*", "&*"];
    let channel = server.backend_as("app", &rules).open().await.unwrap();
    let keys = ["mine:0", "mine:1", "theirs", "mine:2"];
    let locks = keys.map(|key| lock(key, "ours"));

    let drawn = all(locks.iter().map(|lock| channel.draw(lock, Some(LEASE))).collect()).await;

    for (key, drawn) in keys.into_iter().zip(drawn) {
        if key == "theirs" {
            assert_eq!(kind_of(drawn), StoreErrorKind::Refused);
        } else {
            assert!(matches!(drawn, Ok(Drawn::Token(_))), "{key}: {drawn:?}");
        }
    }
}
