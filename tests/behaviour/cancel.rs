//! A call that is dropped at any of its awaits leaves nothing: no key, no place in a queue, no
//! renewal; and the next caller gets in at once.
//!
//! Each call is polled n times and dropped, for every n until it is done: once right after the n-th
//! poll, and once when it has been woken again but not polled. On Redis each reply comes late, so
//! that every stage lasts.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use distlock::{LockClient, LockErrorKind, LockGuard};
use redis::AsyncCommands;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::common::{LONG, LockText, SLACK, SOON, bound, literal, ms, queued};
use crate::support::{
    CommandLog, Proxy, RedisServer, Store, eventually, on_every_store, unique_key,
};

on_every_store! {
    dropped_run_leaves_nothing,
    dropped_first_call_of_a_client_leaves_nothing,
    dropped_waiter_leaves_nothing,
    dropped_waiter_behind_another_leaves_the_other_its_turn,
    dropped_local_waiter_leaves_nothing,
    dropped_try_leaves_nothing,
    dropped_call_on_several_keys_leaves_nothing,
    dropped_nested_call_leaves_the_outer_hold_alone,
    dropped_release_goes_on_in_the_background,
    dropped_extend_leaves_the_lock_ours,
    dropped_look_at_the_holder_leaves_the_client_usable,
    dropped_shutdown_can_be_called_again,
}

/// A client whose store is slow to answer, and where to look.
struct Scene {
    store: Store,
    proxy: Option<Proxy>,
}

const DELAY: Duration = ms(15);
/// What is not given back stays for as long.
const LEASE: Duration = ms(6_000);

impl Scene {
    fn of(store: Store) -> Self {
        let proxy = match &store {
            Store::Memory(_) | Store::Quorum(_) => None,
            Store::Redis(server) => Some(Proxy::start(server.address())),
        };
        if let Some(proxy) = &proxy {
            proxy.delay_replies(DELAY);
        }
        Self { store, proxy }
    }

    fn client(&self) -> LockClient {
        let builder = match &self.proxy {
            None => self.store.builder(),
            Some(proxy) => LockClient::builder().url(proxy.url()),
        };
        builder.lease(LEASE).wait(LONG).build().unwrap()
    }

    async fn nothing_is_left(&self, key: &str, n: usize) {
        // On a real server: long before a lease ends, or a place in a queue.
        let within = bound(&self.store, ms(200), SLACK);
        match &self.store {
            Store::Memory(_) | Store::Quorum(_) => {
                let nodes = match &self.store {
                    Store::Memory(store) => std::slice::from_ref(store),
                    Store::Quorum(nodes) => nodes,
                    Store::Redis(_) => &[],
                };
                let free = async || nodes.iter().all(|store| store.get(key).is_none());
                eventually(&format!("{key} is free, n = {n}"), within, free).await;
            }
            Store::Redis(server) => {
                let mut connection = server.connection().await;
                let keys = [
                    key.to_owned(),
                    format!("distlock:{{{key}}}:queue"),
                    format!("distlock:{{{key}}}:waiters"),
                ];
                eventually(&format!("{key} and its queue are gone, n = {n}"), within, async || {
                    connection.exists::<_, usize>(&keys).await.unwrap() == 0
                })
                .await;
            }
        }
        // Not through the client under test: whoever comes next. What was sent last may have come to
        // the server only now, and its release right behind it.
        let next = self.store.client().on(key).wait(within).acquire().await;
        next.unwrap_or_else(|error| panic!("n = {n}: {error}")).release().await.unwrap();
    }

    /// Ends with a look at the wire.
    async fn nothing_is_sent_for(&self, key: &str) {
        if let Store::Redis(server) = &self.store {
            nothing_is_sent(server, |command| command.contains(key)).await;
        }
    }
}

/// Nobody renews what is gone; and what is still given back, since it was written last or an answer
/// was late, is settled soon.
async fn nothing_is_sent(server: &RedisServer, concerns: impl Fn(&str) -> bool) {
    let log = CommandLog::start(server);
    let release = words_of_a_release(server, &log).await;
    let start = Instant::now();
    loop {
        let mark = log.mark();
        // What is left of a hold is renewed within a third of its lease.
        tokio::time::sleep(LEASE / 3 + ms(500)).await;
        let sent: Vec<_> =
            log.since(mark).into_iter().filter(|command| concerns(command)).collect();
        let others: Vec<_> = sent.iter().filter(|sent| !sent.starts_with(&release)).collect();
        assert!(others.is_empty(), "{others:#?}");
        if sent.is_empty() {
            return;
        }
        assert!(start.elapsed() < LONG / 2, "given back again and again: {sent:#?}");
    }
}

/// How each release begins.
async fn words_of_a_release(server: &RedisServer, log: &CommandLog) -> String {
    let client = LockClient::builder().url(server.url()).build().unwrap();
    let (key, mark) = (unique_key("release"), log.mark());
    client.on(&key).acquire().await.unwrap().release().await.unwrap();
    let sent = log.since(mark);
    let release = sent.iter().rfind(|sent| sent.starts_with("EVALSHA") && sent.contains(&key));
    release.expect("it was released").split(' ').take(2).collect::<Vec<_>>().join(" ")
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moment {
    AfterPoll,
    AfterWake,
}

#[derive(Default)]
struct Alarm(Notify);

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        self.0.notify_one();
    }
}

/// Polls `future` `polls` times, as it asks for it, and drops it. True if it was done before.
async fn dropped_after<F: Future>(polls: usize, moment: Moment, future: F) -> bool {
    let alarm = Arc::new(Alarm::default());
    let waker = Waker::from(Arc::clone(&alarm));
    let mut future = pin!(future);
    for poll in 1..=polls {
        if future.as_mut().poll(&mut Context::from_waker(&waker)).is_ready() {
            return true;
        }
        if poll == polls && moment == Moment::AfterPoll {
            break;
        }
        tokio::time::timeout(SOON, alarm.0.notified()).await.expect("woken at last");
    }
    false
}

/// Drops what `call` makes at each of its awaits, and runs `check` after each.
async fn at_every_await<F: Future>(mut call: impl FnMut() -> F, mut check: impl AsyncFnMut(usize)) {
    for moment in [Moment::AfterPoll, Moment::AfterWake] {
        let mut polls = 0;
        loop {
            let done = dropped_after(polls, moment, call()).await;
            check(polls).await;
            if done {
                break;
            }
            polls += 1;
            assert!(polls < 200, "it never ends");
        }
    }
}

async fn body(client: &LockClient, key: &str) {
    tokio::task::yield_now().await;
    client.on(key).run(|_| tokio::task::yield_now()).await.unwrap();
}

async fn dropped_run_leaves_nothing(store: Store) {
    let (scene, key) = (Scene::of(store), unique_key("cancel-run"));
    let client = scene.client();
    client.holder(literal(&key)).await.unwrap();
    let call = || client.on(&key).run(|_| body(&client, &key));

    at_every_await(call, async |n| scene.nothing_is_left(&key, n).await).await;

    scene.nothing_is_sent_for(&key).await;
}

async fn dropped_first_call_of_a_client_leaves_nothing(store: Store) {
    let (scene, key) = (Scene::of(store), unique_key("cancel-first"));
    // Each time it has to connect, too.
    let call = || {
        let client = scene.client();
        let request = client.on(&key);
        async move {
            request.run(|_| tokio::task::yield_now()).await.unwrap();
            drop(client);
        }
    };

    at_every_await(call, async |n| scene.nothing_is_left(&key, n).await).await;

    scene.nothing_is_sent_for(&key).await;
}

async fn dropped_waiter_leaves_nothing(store: Store) {
    let (scene, key) = (Scene::of(store), unique_key("cancel-wait"));
    let client = scene.client();
    let holder = scene.store.client();
    for moment in [Moment::AfterPoll, Moment::AfterWake] {
        for polls in 0.. {
            let guard = holder.on(&key).acquire().await.unwrap();
            // Once the waiter stands in the queue, or has gone.
            let release = async {
                tokio::time::sleep(3 * DELAY).await;
                guard.release().await.unwrap();
            };
            let call = client.on(&key).run(|_| body(&client, &key));
            let (done, ()) = tokio::join!(dropped_after(polls, moment, call), release);
            scene.nothing_is_left(&key, polls).await;
            if done {
                break;
            }
        }
    }
    scene.nothing_is_sent_for(&key).await;
}

async fn dropped_waiter_behind_another_leaves_the_other_its_turn(store: Store) {
    let (scene, key) = (Scene::of(store), unique_key("cancel-heir"));
    let client = scene.client();
    let holder = scene.store.client();
    for moment in [Moment::AfterPoll, Moment::AfterWake] {
        for polls in 1.. {
            let guard = holder.on(&key).acquire().await.unwrap();
            let first = client.on(&key).run(|_| body(&client, &key));
            let mut first = Box::pin(first);
            assert!(crate::common::poll_once(first.as_mut()).await.is_pending());
            let second = tokio::spawn(client.on(&key).acquire());
            let release = async {
                tokio::time::sleep(3 * DELAY).await;
                guard.release().await.unwrap();
            };
            let (done, ()) = tokio::join!(dropped_after(polls, moment, first), release);
            let guard = second.await.unwrap().unwrap();
            guard.release().await.unwrap();
            scene.nothing_is_left(&key, polls).await;
            if done {
                break;
            }
        }
    }
}

/// The lock is passed on inside of the client, at different moments of the waiter's life.
async fn dropped_local_waiter_leaves_nothing(store: Store) {
    let (scene, key) = (Scene::of(store), unique_key("cancel-local"));
    let client = scene.client();
    for moment in [Moment::AfterPoll, Moment::AfterWake] {
        for held_for in [ms(0), ms(5), 3 * DELAY] {
            for polls in 0.. {
                let guard = client.on(&key).acquire().await.unwrap();
                let release = async {
                    tokio::time::sleep(held_for).await;
                    drop(guard);
                };
                let call = client.on(&key).run(|_| body(&client, &key));
                let (done, ()) = tokio::join!(dropped_after(polls, moment, call), release);
                scene.nothing_is_left(&key, polls).await;
                if done {
                    break;
                }
            }
        }
    }
    scene.nothing_is_sent_for(&key).await;
}

async fn dropped_try_leaves_nothing(store: Store) {
    let (scene, key) = (Scene::of(store), unique_key("cancel-try"));
    let client = scene.client();

    let call = || client.on(&key).try_acquire();
    at_every_await(call, async |n| scene.nothing_is_left(&key, n).await).await;

    let guard = scene.store.client().on(&key).acquire().await.unwrap();
    let held =
        async |_| assert_eq!(scene.store.owner_of(&key).await.as_deref(), Some(guard.owner()));
    at_every_await(call, held).await;
}

async fn dropped_call_on_several_keys_leaves_nothing(store: Store) {
    let scene = Scene::of(store);
    let (a, b) = (unique_key("cancel-all-a"), unique_key("cancel-all-b"));
    let client = scene.client();
    let call = || client.lock_all([literal(&a), literal(&b)]).run(|_| tokio::task::yield_now());

    at_every_await(call, async |n| {
        scene.nothing_is_left(&a, n).await;
        scene.nothing_is_left(&b, n).await;
    })
    .await;

    scene.nothing_is_sent_for(&a).await;
}

async fn dropped_nested_call_leaves_the_outer_hold_alone(store: Store) {
    let (scene, key) = (Scene::of(store), unique_key("cancel-nested"));
    let client = scene.client();
    let guard = client.on(&key).acquire().await.unwrap();
    let call = || {
        guard.scope(async {
            // A sibling is inside at first, so that the call waits at the gate, too.
            let sibling = client.on(&key).run(|_| tokio::time::sleep(ms(5)));
            tokio::join!(sibling, client.on(&key).run(|_| body(&client, &key)))
        })
    };

    at_every_await(call, async |n| {
        let owner = scene.store.owner_of(&key).await;
        assert_eq!(owner.as_deref(), Some(guard.owner()), "n = {n}");
        assert!(!guard.is_lost());
        let next = guard.scope(client.on(&key).wait(ms(0)).run(|_| async {}));
        next.await.unwrap().expect("the gate is open");
    })
    .await;

    guard.release().await.unwrap();
    scene.nothing_is_left(&key, 0).await;
}

async fn dropped_release_goes_on_in_the_background(store: Store) {
    let (scene, key) = (Scene::of(store), unique_key("cancel-release"));
    let client = scene.client();
    for moment in [Moment::AfterPoll, Moment::AfterWake] {
        for polls in 0.. {
            let guard: LockGuard = client.on(&key).acquire().await.unwrap();
            let done = dropped_after(polls, moment, guard.release()).await;
            scene.nothing_is_left(&key, polls).await;
            if done {
                break;
            }
        }
    }
    scene.nothing_is_sent_for(&key).await;
}

async fn dropped_extend_leaves_the_lock_ours(store: Store) {
    let (scene, key) = (Scene::of(store), unique_key("cancel-extend"));
    let client = scene.client();
    let guard = client.on(&key).acquire().await.unwrap();

    at_every_await(
        || guard.extend(2 * LEASE),
        async |n| {
            assert!(!guard.is_lost(), "n = {n}");
            let owner = scene.store.owner_of(&key).await;
            assert_eq!(owner.as_deref(), Some(guard.owner()));
        },
    )
    .await;

    guard.release().await.unwrap();
    scene.nothing_is_left(&key, 0).await;
}

async fn dropped_look_at_the_holder_leaves_the_client_usable(store: Store) {
    let (scene, key) = (Scene::of(store), unique_key("cancel-holder"));
    let call = || {
        let client = scene.client();
        let key = literal(&key);
        async move { client.holder(key).await.unwrap() }
    };

    at_every_await(call, async |n| scene.nothing_is_left(&key, n).await).await;
}

async fn dropped_shutdown_can_be_called_again(store: Store) {
    let (scene, key) = (Scene::of(store), unique_key("cancel-shutdown"));
    for moment in [Moment::AfterPoll, Moment::AfterWake] {
        for polls in 0.. {
            let client = scene.client();
            let (begin, begun) = tokio::sync::oneshot::channel::<()>();
            let call = tokio::spawn(client.on(&key).run(|_| async {
                begin.send(()).unwrap();
                std::future::pending::<()>().await;
            }));
            begun.await.unwrap();
            let waiter = tokio::spawn(client.on(&key).wait(LONG).acquire());
            queued(&scene.store, &key, 1).await;

            let done = dropped_after(polls, moment, client.shutdown(ms(30))).await;

            if polls > 0 {
                let error = waiter.await.unwrap().unwrap_err();
                assert_eq!(error.kind(), LockErrorKind::ShutDown);
            } else {
                waiter.abort();
            }
            client.shutdown(ms(30)).await.unwrap();
            let error = call.await.unwrap().unwrap_err();
            assert_eq!(error.kind(), LockErrorKind::ShutDown);
            assert_eq!(scene.store.owner_of(&key).await, None);
            scene.nothing_is_left(&key, polls).await;
            if done {
                break;
            }
        }
    }
}

// On Redis alone.

/// b18, f85: the reply is under way for 50 ms, and the caller gives up before, during and after.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acquire_timed_out_at_any_millisecond_leaves_nothing() {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.address());
    let client = LockClient::builder().url(proxy.url()).lease(LEASE).build().unwrap();
    client.holder(literal("warm")).await.unwrap();
    proxy.delay_replies(ms(50));
    let mut connection = server.connection().await;
    for time in (0..100).step_by(3) {
        let key = unique_key("timed-out");
        let acquired = tokio::time::timeout(ms(time), client.on(&key).acquire()).await;
        drop(acquired);
        eventually(&format!("nothing is left after {time} ms"), SLACK, async || {
            connection.exists::<_, usize>(&key).await.unwrap() == 0
        })
        .await;
    }
    nothing_is_sent(&server, |_| true).await;
}

/// b17: a thousand short calls, dropped around the reply.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn short_calls_dropped_around_the_reply_leave_no_renewal() {
    let server = RedisServer::start();
    let client = LockClient::builder().url(server.url()).lease(LEASE).build().unwrap();
    let keys: Vec<_> = (0..8).map(|_| unique_key("short")).collect();
    let tasks: Vec<_> = keys
        .iter()
        .cloned()
        .map(|key| {
            let client = client.clone();
            tokio::spawn(async move {
                for round in 0..250_u64 {
                    let call = client.on(&key).run(|_| tokio::task::yield_now());
                    let limit = Duration::from_micros(round * 37 % 1_500);
                    let _ = tokio::time::timeout(limit, call).await;
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    let mut connection = server.connection().await;
    eventually("no key is left", SLACK, async || {
        connection.exists::<_, usize>(&keys).await.unwrap() == 0
    })
    .await;
    nothing_is_sent(&server, |_| true).await;
}

/// A future that was polled once and then forgotten, with a grant that comes later.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn call_that_is_never_polled_again_does_not_keep_its_grant() {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.address());
    let client = LockClient::builder().url(proxy.url()).build().unwrap();
    let key = unique_key("forgotten");
    client.holder(literal(&key)).await.unwrap();
    let guard = LockClient::builder().url(server.url()).build().unwrap();
    let guard = guard.on(&key).acquire().await.unwrap();
    let mut forgotten = Box::pin(client.on(&key).wait(LONG).acquire());
    let gate = proxy.hold_next_reply("SET");
    assert!(matches!(crate::common::poll_once(forgotten.as_mut()).await, Poll::Pending));
    gate.reached().await;
    guard.release().await.unwrap();
    gate.open();

    let other = LockClient::builder().url(server.url()).build().unwrap();
    // If the forgotten one had it, its lease would be renewed for ever.
    let other = other.on(&key).wait(LONG / 2).acquire().await.unwrap();

    other.release().await.unwrap();
    drop(forgotten);
}

/// A grant that came so late that it has to be renewed first, and the caller that leaves then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropped_at_the_renewal_of_a_late_grant_leaves_nothing() {
    let scene = Scene::of(Store::redis());
    let proxy = scene.proxy.as_ref().unwrap();
    proxy.heal();
    let builder = LockClient::builder().url(proxy.url()).response_timeout(LONG);
    let client = builder.lease(LEASE).wait(LONG).build().unwrap();
    let key = unique_key("late-grant");
    client.holder(literal(&key)).await.unwrap();
    proxy.delay_next_reply("SET", LEASE / 2);
    let renewal = proxy.hold_next_reply("EVALSHA");
    let call = tokio::spawn(client.on(&key).acquire());
    renewal.reached().await;
    assert!(scene.store.owner_of(&key).await.is_some());

    call.abort();

    scene.nothing_is_left(&key, 0).await;
}
