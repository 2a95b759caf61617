//! Faults of Redis itself: stopped, frozen, busy, restarted, emptied, locked up.

use std::time::Duration;

use distlock::{LockClient, LockClientBuilder, LockErrorKind, LockKey};
use redis::AsyncCommands;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::common::{ANSWERED, Inside, LONG, LOOKS_AGAIN, LockText, SLACK, SOON, WOKEN};
use crate::common::{ms, never_ends, queued_at};
use crate::support::{CommandLog, Data, RedisServer, eventually, unique_key};

/// What these tests call a connection that is silent. One of a busy machine seldom is for so long.
const SILENCE: Duration = ms(400);

fn builder(server: &RedisServer) -> LockClientBuilder {
    LockClient::builder().url(server.url()).response_timeout(SILENCE).connect_timeout(SILENCE)
}

async fn run(server: &RedisServer, words: &[&str]) {
    let mut command = redis::cmd(words[0]);
    command.arg(&words[1..]);
    command.exec_async(&mut server.connection().await).await.unwrap();
}

async fn owner(server: &RedisServer, key: &str) -> Option<String> {
    server.connection().await.get(key).await.unwrap()
}

/// Runs a body under `lease` for `last`, with `fault` from when it has begun.
async fn body_with(
    client: &LockClient,
    key: &str,
    (lease, last): (Duration, Duration),
    fault: impl Future<Output = ()>,
) -> Result<(), distlock::LockError> {
    let (begin, begun) = oneshot::channel::<()>();
    let call = client.on(key).lease(lease).strict().run(|_| async move {
        begin.send(()).expect("the other end waits");
        tokio::time::sleep(last).await;
    });
    let fault = async {
        // Else the call says why not.
        if begun.await.is_ok() {
            fault.await;
        }
    };
    tokio::join!(call, fault).0
}

/// a10, R1: down from the start, and down from now on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn body_does_not_run_while_redis_is_down() {
    let server = RedisServer::start();
    let (client, inside) = (builder(&server).build().unwrap(), Inside::default());
    let call = |wait| client.on("down").wait(wait).run(|_| async { drop(inside.enter()) });
    call(LONG).await.unwrap();
    server.kill();
    for _ in 0..2 {
        let start = Instant::now();
        let error = call(ms(300)).await.unwrap_err();
        assert_eq!(error.kind(), LockErrorKind::Backend, "{error}");
        assert!(start.elapsed() < ms(300) + SLACK, "{:?}", start.elapsed());
    }
    assert_eq!(inside.total(), 1);

    server.restart(Data::Lost);
    call(LONG).await.unwrap();
}

/// d60: frozen, and asleep in a command.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wait_bounds_a_call_on_a_frozen_server() {
    let server = RedisServer::start();
    // Nothing but the wait ends a call.
    let builder = || builder(&server).response_timeout(LONG).connect_timeout(LONG);
    let client = builder().build().unwrap();
    client.on("frozen").acquire().await.unwrap().release().await.unwrap();
    server.pause();
    for (client, state) in [(client.clone(), "connected"), (builder().build().unwrap(), "new")] {
        let start = Instant::now();
        let error = client.on("frozen").wait(ms(500)).acquire().await.unwrap_err();
        assert_eq!(error.kind(), LockErrorKind::Backend, "{error}");
        assert!(start.elapsed() < ms(500) + SLACK, "{state}: {:?}", start.elapsed());
    }
    server.resume();

    // What it had received meanwhile is undone.
    let freed = async || owner(&server, "frozen").await.is_none();
    eventually("nothing is left", SOON, freed).await;
    client.on("frozen").acquire().await.unwrap().release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hold_outlasts_a_server_that_sleeps_for_less_than_its_lease() {
    let server = RedisServer::with_arguments(&["--enable-debug-command", "yes"]);
    let client = builder(&server).build().unwrap();
    let fault = async {
        for _ in 0..3 {
            run(&server, &["DEBUG", "SLEEP", "0.9"]).await;
            tokio::time::sleep(ms(200)).await;
        }
    };

    body_with(&client, "sleeps", (ms(4_000), ms(5_000)), fault).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hold_on_a_frozen_server_is_lost_before_anybody_else_has_it() {
    let server = RedisServer::start();
    let client = builder(&server).build().unwrap();
    let start = Instant::now();
    let fault = async { server.pause() };

    let outcome = body_with(&client, "frozen-hold", (ms(1_500), LONG), fault).await;

    let error = outcome.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Lost { completed: false }, "{error}");
    assert!(start.elapsed() < ms(1_500) + SLACK, "{:?}", start.elapsed());
    server.resume();
    client.on("frozen-hold").wait(LONG).acquire().await.unwrap().release().await.unwrap();
}

/// b26 for real: a script that does not end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hold_outlasts_a_busy_server() {
    let server = RedisServer::with_arguments(&["--busy-reply-threshold", "50"]);
    let client = builder(&server).build().unwrap();
    let fault = async {
        let mut busy = server.connection().await;
        let spin = tokio::spawn(async move {
            let script = "while true do end";
            redis::cmd("EVAL").arg(script).arg(0).exec_async(&mut busy).await
        });
        // A renewal is due meanwhile.
        tokio::time::sleep(ms(1_200)).await;
        let error = client.on("other").wait(ms(0)).acquire().await.unwrap_err();
        assert_eq!(error.kind(), LockErrorKind::Backend, "{error}");
        run(&server, &["SCRIPT", "KILL"]).await;
        spin.await.unwrap().unwrap_err();
    };

    body_with(&client, "busy", (ms(3_000), ms(4_000)), fault).await.unwrap();
}

/// f81 on one server: it is demoted, and promoted again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hold_and_wait_outlast_a_server_that_is_read_only_for_a_moment() {
    let server = RedisServer::start();
    let client = builder(&server).build().unwrap();
    let fault = async {
        run(&server, &["REPLICAOF", "127.0.0.1", "1"]).await;
        let call = tokio::spawn(client.on("other").wait(LONG).acquire());
        // A renewal is due meanwhile.
        tokio::time::sleep(ms(1_200)).await;
        assert!(!call.is_finished());
        run(&server, &["REPLICAOF", "NO", "ONE"]).await;
        call.await.unwrap().unwrap().release().await.unwrap();
    };

    body_with(&client, "read-only", (ms(3_000), ms(4_000)), fault).await.unwrap();

    assert_eq!(owner(&server, "read-only").await, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forgotten_scripts_are_sent_again() {
    let server = RedisServer::start();
    let client = builder(&server).build().unwrap();
    let waiting = builder(&server).build().unwrap();
    let fault = async {
        let waiter = tokio::spawn(waiting.on("scripts").wait(LONG).acquire());
        for _ in 0..40 {
            run(&server, &["SCRIPT", "FLUSH"]).await;
            tokio::time::sleep(ms(50)).await;
        }
        run(&server, &["SCRIPT", "FLUSH"]).await;
        drop(waiter);
    };

    body_with(&client, "scripts", (ms(1_500), ms(2_500)), fault).await.unwrap();

    run(&server, &["SCRIPT", "FLUSH"]).await;
    let guard = client.on("scripts").acquire().await.unwrap();
    run(&server, &["SCRIPT", "FLUSH"]).await;
    guard.release().await.unwrap();
    assert_eq!(owner(&server, "scripts").await, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_clients_come_back() {
    let server = RedisServer::start();
    let client = builder(&server).build().unwrap();
    let waiting = builder(&server).build().unwrap();
    let mut waiter = None;
    let fault = async {
        waiter = Some(tokio::spawn(waiting.on("killed").wait(LONG).acquire()));
        queued_at(&server, "killed", 1).await;
        for kind in ["normal", "pubsub", "normal", "pubsub"] {
            run(&server, &["CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes"]).await;
            tokio::time::sleep(ms(700)).await;
        }
    };

    // It ends after a renewal, and long before the waiter looks by itself, as it did at its last
    // reconnect.
    body_with(&client, "killed", (ms(6_000), ms(3_200)), fault).await.unwrap();

    let start = Instant::now();
    waiter.unwrap().await.unwrap().unwrap().release().await.unwrap();
    let took = start.elapsed();
    assert!(took < LOOKS_AGAIN - ms(2_000), "announced on the new connection: {took:?}");
}

/// The server had every write on disk.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hold_and_queue_outlast_a_restart_with_data() {
    let server = RedisServer::durable();
    let client = builder(&server).build().unwrap();
    let waiting = builder(&server).build().unwrap();
    let mut waiter = None;
    let fault = async {
        waiter = Some(tokio::spawn(waiting.on("restart").wait(LONG).acquire()));
        queued_at(&server, "restart", 1).await;
        tokio::time::sleep(ms(1_000)).await;
        server.restart(Data::Kept);
        assert!(owner(&server, "restart").await.is_some());
    };

    // It ends after a renewal, and long before the waiter looks by itself, as it did when the server
    // was there again.
    body_with(&client, "restart", (ms(6_000), ms(2_500)), fault).await.unwrap();

    let start = Instant::now();
    waiter.unwrap().await.unwrap().unwrap().release().await.unwrap();
    assert!(start.elapsed() < LOOKS_AGAIN - ms(2_000), "{:?}", start.elapsed());
}

/// What Redis forgets, no lock can know: but the holder learns of it at its next renewal.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holder_learns_of_a_restart_without_data_at_its_next_renewal() {
    let server = RedisServer::start();
    let client = builder(&server).build().unwrap();
    let rival = builder(&server).build().unwrap();
    let lease = ms(3_000);
    let fault = async {
        server.restart(Data::Lost);
        let guard = rival.on("forgotten").acquire().await.unwrap();
        tokio::time::sleep(lease).await;
        assert!(!guard.is_lost());
        assert_eq!(owner(&server, "forgotten").await.as_deref(), Some(guard.owner()));
        guard.release().await.unwrap();
    };
    let (begin, begun) = oneshot::channel::<()>();
    let call = client.on("forgotten").lease(lease).run(|held| async move {
        begin.send(()).expect("the other end waits");
        never_ends(held).await;
    });
    let fault = async {
        begun.await.expect("it has the lock");
        fault.await;
    };

    let (outcome, ()) = tokio::join!(call, fault);

    let error = outcome.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Lost { completed: false });
    // And not only since the lease had run out unconfirmed.
    assert!(error.to_string().contains("the store says"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiter_gets_in_after_everything_was_flushed() {
    let server = RedisServer::start();
    let (client, waiting) = (builder(&server).build().unwrap(), builder(&server).build().unwrap());
    let guard = client.on("flushed").lease(ms(2_000)).acquire().await.unwrap();
    let waiter = tokio::spawn(waiting.on("flushed").wait(LONG).acquire());
    queued_at(&server, "flushed", 1).await;
    let start = Instant::now();

    run(&server, &["FLUSHALL"]).await;

    guard.lost().await;
    let error = guard.check().unwrap_err();
    assert!(error.to_string().contains("the store says"), "{error}");
    let guard = waiter.await.unwrap().unwrap();
    // No message came: it looks when the holder's lease would have ended.
    assert!(start.elapsed() < LOOKS_AGAIN, "{:?}", start.elapsed());
    assert_eq!(owner(&server, "flushed").await.as_deref(), Some(guard.owner()));
}

/// f87.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrong_password_is_told_at_once() {
    let server = RedisServer::with_arguments(&["--requirepass", "secret"]);
    let url = |password: &str| format!("redis://:{password}@{}/", server.address());
    for url in [server.url(), url("wrong")] {
        let start = Instant::now();
        let builder = || LockClient::builder().url(&url).wait(LONG);
        let connected = builder().connect().await.unwrap_err();
        let acquired = builder().build().unwrap().on("password").acquire().await.unwrap_err();
        for error in [connected, acquired] {
            assert_eq!(error.kind(), LockErrorKind::Backend, "{error}");
            assert!(error.to_string().contains("password"), "{error}");
            assert!(!error.to_string().contains("wrong@"), "it is not printed: {error}");
        }
        assert!(start.elapsed() < SOON, "nobody waits for it: {:?}", start.elapsed());
    }
    let client = LockClient::connect(&url("secret")).await.unwrap();
    client.on("password").acquire().await.unwrap().release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn password_that_changes_at_run_time_is_told_without_a_storm_and_recovered_from() {
    let server = RedisServer::start();
    let client = builder(&server).build().unwrap();
    let guard = client.on("changed").lease(ms(1_500)).acquire().await.unwrap();
    // A connection that was open before stays signed in.
    let mut admin = server.connection().await;
    let mut command = redis::cmd("CONFIG");
    command.arg(&["SET", "requirepass", "new"]).exec_async(&mut admin).await.unwrap();
    let mut killer = admin.clone();
    let mut stats = async || -> i64 {
        let info: String = redis::cmd("INFO").arg("stats").query_async(&mut admin).await.unwrap();
        let line = info.lines().find(|line| line.starts_with("total_connections_received:"));
        line.unwrap().split(':').nth(1).unwrap().trim().parse().unwrap()
    };
    let mut kill = redis::cmd("CLIENT");
    kill.arg(&["KILL", "TYPE", "normal", "SKIPME", "yes"]);
    kill.exec_async(&mut killer).await.unwrap();
    let before = stats().await;
    let start = Instant::now();

    let error = client.on("other").wait(LONG).acquire().await.unwrap_err();

    assert_eq!(error.kind(), LockErrorKind::Backend, "{error}");
    assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
    guard.lost().await;
    tokio::time::sleep(ms(300)).await;
    let connections = stats().await - before;
    assert!(connections < 40, "{connections} connections in {:?}", start.elapsed());

    let mut command = redis::cmd("CONFIG");
    command.arg(&["SET", "requirepass", ""]).exec_async(&mut killer).await.unwrap();
    client.on("other").acquire().await.unwrap().release().await.unwrap();
}

/// k159, R9: a user who may neither subscribe nor publish is served by timer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn user_without_channels_is_served_all_the_same() {
    let server = RedisServer::start();
    run(&server, &["ACL", "SETUSER", "app", "on", ">pw", "~*", "resetchannels", "+@all"]).await;
    let url = format!("redis://app:pw@{}/", server.address());
    let client = || LockClient::builder().url(&url).build().unwrap();
    let guard = client().on("deaf").acquire().await.unwrap();
    let waiter = tokio::spawn(client().on("deaf").wait(LONG).acquire());
    queued_at(&server, "deaf", 1).await;
    let start = Instant::now();

    guard.release().await.unwrap();
    waiter.await.unwrap().unwrap().release().await.unwrap();

    // Every half of a second, since nobody announces anything.
    assert!(start.elapsed() < WOKEN, "{:?}", start.elapsed());
}

/// f95: full memory is told, and what is held can still be renewed and released.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn full_server_keeps_what_is_held() {
    let server = RedisServer::start();
    let client = builder(&server).build().unwrap();
    let fault = async {
        run(&server, &["CONFIG", "SET", "maxmemory", "1"]).await;
        let error = client.on("other").wait(ANSWERED).acquire().await.unwrap_err();
        assert_eq!(error.kind(), LockErrorKind::Backend, "{error}");
        assert!(error.to_string().contains("OOM"), "{error}");
    };

    body_with(&client, "full", (ms(3_000), ms(2_500)), fault).await.unwrap();

    assert_eq!(owner(&server, "full").await, None);
}

/// b32: no thread a lock, and none lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixty_long_bodies_cost_one_thread_and_few_commands() {
    let server = RedisServer::start();
    let client = builder(&server).lease(ms(1_500)).build().unwrap();
    let keys: Vec<_> = (0..60).map(|_| unique_key("sixty")).collect();
    let calls: Vec<_> = keys
        .iter()
        .map(|key| tokio::spawn(client.on(key).strict().run(|_| tokio::time::sleep(ms(4_000)))))
        .collect();
    eventually("all are held", SOON, async || {
        server.connection().await.exists::<_, usize>(&keys).await.unwrap() == 60
    })
    .await;
    let log = CommandLog::start(&server);
    let mark = log.mark();
    tokio::time::sleep(ms(1_600)).await;
    let renewals = log.since(mark).len();
    // Each by itself would be 180.
    assert!(renewals <= 60, "{renewals} commands for 60 locks in one lease");
    for call in calls {
        call.await.unwrap().unwrap();
    }
}

/// c36: the body goes from thread to thread.
#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn body_that_changes_threads_releases() {
    let server = RedisServer::shared();
    let client = LockClient::builder().url(server.url()).build().unwrap();
    let key = unique_key("threads");
    let calls: Vec<_> = (0..4)
        .map(|_| {
            tokio::spawn(client.on(&key).strict().wait(LONG).run(|_| async {
                for step in 0..250 {
                    tokio::task::yield_now().await;
                    if step == 100 {
                        tokio::task::spawn_blocking(|| ()).await.unwrap();
                    }
                }
            }))
        })
        .collect();
    for call in calls {
        call.await.unwrap().unwrap();
    }
    assert_eq!(owner(&server, &key).await, None);
}

/// g102 on one server: keys of any bytes.
#[tokio::test]
async fn keys_of_any_bytes_can_be_held_and_waited_for() {
    let server = RedisServer::shared();
    let clients = [builder(&server).build().unwrap(), builder(&server).build().unwrap()];
    for text in ["{tag}:x", "a}b{c", "{}", "}{", "sp ace\ttab\nline", "ключ:鍵", "x:\u{0}:y"] {
        let key = format!("{text}:{}", unique_key("bytes"));
        let guard = clients[0].lock(LockKey::literal(key.clone())).acquire().await.unwrap();
        let waiter = tokio::spawn(clients[1].on(&key).wait(LONG).acquire());
        tokio::time::sleep(ms(30)).await;
        guard.release().await.unwrap();
        let guard = waiter.await.unwrap().unwrap();
        assert_eq!(owner(&server, &key).await.as_deref(), Some(guard.owner()), "{key:?}");
        guard.release().await.unwrap();
    }
}

/// R25: what clients opened goes with them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropped_clients_leave_no_connection_and_no_channel() {
    let server = RedisServer::start();
    let key = unique_key("baseline");
    let mut tasks = Vec::new();
    for _ in 0..8 {
        let request = builder(&server).build().unwrap().on(&key).wait(LONG);
        tasks.push(tokio::spawn(request.run(|_| tokio::time::sleep(ms(2)))));
    }
    for task in tasks {
        task.await.unwrap().unwrap();
    }
    let mut connection = server.connection().await;
    eventually("only our own connection is left", SOON, async || {
        let info: String =
            redis::cmd("CLIENT").arg("LIST").query_async(&mut connection).await.unwrap();
        let channels: Vec<String> =
            redis::cmd("PUBSUB").arg("CHANNELS").query_async(&mut connection).await.unwrap();
        info.lines().count() == 1 && channels.is_empty()
    })
    .await;
    let keys: Vec<String> = connection.keys("*").await.unwrap();
    assert_eq!(keys, [""; 0]);
}

/// j144, j146 in small: many keys, one client, a handful of connections, and nothing left.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_keys_cost_two_connections_and_leave_nothing() {
    let server = RedisServer::start();
    let [client, other] = [builder(&server).build().unwrap(), builder(&server).build().unwrap()];
    let keys: Vec<_> = (0..200).map(|_| unique_key("key")).collect();
    let mut guards = Vec::new();
    for key in &keys {
        guards.push(other.on(key).lease(LONG).acquire().await.unwrap());
    }
    let waiters: Vec<_> = keys
        .iter()
        .flat_map(|key| [key, key])
        .map(|key| tokio::spawn(client.on(key).wait(LONG).run(|_| async {})))
        .collect();
    queued_at(&server, &keys[199], 1).await;
    let mut connection = server.connection().await;
    let list: String = redis::cmd("CLIENT").arg("LIST").query_async(&mut connection).await.unwrap();
    assert!(list.lines().count() <= 6, "{list}");
    drop(guards);
    for waiter in waiters {
        waiter.await.unwrap().unwrap();
    }
    eventually("no key is left", SOON, async || {
        connection.keys::<_, Vec<String>>("*").await.unwrap().is_empty()
    })
    .await;
}

/// The name of an instance is the operator's to choose; messages must survive it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn instance_of_any_name_is_woken_or_refused_at_the_start() {
    let server = RedisServer::shared();
    for name in ["pod/a b", "ключ", "a%b\"c", "two\nlines", "tab\there", "\u{0}"] {
        let Ok(client) = builder(&server).instance(name).build() else {
            assert!(name.contains(char::is_control), "{name:?} can be used");
            continue;
        };
        let key = unique_key("instance");
        let guard = builder(&server).build().unwrap().on(&key).acquire().await.unwrap();
        let waiter = tokio::spawn(client.on(&key).wait(LONG).acquire());
        queued_at(&server, &key, 1).await;
        let start = Instant::now();
        guard.release().await.unwrap();
        let guard = waiter.await.unwrap().unwrap();
        assert!(start.elapsed() < WOKEN, "{name:?}: {:?}", start.elapsed());
        assert!(guard.owner().starts_with(&format!("{name}/")));
        guard.release().await.unwrap();
    }
}

/// The page of servers has the line that the library's own tests run under.
#[test]
fn readme_shows_the_documented_rights() {
    let page = include_str!("../../runtime/docs/servers.md");
    let line = page.lines().find(|line| line.starts_with("ACL SETUSER app ")).unwrap();

    assert!(include_str!("../../README.md").lines().any(|other| other == line));
}
