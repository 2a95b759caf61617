//! Faults between the client and Redis, made by a proxy.

use std::cell::Cell;
use std::time::Duration;

use distlock::{LockClient, LockClientBuilder, LockErrorKind};
use futures_util::future::join_all;
use redis::AsyncCommands;
use tokio::time::Instant;

use crate::common::{
    ANSWERED, Inside, LONG, LOOKS_AGAIN, LockText, SLACK, SOON, WOKEN, literal, ms, poll_once,
    queued_at,
};
use crate::support::{CommandLog, Proxy, RedisServer, eventually, unique_key};

/// A lost reply is soon found out; one of a busy machine is seldom taken for lost.
const RESPONSE: Duration = ms(400);

/// A server with a proxy in front of it, and a key.
struct Scene {
    server: RedisServer,
    proxy: Proxy,
    key: String,
}

type Fault = fn(&Scene);

impl Scene {
    fn new() -> Self {
        let server = RedisServer::start();
        let proxy = Proxy::start(server.address());
        Self { server, proxy, key: unique_key("network") }
    }

    fn builder(&self) -> LockClientBuilder {
        LockClient::builder()
            .url(self.proxy.url())
            .response_timeout(RESPONSE)
            .connect_timeout(RESPONSE)
    }

    /// A client behind the proxy that has connected all it needs.
    async fn client(&self) -> LockClient {
        self.warm(self.builder()).await
    }

    async fn warm(&self, builder: LockClientBuilder) -> LockClient {
        let client = builder.build().unwrap();
        drop(client.on("warm").acquire().await.unwrap());
        eventually("it is released", SOON, async || {
            client.holder(literal("warm")).await.is_ok_and(|holder| holder.is_none())
        })
        .await;
        client
    }

    /// A client that no fault of the proxy's meets.
    fn direct(&self) -> LockClient {
        LockClient::builder().url(self.server.url()).build().unwrap()
    }

    /// When the key expires at the latest: of several looks the one that was answered fastest.
    async fn key_ends_by(&self) -> Instant {
        let mut connection = self.server.connection().await;
        let mut ends = Vec::new();
        for _ in 0..20 {
            let left: u64 = connection.pttl(&self.key).await.unwrap();
            ends.push(Instant::now() + ms(left));
        }
        ends.into_iter().min().expect("there are some")
    }

    async fn owner(&self) -> Option<String> {
        self.server.connection().await.get(&self.key).await.unwrap()
    }

    /// The key is given back, long before the usual lease ends.
    async fn freed(&self) {
        eventually("the key is free", SOON, async || self.owner().await.is_none()).await;
    }
}

/// d60, a10, R1: by which fault ever, the call returns in time, and the body does not run.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wait_bounds_a_call_whatever_the_network_does() {
    let faults: [(&str, Fault); 4] = [
        ("refused", |scene| {
            scene.proxy.refuse();
            scene.proxy.cut();
        }),
        ("black hole", |scene| scene.proxy.blackhole()),
        ("stalled", |scene| scene.proxy.stall()),
        ("slow", |scene| scene.proxy.delay_replies(LONG)),
    ];
    let cases = faults.into_iter().flat_map(|fault| [(fault, false), (fault, true)]);
    let cases: Vec<_> = cases.map(|(fault, connected)| (Scene::new(), fault, connected)).collect();
    join_all(cases.into_iter().map(async |(scene, (fault, make), connected)| {
        let inside = Inside::default();
        let patient = scene.builder().response_timeout(LONG).connect_timeout(LONG);
        let client = async |builder: LockClientBuilder| match connected {
            true => scene.warm(builder).await,
            false => builder.build().unwrap(),
        };
        // Nothing but the wait ends a call of the first one.
        let (patient, client) = (client(patient).await, client(scene.builder()).await);
        make(&scene);
        for (client, wait) in [(&patient, ms(50)), (&patient, ms(500)), (&client, ms(500))] {
            let start = Instant::now();
            let call = client.on(&scene.key).wait(wait).run(|_| async { drop(inside.enter()) });
            let error = call.await.unwrap_err();
            let took = start.elapsed();
            assert!(took <= wait + SLACK, "{fault}, {connected}: {took:?} for {wait:?}");
            assert_eq!(error.kind(), LockErrorKind::Backend, "{fault}, {connected}: {error}");
            assert!(error.is_retryable() && error.waited().is_some());
        }
        let start = Instant::now();
        let error = client.on(&scene.key).try_acquire().await.unwrap_err();
        assert_eq!(error.kind(), LockErrorKind::Backend, "{fault}: {error}");
        let latest = 3 * RESPONSE + SLACK;
        assert!(start.elapsed() < latest, "{fault}: a try took {:?}", start.elapsed());
        let start = Instant::now();
        assert!(client.holder(literal(&scene.key)).await.is_err());
        assert!(start.elapsed() < latest, "{fault}: a look took {:?}", start.elapsed());
        assert_eq!(inside.total(), 0, "{fault}");
    }))
    .await;
}

/// f86: a peer that accepts and never answers.
#[tokio::test]
async fn silent_peer_at_the_start_is_an_error_in_time() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}/", silent.local_addr().unwrap());
    let start = Instant::now();

    let builder = || LockClient::builder().url(&url).connect_timeout(LONG).wait(ms(300));
    let connected = builder().connect().await;
    assert_eq!(connected.unwrap_err().kind(), LockErrorKind::Backend);
    let client = builder().build().unwrap();
    let error = client.on("silent").acquire().await.unwrap_err();

    assert_eq!(error.kind(), LockErrorKind::Backend, "{error}");
    assert!(start.elapsed() < ms(600) + SLACK, "{:?}", start.elapsed());
}

#[tokio::test]
async fn client_whose_calls_do_not_wait_can_connect() {
    let server = RedisServer::shared();
    let client = LockClient::builder().url(server.url()).wait(Duration::ZERO).connect().await;

    client.unwrap().on(&unique_key("no-wait")).acquire().await.unwrap().release().await.unwrap();
}

/// R13: an outage that ends within `wait` is outwaited.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn outage_shorter_than_the_wait_is_outwaited() {
    for connected in [false, true] {
        let scene = Scene::new();
        let client =
            if connected { scene.client().await } else { scene.builder().build().unwrap() };
        scene.proxy.refuse();
        scene.proxy.cut();
        let call = tokio::spawn(client.on(&scene.key).wait(LONG).acquire());
        tokio::time::sleep(ms(300)).await;
        assert!(!call.is_finished());
        let start = Instant::now();

        scene.proxy.heal();

        call.await.unwrap().unwrap().release().await.unwrap();
        assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
        assert_eq!(scene.owner().await, None);
    }
}

/// e69, a "one logical acquire is one hold": the reply to the first send is lost in every way.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acquire_whose_reply_is_lost_is_one_hold_all_the_same() {
    let faults: [(&str, Fault); 4] = [
        ("dropped", |scene| scene.proxy.drop_next_reply("SET")),
        ("cut", |scene| scene.proxy.cut_at_next_reply("SET")),
        ("cut before", |scene| scene.proxy.cut_at_next_request("SET")),
        ("late", |scene| scene.proxy.delay_next_reply("SET", RESPONSE + ms(50))),
    ];
    for (fault, make) in faults {
        let scene = Scene::new();
        let client = scene.client().await;
        make(&scene);
        let start = Instant::now();

        let guard = client.on(&scene.key).lease(LONG).wait(LONG).acquire().await.unwrap();

        // Of another owner the lease would be outwaited.
        assert!(start.elapsed() < SOON, "{fault}: {:?}", start.elapsed());
        assert_eq!(scene.owner().await.as_deref(), Some(guard.owner()), "{fault}");
        assert!(guard.remaining() > LONG / 2, "{fault}: {:?}", guard.remaining());
        guard.release().await.unwrap();
        assert_eq!(scene.owner().await, None, "{fault}");
    }
}

/// d58: a waiter whose place was taken without its knowing leaves no place behind.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiter_whose_reply_was_lost_leaves_no_place_behind() {
    let scene = Scene::new();
    let client = scene.warm(scene.builder().response_timeout(ms(1_000))).await;
    let guard = scene.direct().on(&scene.key).acquire().await.unwrap();
    scene.proxy.drop_next_reply("EVALSHA");

    let error = client.on(&scene.key).wait(ms(500)).acquire().await.unwrap_err();

    assert!(matches!(error.kind(), LockErrorKind::Timeout | LockErrorKind::Backend), "{error}");
    queued_at(&scene.server, &scene.key, 0).await;
    guard.release().await.unwrap();
    assert!(scene.direct().on(&scene.key).try_acquire().await.unwrap().is_some());
}

/// c41, c43, c46: what the release meets never replaces the value, nor says "lost".
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn release_that_gets_no_answer_keeps_the_value_and_goes_on() {
    let faults: [(&str, Fault); 4] = [
        ("dropped", |scene| scene.proxy.drop_next_reply("EVALSHA")),
        ("cut", |scene| scene.proxy.cut_at_next_reply("EVALSHA")),
        ("cut before", |scene| scene.proxy.cut_at_next_request("EVALSHA")),
        ("answered BUSY", |scene| scene.proxy.answer_next("EVALSHA", "-BUSY script")),
    ];
    for (fault, make) in faults {
        let scene = Scene::new();
        let client = scene.client().await;
        let call = client.on(&scene.key).lease(LONG).strict().run(|_| async {
            make(&scene);
            42
        });
        let start = Instant::now();

        assert_eq!(call.await.unwrap(), 42, "{fault}");

        // Not as long as it may take to be sure, which is a lease.
        assert!(start.elapsed() < RESPONSE + SLACK, "{fault}: {:?}", start.elapsed());
        scene.freed().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn release_into_a_black_hole_returns_in_time_and_frees_after_it() {
    let scene = Scene::new();
    let client = scene.client().await;
    let guard = client.on(&scene.key).lease(LONG).acquire().await.unwrap();
    scene.proxy.blackhole();
    let start = Instant::now();

    guard.release().await.unwrap();

    assert!(start.elapsed() < RESPONSE + SLACK, "{:?}", start.elapsed());
    assert!(scene.owner().await.is_some());
    scene.proxy.heal();
    scene.freed().await;
}

/// c48: `Drop` hands over and returns, however slow Redis is.
#[tokio::test]
async fn drop_never_blocks() {
    let scene = Scene::new();
    let client = scene.warm(scene.builder().response_timeout(LONG)).await;
    let guards = [client.on(&scene.key), client.on(&unique_key("slow"))];
    let [first, second] = guards.map(|request| request.acquire());
    let (first, second) = (first.await.unwrap(), second.await.unwrap());
    scene.proxy.stall();
    let start = Instant::now();

    drop(first);
    drop(second);
    drop(client);

    assert!(start.elapsed() < SLACK, "{:?}", start.elapsed());
    tokio::time::timeout(SOON, tokio::task::yield_now()).await.unwrap();
    scene.proxy.heal();
    scene.freed().await;
}

/// c50: a late delete of a cancelled holder does not meet the next one of its process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn late_release_does_not_touch_the_next_holder_of_the_same_client() {
    let scene = Scene::new();
    let client = scene.client().await;
    let first = client.on(&scene.key).acquire().await.unwrap();
    let next = tokio::spawn(client.on(&scene.key).acquire());
    queued_at(&scene.server, &scene.key, 1).await;
    scene.proxy.delay_next_request("EVALSHA", ms(150));

    drop(first);
    let next = next.await.unwrap().unwrap();

    tokio::time::sleep(ms(300)).await;
    assert!(!next.is_lost());
    assert_eq!(scene.owner().await.as_deref(), Some(next.owner()));
    next.release().await.unwrap();
    assert_eq!(scene.owner().await, None);
}

/// A firewall has forgotten the connections; new ones work.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_connection_is_replaced_however_short_the_calls_are() {
    let scene = Scene::new();
    let client = scene.builder().response_timeout(ms(2_000)).build().unwrap();
    client.on(&scene.key).acquire().await.unwrap().release().await.unwrap();
    scene.proxy.blackhole();
    scene.proxy.heal();

    // Each gives up long before the connection would have by itself: else it is never replaced.
    eventually("a call gets through again", LONG / 2, async || {
        client.on(&scene.key).wait(ms(400)).acquire().await.is_ok()
    })
    .await;

    scene.freed().await;
}

/// The same for who cancels by itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_connection_is_replaced_however_early_the_callers_leave() {
    let scene = Scene::new();
    let client = scene.builder().response_timeout(ms(2_000)).build().unwrap();
    client.on(&scene.key).acquire().await.unwrap().release().await.unwrap();
    scene.proxy.blackhole();
    scene.proxy.heal();

    eventually("a look gets through again", LONG / 2, async || {
        let look = client.holder(literal(&scene.key));
        tokio::time::timeout(ms(400), look).await.is_ok_and(|seen| seen.is_ok())
    })
    .await;
}

// Renewal.

/// A body under a short lease while `fault` happens: true if it ran to its end undisturbed.
async fn survives(scene: &Scene, client: &LockClient, lease: Duration, last: Duration) -> bool {
    let (inside, key) = (Inside::default(), scene.key.clone());
    let rival = scene.direct();
    let rivals = tokio::spawn({
        let inside = inside.clone();
        async move {
            loop {
                if let Ok(Some(guard)) = rival.on(&key).try_acquire().await {
                    let _visit = inside.enter();
                    guard.release().await.unwrap();
                }
                tokio::time::sleep(ms(10)).await;
            }
        }
    });
    let call = client.on(&scene.key).lease(lease).strict().run(|_| async {
        let _visit = inside.enter();
        tokio::time::sleep(last).await;
    });
    let outcome = call.await;
    rivals.abort();
    let survived = outcome.is_ok();
    match outcome {
        Ok(()) => assert_eq!(inside.most(), 1, "two bodies at once"),
        // A lost body is not polled any more, but dropped only when its task has its turn.
        Err(error) => println!("{error}"),
    }
    survived
}

/// a1: one renewal is answered late, the next one never.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn late_and_lost_renewals_are_tried_again_in_time() {
    let scene = Scene::new();
    let client = scene.client().await;
    scene.proxy.delay_next_reply("EVALSHA", RESPONSE + ms(200));
    scene.proxy.drop_next_reply("EVALSHA");

    assert!(survives(&scene, &client, ms(4_000), ms(5_000)).await);
}

/// b26: errors that pass.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn renewal_that_is_refused_for_a_moment_is_tried_again() {
    let scene = Scene::new();
    let client = scene.client().await;
    for answer in ["-LOADING Redis is loading", "-BUSY a script", "-MISCONF disk", "-TRYAGAIN"] {
        scene.proxy.answer_next("EVALSHA", answer);
    }

    assert!(survives(&scene, &client, ms(3_000), ms(4_000)).await);
}

/// b25: all connections are gone, and none is to be had for a moment.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hold_outlasts_a_reconnect() {
    let scene = Scene::new();
    let client = scene.client().await;
    let fault = async {
        for _ in 0..3 {
            tokio::time::sleep(ms(850)).await;
            scene.proxy.refuse();
            scene.proxy.reset();
            tokio::time::sleep(ms(300)).await;
            scene.proxy.heal();
        }
    };

    let (survived, ()) = tokio::join!(survives(&scene, &client, ms(3_000), ms(4_000)), fault);

    assert!(survived);
}

/// The same where a reconnect takes several slow round trips.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hold_outlasts_a_reconnect_over_a_slow_network() {
    let scene = Scene::new();
    let client = scene.builder().response_timeout(ms(1_000)).connect_timeout(ms(1_000));
    let client = client.build().unwrap();
    client.on("warm").acquire().await.unwrap().release().await.unwrap();
    scene.proxy.delay_replies(ms(90));
    let fault = async {
        tokio::time::sleep(ms(1_400)).await;
        scene.proxy.cut();
    };

    let (survived, ()) = tokio::join!(survives(&scene, &client, ms(3_000), ms(4_500)), fault);

    assert!(survived);
}

/// A dead connection is noticed by a renewal early enough for another one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hold_outlasts_a_dead_connection() {
    let scene = Scene::new();
    let client = scene.warm(scene.builder().response_timeout(ms(2_000))).await;
    let fault = async {
        tokio::time::sleep(ms(100)).await;
        scene.proxy.blackhole();
        scene.proxy.heal();
    };

    let (survived, ()) = tokio::join!(survives(&scene, &client, ms(4_000), ms(5_000)), fault);

    assert!(survived);
}

/// b27: cut off for longer than the lease, the body is dropped before anybody else can be in.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn body_is_dropped_before_the_key_can_expire() {
    let scene = Scene::new();
    let client = scene.client().await;
    let (inside, lease) = (Inside::default(), ms(3_000));
    let ends = Cell::new(None);
    let call = client.on(&scene.key).lease(lease).run(|held| async {
        let held = held;
        let _visit = inside.enter();
        scene.proxy.blackhole();
        // No renewal is under way any more.
        tokio::time::sleep(ms(20)).await;
        ends.set(Some((Instant::now() + held.remaining(), scene.key_ends_by().await)));
        held.lost().await;
        panic!("the body was polled after the loss");
    });

    let error = call.await.unwrap_err();

    let dropped_at = Instant::now();
    assert_eq!(error.kind(), LockErrorKind::Lost { completed: false }, "{error}");
    assert_eq!(inside.now(), 0);
    let (ours, of_the_store) = ends.get().expect("it had the time to look");
    assert!(ours < of_the_store, "{:?} after the key", ours - of_the_store);
    // The wrapper is woken there; nothing of the body is polled from there on, however late that is.
    assert!(dropped_at < ours + SLACK, "{:?} after the deadline", dropped_at - ours);
}

/// c49: nothing is tried for long on the way out of a lost lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leaving_after_the_loss_takes_no_time() {
    let scene = Scene::new();
    let client = scene.warm(scene.builder().response_timeout(LONG)).await;
    let request = client.on(&scene.key).lease(ms(1_500)).on_lost(distlock::OnLost::Signal);
    let mut ended = Instant::now();
    let call = request.run(|held| {
        let ended = &mut ended;
        let proxy = &scene.proxy;
        async move {
            proxy.blackhole();
            held.lost().await;
            *ended = Instant::now();
        }
    });

    call.await.unwrap();

    assert!(ended.elapsed() < SLACK, "{:?}", ended.elapsed());
}

// Waking up.

/// d52: released between the try and the subscription.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn release_before_the_subscription_is_not_missed() {
    let scene = Scene::new();
    let guard = scene.direct().on(&scene.key).lease(ms(60_000)).acquire().await.unwrap();
    let client = scene.builder().connect_timeout(LONG).response_timeout(LONG);
    let client = client.build().unwrap();
    let gate = scene.proxy.hold_next_reply("SUBSCRIBE");
    let waiter = tokio::spawn(client.on(&scene.key).wait(LONG).acquire());
    gate.reached().await;
    guard.release().await.unwrap();
    let start = Instant::now();

    gate.open();
    let guard = waiter.await.unwrap().unwrap();

    assert!(start.elapsed() < WOKEN, "{:?}", start.elapsed());
    guard.release().await.unwrap();
}

/// f96: a failed subscription poisons nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cut_at_the_first_subscription_is_recovered_from() {
    let scene = Scene::new();
    let guard = scene.direct().on(&scene.key).lease(ms(60_000)).acquire().await.unwrap();
    let client = scene.builder().build().unwrap();
    for _ in 0..2 {
        scene.proxy.cut_at_next_request("SUBSCRIBE");
    }
    let waiter = tokio::spawn(client.on(&scene.key).wait(LONG).acquire());
    queued_at(&scene.server, &scene.key, 1).await;
    let start = Instant::now();

    guard.release().await.unwrap();
    waiter.await.unwrap().unwrap().release().await.unwrap();

    assert!(start.elapsed() < WOKEN, "announced again: {:?}", start.elapsed());
    client.on(&unique_key("other")).acquire().await.unwrap().release().await.unwrap();
}

/// R9: the message that says so never arrives, nor does the holder come back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiter_whose_message_was_lost_gets_in_by_the_timer() {
    let scene = Scene::new();
    let client = scene.client().await;
    let guard = scene.direct().on(&scene.key).lease(ms(1_500)).acquire().await.unwrap();
    let waiter = tokio::spawn(client.on(&scene.key).wait(LONG).acquire());
    queued_at(&scene.server, &scene.key, 1).await;
    // What the server sends from here on is lost, on every connection there is.
    scene.proxy.blackhole();
    guard.release().await.unwrap();
    scene.proxy.heal();
    let start = Instant::now();

    let guard = waiter.await.unwrap().unwrap();

    // Where the holder's lease would have ended.
    assert!(start.elapsed() < LOOKS_AGAIN, "{:?}", start.elapsed());
    assert_eq!(scene.owner().await.as_deref(), Some(guard.owner()));
}

/// Connections end again and again while several clients contend.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn contention_goes_on_while_connections_are_killed() {
    let scene = Scene::new();
    let inside = Inside::default();
    let mut tasks = Vec::new();
    for _ in 0..4 {
        let client = scene.builder().wait(LONG).build().unwrap();
        for _ in 0..2 {
            let (client, key, inside) = (client.clone(), scene.key.clone(), inside.clone());
            tasks.push(tokio::spawn(async move {
                for _ in 0..10 {
                    let call = client.on(&key).run(|_| async {
                        let _visit = inside.enter();
                        tokio::time::sleep(ms(3)).await;
                    });
                    call.await.unwrap();
                }
            }));
        }
    }
    let nemesis = async {
        let mut seen = 0;
        for round in 0.. {
            tokio::time::sleep(ms(60)).await;
            // A busy machine may need longer than that to connect: somebody gets in between the cuts.
            while inside.total() == seen {
                tokio::time::sleep(ms(5)).await;
            }
            seen = inside.total();
            if round % 2 == 0 { scene.proxy.cut() } else { scene.proxy.reset() }
        }
    };
    let all = async {
        for task in tasks {
            task.await.unwrap();
        }
    };
    tokio::select! {
        () = all => {}
        () = nemesis => {}
        () = tokio::time::sleep(LONG) => panic!("somebody hangs"),
    }

    assert_eq!((inside.total(), inside.most()), (80, 1));
    scene.freed().await;
}

// Answers that are no answers.

/// R13: they pass within the wait; f95: or are told, without a storm of tries.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refusals_that_pass_are_outwaited() {
    let scene = Scene::new();
    let client = scene.client().await;
    for answer in [
        "-LOADING Redis is loading the dataset in memory",
        "-BUSY Redis is busy running a script",
        "-READONLY You can't write against a read only replica.",
        "-MISCONF Redis is configured to save RDB snapshots",
        "-MASTERDOWN Link with MASTER is down",
        "-NOREPLICAS Not enough good replicas to write.",
        "-OOM command not allowed",
        "-TRYAGAIN Multiple keys request during rehashing of slot",
    ] {
        let start = Instant::now();
        scene.proxy.answer_next("SET", answer);
        scene.proxy.answer_next("EVALSHA", answer);

        let guard = client.on(&scene.key).wait(LONG).acquire().await.unwrap();

        assert!(start.elapsed() < SOON, "{answer}: {:?}", start.elapsed());
        guard.release().await.unwrap();
        scene.freed().await;

        // One try is told at once.
        scene.proxy.answer_next("SET", answer);
        let error = client.on(&scene.key).try_acquire().await.unwrap_err();
        assert_eq!(error.kind(), LockErrorKind::Backend, "{error}");
        assert!(
            error.to_string().contains(&answer[1..4]) || answer.starts_with("-READ"),
            "{error}"
        );
        scene.freed().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_that_takes_no_writes_is_told_without_a_storm() {
    let scene = Scene::new();
    let client = scene.client().await;
    let mut connection = scene.server.connection().await;
    let set = |count: u32| {
        let mut command = redis::cmd("CONFIG");
        command.arg("SET").arg("min-replicas-to-write").arg(count);
        command
    };
    set(1).exec_async(&mut connection).await.unwrap();
    let log = CommandLog::start(&scene.server);
    let mark = log.mark();
    let start = Instant::now();

    let error = client.on(&scene.key).wait(ms(1_000)).acquire().await.unwrap_err();

    assert!(start.elapsed() < ms(1_000) + SLACK, "{:?}", start.elapsed());
    assert_eq!(error.kind(), LockErrorKind::Backend, "{error}");
    assert!(error.to_string().contains("NOREPLICAS"), "{error}");
    let sent = log.since(mark);
    assert!(sent.len() <= 25, "{} commands", sent.len());
    set(0).exec_async(&mut connection).await.unwrap();
    client.on(&scene.key).acquire().await.unwrap().release().await.unwrap();
}

/// k154: what the try has found is told, though the time runs out before the queue answers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn time_out_names_the_holder_that_the_try_has_found() {
    let scene = Scene::new();
    let guard = scene.direct().on(&scene.key).acquire().await.unwrap();
    let client = scene.warm(scene.builder().response_timeout(LONG)).await;
    let gate = scene.proxy.hold_next_reply("EVALSHA");

    let error = client.on(&scene.key).wait(ANSWERED).acquire().await.unwrap_err();

    assert!(gate.is_reached(), "the answer of the queue is under way");
    assert_eq!(error.kind(), LockErrorKind::Timeout, "{error}");
    assert_eq!(error.owner(), Some(guard.owner()));
    guard.release().await.unwrap();
}

/// Promise 1: whatever else has to be asked for, half of the lease is left when the body starts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_token_does_not_let_a_body_start_on_a_lapsed_lock() {
    let scene = Scene::new();
    let client = scene.builder().response_timeout(LONG).wait(LONG).build().unwrap();
    let guard = scene.direct().on(&scene.key).acquire().await.unwrap();
    let (inside, lease) = (Inside::default(), ms(2_000));
    let request = client.on(&scene.key).lease(lease).fencing();
    let call = tokio::spawn(request.run({
        let inside = inside.clone();
        move |held| async move {
            let _visit = inside.enter();
            assert!(held.remaining() >= lease / 3, "{:?} left", held.remaining());
        }
    }));
    queued_at(&scene.server, &scene.key, 1).await;
    // What the queue grants comes without a token.
    let draw = include_str!("../../runtime/src/backend/redis/lua/draw.lua");
    let draw = format!("EVALSHA {}", redis::Script::new(draw).get_hash());
    scene.proxy.delay_next_reply(&draw, lease + ms(100));

    guard.release().await.unwrap();

    let error = call.await.unwrap().unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Backend, "{error}");
    assert_eq!(inside.total(), 0);
    scene.freed().await;
}

/// k154: nobody has the lock, and nobody is told so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tries_side_by_side_in_an_outage_all_tell_of_it() {
    let scene = Scene::new();
    let client = scene.client().await;
    scene.proxy.blackhole();
    let tries = (0..6).map(|_| client.on(&scene.key).try_acquire());
    for outcome in join_all(tries).await {
        let error = outcome.map(|guard| guard.is_some()).unwrap_err();
        assert_eq!(error.kind(), LockErrorKind::Backend, "{error}");
    }

    let waiting = tokio::spawn(client.on(&scene.key).wait(10 * RESPONSE).acquire());
    // Its own try has failed by then, and it waits in the queue of the client.
    tokio::time::sleep(3 * RESPONSE).await;
    let error = client.on(&scene.key).try_acquire().await.map(|guard| guard.is_some());
    assert_eq!(error.unwrap_err().kind(), LockErrorKind::Backend);
    assert_eq!(waiting.await.unwrap().unwrap_err().kind(), LockErrorKind::Backend);
}

/// Where a round trip takes long, what was cancelled is settled by its own answer all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancelled_call_over_a_slow_network_is_settled_by_one_answer() {
    let scene = Scene::new();
    let client = scene.warm(scene.builder().response_timeout(ms(1_000))).await;
    scene.proxy.delay_replies(ms(180));
    let call = client.on(&scene.key).lease(ms(20_000)).acquire();
    assert!(tokio::time::timeout(ms(50), call).await.is_err());
    scene.freed().await;
    let log = CommandLog::start(&scene.server);

    client.shutdown(SOON).await.expect("all is released, and known to be");

    let mark = log.mark();
    tokio::time::sleep(ms(1_200)).await;
    assert_eq!(log.since(mark), [""; 0], "nothing is sent again and again");
}

/// A call whose first request is under way, and that nobody polls any more, holds up no other one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn try_that_is_never_polled_again_is_in_nobodys_way() {
    for held in [false, true] {
        let scene = Scene::new();
        let client = scene.client().await;
        let guard = scene.direct().on(&scene.key).acquire().await.unwrap();
        if !held {
            guard.release().await.unwrap();
        } else {
            // Let go once the others wait.
            tokio::spawn(async move {
                tokio::time::sleep(ms(300)).await;
                guard.release().await.unwrap();
            });
        }
        let gate = scene.proxy.hold_next_reply("SET");
        let mut forgotten = Box::pin(client.on(&scene.key).lease(ms(600)).wait(LONG).acquire());
        assert!(poll_once(forgotten.as_mut()).await.is_pending());
        gate.reached().await;
        gate.open();
        let start = Instant::now();

        let calls = (0..3).map(|_| client.on(&scene.key).wait(LONG).run(|_| async {}));
        for outcome in join_all(calls).await {
            outcome.unwrap();
        }

        // If the try was granted, its lease is what the others wait for.
        assert!(start.elapsed() < LOOKS_AGAIN, "held: {held}: {:?}", start.elapsed());
        assert!(client.on(&scene.key).try_acquire().await.unwrap().is_some());
        // Polled again it gets its turn, or is told that it came too late.
        if let Ok(guard) = forgotten.await {
            assert_eq!(scene.owner().await.as_deref(), Some(guard.owner()));
            guard.release().await.unwrap();
        }
        scene.freed().await;
    }
}

/// k160, R13: errors of every kind at random for a while, then all is as before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn errors_of_every_kind_for_a_while_leave_nothing_broken() {
    let (scene, inside) = (Scene::new(), Inside::default());
    let mut tasks = Vec::new();
    for _ in 0..3 {
        let client = scene.builder().wait(LONG).build().unwrap();
        let (key, inside) = (scene.key.clone(), inside.clone());
        tasks.push(tokio::spawn(async move {
            for _ in 0..25 {
                let call = client.on(&key).run(|_| async {
                    let _visit = inside.enter();
                    tokio::time::sleep(ms(5)).await;
                });
                call.await.unwrap();
            }
        }));
    }
    let nemesis = async {
        for round in 0..60 {
            let (proxy, command) = (&scene.proxy, ["SET", "EVALSHA"][round % 2]);
            match round % 7 {
                0 => proxy.answer_next(command, "-LOADING Redis is loading"),
                1 => proxy.answer_next(command, "-READONLY a replica"),
                2 => proxy.answer_next(command, "-ERR something unheard of"),
                3 => proxy.cut_at_next_reply(command),
                4 => proxy.cut_at_next_request(command),
                5 => proxy.answer_next(command, "-NOSCRIPT No matching script"),
                _ => proxy.delay_next_reply(command, ms(60)),
            }
            tokio::time::sleep(ms(20)).await;
        }
        scene.proxy.heal();
    };
    let all = async {
        for task in tasks {
            task.await.unwrap();
        }
    };

    tokio::join!(all, nemesis);

    assert_eq!((inside.total(), inside.most()), (75, 1));
    scene.freed().await;
    queued_at(&scene.server, &scene.key, 0).await;
}

/// b28: however long it takes until a renewal is sent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn extend_that_is_slow_to_be_sent_does_not_reach_past_max_hold() {
    let scene = Scene::new();
    let client = scene.builder().connect_timeout(LONG).response_timeout(LONG);
    let client = scene.warm(client).await;
    let guard = client.on(&scene.key).lease(ms(4_000)).max_hold(ms(6_000)).acquire().await.unwrap();
    // The hold began before this.
    let last_end = Instant::now() + ms(6_000);
    scene.proxy.delay_next_reply("HELLO", ms(3_000));
    // On a runtime of its own, which has to connect first.
    let held = (*guard).clone();
    let extended = tokio::task::spawn_blocking(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(held.extend(ms(60_000)))
    });

    extended.await.unwrap().unwrap();

    // As it was before it connected, it would last for three seconds more.
    let ends = scene.key_ends_by().await;
    assert!(ends <= last_end + ms(1_500), "{:?} too long", ends - last_end);
    drop(guard);
}
