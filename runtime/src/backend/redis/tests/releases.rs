//! Releases that are due at the same moment.

use std::future::poll_fn;
use std::task::Poll;

use super::*;
use crate::backend::Lock;
use crate::join::all;

#[tokio::test]
async fn releases_of_one_moment_share_a_command() {
    let server = RedisServer::start();
    let channel = server.backend().open().await.unwrap();
    let locks = held(&*channel, "stock", 20).await;
    server.run::<()>(&["CONFIG", "RESETSTAT"]);

    let answers = all(locks.iter().map(|lock| channel.release(lock, CLAIM)).collect()).await;

    assert!(answers.iter().all(|answer| matches!(answer, Ok(Released::Freed))), "{answers:?}");
    // The first one goes alone, at once.
    assert_eq!(server.calls_of("evalsha"), 2);
}

#[tokio::test]
async fn each_of_several_releases_gets_its_own_answer() {
    let server = RedisServer::start();
    let contender = Contender::on(Arc::new(server.backend())).await;
    let channel = contender.channel();
    let locks = held(channel, "stock", 6).await;
    let next = lock(&locks[3].key, "next");
    assert!(matches!(contender.contend(&next).await, Contended::Queued { .. }));
    server.run::<()>(&["DEL", &locks[2].key]);
    server.run::<()>(&["SET", &locks[4].key, "another"]);
    server.run::<()>(&["DEL", &locks[5].key]);
    server.run::<()>(&["LPUSH", &locks[5].key, "a list"]);

    let answers = all(locks.iter().map(|lock| channel.release(lock, CLAIM)).collect()).await;

    let answers: Vec<_> = answers.into_iter().map(Result::unwrap).collect();
    assert_eq!(
        answers,
        [
            Released::Freed,
            Released::Freed,
            Released::Gone,
            granted_to(&next),
            Released::Foreign,
            Released::Foreign
        ]
    );
}

#[tokio::test]
async fn a_caller_that_leaves_takes_no_other_release_with_it() {
    let server = RedisServer::start();
    let channel = server.backend().open().await.unwrap();
    let locks = held(&*channel, "stock", 4).await;
    let mut releases: Vec<_> = locks.iter().map(|lock| channel.release(lock, CLAIM)).collect();
    poll_fn(|cx| {
        assert!(releases.iter_mut().all(|release| release.as_mut().poll(cx).is_pending()));
        Poll::Ready(())
    })
    .await;

    // The one that started the others' command.
    drop(releases.remove(1));

    for answer in all(releases).await {
        assert_eq!(answer.unwrap(), Released::Freed);
    }
    eventually("all are free", || server.run::<u64>(&["DBSIZE"]) == 0).await;
}

#[tokio::test]
async fn a_key_without_rights_spoils_no_other_release() {
    let server = RedisServer::start();
    let rules = ["+@all", "~mine:*", "~distlock:*", "&*"];
    let channel = server.backend_as("app", &rules).open().await.unwrap();
    let mut locks = held(&*channel, "mine", 3).await;
    locks.insert(2, lock("theirs", "ours"));

    let answers = all(locks.iter().map(|lock| channel.release(lock, CLAIM)).collect()).await;

    let kinds: Vec<_> =
        answers.into_iter().map(|answer| answer.map_err(|error| error.kind)).collect();
    let freed = || Ok(Released::Freed);
    assert_eq!(kinds, [freed(), freed(), Err(StoreErrorKind::Refused), freed()]);
}

pub(super) async fn held(channel: &dyn Channel, name: &str, count: usize) -> Vec<Lock> {
    let locks: Vec<_> = (0..count).map(|i| lock(&format!("{name}:{i}"), "ours")).collect();
    for lock in &locks {
        hold(channel, lock).await;
    }
    locks
}

/// Its task goes with the runtime; who waits for it must not wait for ever, nor whoever comes later.
#[test]
fn releases_gathered_on_a_runtime_that_ends_are_answered() {
    let server = RedisServer::start();
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let ending = runtime();
    let (mut releases, channel) = ending.block_on(async {
        let channel = server.backend().open().await.unwrap();
        let locks = held(&*channel, "stock", 3).await;
        let mut releases: Vec<_> = locks.iter().map(|lock| channel.release(lock, CLAIM)).collect();
        poll_fn(|cx| {
            assert!(releases.iter_mut().all(|release| release.as_mut().poll(cx).is_pending()));
            Poll::Ready(())
        })
        .await;
        (releases, channel)
    });
    drop(ending);

    let late = channel.release(&lock("stock:9", "ours"), CLAIM);
    // The one that went alone belongs to the runtime that is gone.
    drop(releases.remove(0));
    releases.push(late);
    let answers = runtime()
        .block_on(async { tokio::time::timeout(Duration::from_secs(10), all(releases)).await });

    let answers = answers.expect("nobody waits for ever");
    assert!(answers.iter().all(|answer| answer.is_err()), "{answers:?}");
}

/// Also by way of a store that waits for replicas.
#[tokio::test]
async fn a_release_in_order_comes_before_any_later_acquire() {
    let server = RedisServer::start();
    let [main, acks] = [(); 2].map(|()| Arc::new(server.backend()));
    let replicated = ReplicatedBackend::new(Arc::clone(&main) as _, acks, 0, PATIENCE);
    for channel in [main.open().await.unwrap(), replicated.open().await.unwrap()] {
        let locks = held(&*channel, "stock", 2).await;
        let next = lock(&locks[1].key, "next");
        // One under way, so that others of its kind wait.
        let mut first = channel.release(&locks[0], CLAIM);
        let mut in_order = channel.release_in_order(&locks[1], CLAIM);
        poll_fn(|context| {
            assert!(first.as_mut().poll(context).is_pending());
            assert!(in_order.as_mut().poll(context).is_pending());
            Poll::Ready(())
        })
        .await;

        assert_eq!(channel.acquire(&next, LEASE).await.unwrap(), Acquired::Granted);

        assert_eq!(first.await.unwrap(), Released::Freed);
        assert_eq!(in_order.await.unwrap(), Released::Freed);
        channel.release(&next, CLAIM).await.unwrap();
    }
}
