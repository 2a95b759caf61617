//! Runtimes come and go; a connection belongs to one.

use std::future::Future;
use std::net::TcpListener;
use std::task::{Context, Poll, Waker};

use tokio::runtime::{Builder, Runtime};

use super::*;
use crate::{LockClient, LockKey};

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

#[test]
fn each_runtime_has_a_channel_of_its_own_until_it_ends() {
    let server = RedisServer::start();
    let backend = server.backend();
    let (first, second) = (runtime(), runtime());
    let open = || async {
        let channel = backend.open().await.unwrap();
        hold(&*channel, &lock(&Uuid::new_v4().to_string(), "ours")).await;
        assert!(Arc::ptr_eq(&channel, &backend.channel().unwrap()));
        channel
    };
    let channels = [first.block_on(open()), second.block_on(open())];
    assert!(!Arc::ptr_eq(&channels[0], &channels[1]));
    assert_eq!(backend.runtimes.len(), 2);
    drop(first);
    assert_eq!(channels.each_ref().map(|channel| channel.is_open()), [false, true]);
    assert_eq!(backend.runtimes.len(), 1);
    drop(second);
    assert_eq!(backend.runtimes.len(), 0);
    // The next one starts anew, and nothing is kept of those before.
    for _ in 0..20 {
        runtime().block_on(open());
        assert_eq!(backend.runtimes.len(), 0);
    }
}

#[test]
fn a_runtime_that_ends_while_it_connects_leaves_nothing_behind() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    let backend = RedisBackend::new(config_from_url(&url).unwrap());
    let runtime = runtime();
    let mut opening = backend.open();
    runtime.block_on(async {
        let once = std::future::poll_fn(|context| {
            assert!(opening.as_mut().poll(context).is_pending());
            Poll::Ready(())
        });
        once.await;
        tokio::task::yield_now().await;
    });
    assert_eq!(backend.runtimes.len(), 1);
    drop(runtime);
    assert_eq!(backend.runtimes.len(), 0);
    let error = match opening.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(outcome) => outcome.unwrap_err(),
        Poll::Pending => panic!("it waits for a runtime that is gone"),
    };
    assert_eq!(error.kind, StoreErrorKind::Unavailable);
}

#[test]
fn a_listening_channel_ends_with_its_runtime_and_tells() {
    let server = RedisServer::start();
    let backend = Arc::new(server.backend());
    let runtime = runtime();
    let contender = runtime.block_on(Contender::on(backend));
    drop(runtime);
    assert!(!contender.channel().is_open());
    self::runtime().block_on(contender.hears(Heard::Interrupted));
}

#[test]
fn outside_a_runtime_there_is_an_error_and_no_panic() {
    let server = RedisServer::start();
    let backend = server.backend();
    assert!(backend.channel().is_none());
    let ears = Arc::downgrade(&Contender::ears()) as Weak<dyn Events>;
    for mut opening in [backend.open(), backend.open_listening(ears)] {
        let outcome = match opening.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(outcome) => outcome,
            Poll::Pending => panic!("it waits for a runtime that is not there"),
        };
        let error = outcome.unwrap_err();
        assert_eq!(error.kind, StoreErrorKind::Refused);
        assert!(error.message.contains("tokio"), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_at_once_join_one_attempt() {
    let server = RedisServer::start();
    let backend = Arc::new(server.backend());
    let count = || server.run::<String>(&["CLIENT", "LIST"]).lines().count();
    let before = count();
    let mut callers = tokio::task::JoinSet::new();
    for _ in 0..50 {
        callers.spawn(backend.open());
    }
    // Whoever leaves, first or later, takes nothing from the others.
    drop(backend.open());
    let channels: Vec<_> = callers.join_all().await.into_iter().map(Result::unwrap).collect();
    assert!(channels.iter().all(|channel| Arc::ptr_eq(channel, &channels[0])));
    assert_eq!(count(), before + 1);
}

#[tokio::test]
async fn the_first_caller_may_leave_and_the_others_still_get_the_channel() {
    let server = RedisServer::start();
    let backend = server.backend();
    let mut first = backend.open();
    let poll = std::future::poll_fn(|context| Poll::Ready(first.as_mut().poll(context).is_ready()));
    assert!(!poll.await);
    let second = backend.open();
    drop(first);
    assert!(second.await.unwrap().is_open());
}

#[tokio::test]
async fn a_client_that_is_gone_leaves_no_connection() {
    let server = RedisServer::start();
    let count = || server.run::<String>(&["CLIENT", "LIST"]).lines().count();
    let before = count();
    let backend = Arc::new(server.backend());
    backend.open().await.unwrap();
    let contender = Contender::on(Arc::clone(&backend) as Arc<dyn Backend>).await;
    assert_eq!(count(), before + 2);
    drop((backend, contender));
    eventually("the connections go", || count() == before).await;
}

/// What was sent on a runtime that is not polled any more has no answer, and no end by itself either.
#[test]
fn a_driver_does_not_wait_for_a_runtime_that_stands_still() {
    let server = RedisServer::start();
    let standing = runtime();
    {
        let client = LockClient::on(Arc::new(server.backend()));
        let key = || LockKey::literal("k");
        standing.block_on(client.lock(key()).run(|_| async {})).unwrap();
        let _entered = standing.enter();
        let mut call = Box::pin(client.lock(key()).lease(Duration::from_secs(1)).acquire());
        let polled = call.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(polled.is_pending());
    }
    let connections = || {
        let list: String = server.run(&["CLIENT", "LIST"]);
        list.lines().filter(|client| client.contains("sub=1")).count()
    };
    let becomes = |expected: usize| {
        let reached = (0..2000).any(|_| {
            std::thread::sleep(Duration::from_millis(5));
            connections() == expected
        });
        assert!(reached, "never {expected}");
    };
    // It sends the release by its own connection, and ends.
    becomes(1);
    becomes(0);
}
