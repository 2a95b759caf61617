//! Servers that are gone, silent, read-only or forgetful.

use std::future::{Future, poll_fn};
use std::net::TcpListener;
use std::pin::Pin;
use std::task::Poll;
use std::time::Instant;

use super::*;

#[tokio::test]
async fn a_refused_port_is_unavailable_at_once() {
    // Where nobody listens, and nobody else may begin to meanwhile.
    let mut config = config_from_url("redis://127.0.0.1:1").unwrap();
    config.connect_timeout = 10 * SLACK;
    let started = Instant::now();
    let error = RedisBackend::new(config).open().await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Unavailable);
    assert!(error.message.contains("127.0.0.1:1: connection refused"), "{error}");
    assert!(started.elapsed() < SLACK);
}

#[tokio::test]
async fn a_server_that_never_answers_costs_the_connect_time_out() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    // Another one than the default, which would do as well for a server that answers never.
    let mut config = config_from_url(&url).unwrap();
    let limit = 2 * config.connect_timeout;
    config.connect_timeout = limit;
    let backend = RedisBackend::new(config);
    let ears = Arc::downgrade(&Contender::ears()) as Weak<dyn Events>;
    let started = Instant::now();
    let (commands, listening) = tokio::join!(backend.open(), backend.open_listening(ears));
    assert_eq!(kind_of(commands), StoreErrorKind::Unavailable);
    assert_eq!(kind_of(listening), StoreErrorKind::Unavailable);
    let elapsed = started.elapsed();
    assert!(elapsed >= limit && elapsed < limit + SLACK, "{elapsed:?}");
    assert_eq!(backend.runtimes.len(), 0);
}

#[tokio::test]
async fn a_channel_closes_when_the_server_falls_silent() {
    let server = RedisServer::start();
    let backend = impatient(server.config());
    let contender = Contender::on(Arc::new(backend)).await;
    let ours = lock("k", "ours");
    hold(contender.channel(), &ours).await;
    server.freeze();
    for open_after in [true, false] {
        let started = Instant::now();
        let error = contender.channel().release(&ours, CLAIM).await.unwrap_err();
        assert_eq!(error.kind, StoreErrorKind::Unavailable);
        assert!(started.elapsed() < PATIENCE + SLACK);
        assert_eq!(contender.channel().is_open(), open_after);
    }
    contender.hears(Heard::Interrupted).await;
    server.thaw();
    let error = contender.channel().acquire(&ours, LEASE).await.unwrap_err();
    assert!(error.message.contains("was closed"), "{error}");
}

#[tokio::test]
async fn a_late_answer_keeps_the_channel_open() {
    let server = RedisServer::start();
    let backend = impatient(server.config());
    let channel = backend.open().await.unwrap();
    hold(&*channel, &lock("first", "ours")).await;
    for round in 0..3 {
        server.freeze();
        let held = lock("k", "ours");
        assert_eq!(kind_of(channel.acquire(&held, LEASE).await), StoreErrorKind::Unavailable);
        server.thaw();
        assert!(channel.inspect(&held.key).await.unwrap().is_some(), "round {round}");
    }
    assert!(channel.is_open());
}

#[tokio::test]
async fn an_answer_that_a_blocked_runtime_did_not_read_is_no_time_out() {
    let server = RedisServer::start();
    let backend = impatient(server.config());
    let channel = backend.open().await.unwrap();
    for round in 0..5 {
        let mut acquiring = channel.acquire(&lock("k", &format!("owner {round}")), LEASE);
        assert!(poll_once(&mut acquiring).await.is_none());
        // Once around, so that it is on its way.
        tokio::task::yield_now().await;
        std::thread::sleep(2 * PATIENCE);
        acquiring.await.unwrap();
    }
}

#[tokio::test]
async fn a_disconnect_closes_the_channels_and_is_told() {
    let server = RedisServer::start();
    let backend = Arc::new(server.backend());
    let commands = backend.open().await.unwrap();
    let contender = Contender::on(Arc::clone(&backend) as Arc<dyn Backend>).await;
    server.run::<()>(&["CLIENT", "KILL", "TYPE", "normal"]);
    server.run::<()>(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    // Nobody asks anything: the disconnect itself is noticed.
    eventually("the channels close", || !commands.is_open() && !contender.channel().is_open())
        .await;
    contender.hears(Heard::Interrupted).await;
    assert!(backend.channel().is_none());
    assert_eq!(backend.runtimes.len(), 0);
    let again = backend.open().await.unwrap();
    hold(&*again, &lock("k", "ours")).await;
}

#[tokio::test]
async fn a_request_under_way_at_a_disconnect_fails_at_once() {
    let server = RedisServer::start();
    let channel = server.backend().open().await.unwrap();
    server.freeze();
    let asking = tokio::spawn(channel.inspect(&"k".into()));
    tokio::task::yield_now().await;
    drop(server);
    assert_eq!(kind_of(asking.await.unwrap()), StoreErrorKind::Unavailable);
    assert!(!channel.is_open());
}

#[tokio::test]
async fn a_replica_is_left_for_a_new_connection() {
    let server = RedisServer::start();
    let backend = server.backend();
    for read in [false, true] {
        let channel = backend.open().await.unwrap();
        let ours = lock("k", "ours");
        if read {
            hold(&*channel, &ours).await;
        }
        server.run::<()>(&["REPLICAOF", "127.0.0.1", "1"]);
        let kind = if read {
            let renewal = Renewal { lock: ours, lease: LEASE };
            kind_of(channel.renew(&[renewal]).await)
        } else {
            kind_of(channel.acquire(&ours, LEASE).await)
        };
        assert_eq!(kind, StoreErrorKind::Unavailable);
        assert!(!channel.is_open());
        server.run::<()>(&["REPLICAOF", "NO", "ONE"]);
    }
}

#[tokio::test]
async fn refused_writes_are_unavailable_and_leave_the_channel_open() {
    let server = RedisServer::start();
    let channel = server.backend().open().await.unwrap();
    let ours = lock("k", "ours");
    hold(&*channel, &ours).await;
    server.run::<()>(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
    let acquired = channel.acquire(&lock("other", "ours"), LEASE).await;
    assert_eq!(kind_of(acquired), StoreErrorKind::Unavailable);
    let renewal = Renewal { lock: ours.clone(), lease: LEASE };
    assert_eq!(kind_of(channel.renew(&[renewal]).await), StoreErrorKind::Unavailable);
    assert_eq!(kind_of(channel.release(&ours, CLAIM).await), StoreErrorKind::Unavailable);
    assert!(channel.is_open());
    server.run::<()>(&["CONFIG", "SET", "min-replicas-to-write", "0"]);
    assert_eq!(channel.release(&ours, CLAIM).await.unwrap(), Released::Freed);
}

#[tokio::test]
async fn a_server_out_of_memory_still_hands_the_lock_on() {
    let server = RedisServer::start();
    let contender = Contender::on(Arc::new(server.backend())).await;
    let [holder, waiting] = ["holder", "waiting"].map(|owner| lock("k", owner));
    hold(contender.channel(), &holder).await;
    contender.contend(&waiting).await;
    server.run::<()>(&["CONFIG", "SET", "maxmemory", "1"]);
    let released = contender.channel().release(&holder, CLAIM).await.unwrap();
    assert_eq!(released, granted_to(&waiting));
    let acquired = contender.channel().acquire(&lock("other", "ours"), LEASE).await;
    assert_eq!(kind_of(acquired), StoreErrorKind::Unavailable);
}

#[tokio::test]
async fn a_server_that_forgot_its_scripts_gets_them_again() {
    let server = RedisServer::start();
    let contender = Contender::on(Arc::new(server.backend())).await;
    let channel = contender.channel();
    let [first, second] = ["first", "second"].map(|owner| lock("k", owner));
    let forget = || server.run::<()>(&["SCRIPT", "FLUSH"]);
    forget();
    assert_eq!(contender.contend(&first).await, Contended::Granted);
    forget();
    assert!(matches!(contender.contend(&second).await, Contended::Queued { .. }));
    forget();
    let renewal = Renewal { lock: first.clone(), lease: LEASE };
    assert_eq!(channel.renew(&[renewal]).await.unwrap(), [Renewed::Renewed]);
    forget();
    assert!(channel.inspect(&first.key).await.unwrap().is_some());
    forget();
    assert_eq!(channel.release(&first, CLAIM).await.unwrap(), granted_to(&second));
}

#[tokio::test]
async fn a_script_sent_again_never_takes_what_a_later_release_gave_back() {
    let server = RedisServer::start();
    let contender = Contender::on(Arc::new(server.backend())).await;
    let channel = contender.channel();
    let ours = lock("k", "ours");
    for _ in 0..50 {
        server.run::<()>(&["SCRIPT", "FLUSH"]);
        // The first to be polled is the first to be sent, and the last to be sent again.
        let contending = channel.contend(&ours, LEASE, KEEP);
        let (contended, released) = tokio::join!(
            biased;
            contending,
            channel.release(&ours, CLAIM),
        );
        assert_eq!(kind_of(contended), StoreErrorKind::Unavailable);
        assert_eq!(released.unwrap(), Released::Gone);
        assert_eq!(server.run::<Option<String>>(&["GET", "k"]), None);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_without_budget_still_sends_at_its_first_poll() {
    let server = RedisServer::start();
    let channel = server.backend().open().await.unwrap();
    // A server before Redis 7 is known as such from here on.
    hold(&*channel, &lock("first", "ours")).await;
    let ours = lock("k", "ours");
    let releasing = channel.release(&ours, CLAIM);
    let task = tokio::spawn(async move {
        while poll_once(&mut Box::pin(tokio::task::consume_budget())).await.is_some() {}
        let mut acquiring = channel.acquire(&ours, LEASE);
        assert!(poll_once(&mut acquiring).await.is_none());
        let released = tokio::spawn(releasing).await.unwrap().unwrap();
        (acquiring.await.unwrap(), released)
    });
    assert_eq!(task.await.unwrap(), (Acquired::Granted, Released::Freed));
}

async fn poll_once<T>(future: &mut Pin<Box<impl Future<Output = T> + ?Sized>>) -> Option<T> {
    poll_fn(|context| match future.as_mut().poll(context) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}
