//! A service under sentinels: masters that die, that are replaced, and that are not found.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use distlock::{LockClient, LockClientBuilder, LockErrorKind};
use redis::AsyncCommands;
use tokio::task::spawn_blocking;
use tokio::time::Instant;

use crate::common::{LockText, ms};
use crate::support::{RedisServer, SentinelOptions, SentinelSetup, eventually, unique_key};

/// A setup, started off the runtime: that takes a second or two.
async fn start(options: SentinelOptions) -> Arc<SentinelSetup> {
    spawn_blocking(|| Arc::new(SentinelSetup::with(options))).await.unwrap()
}

/// Does something to the setup that blocks.
async fn with<T: Send + 'static>(
    setup: &Arc<SentinelSetup>,
    work: impl FnOnce(&SentinelSetup) -> T + Send + 'static,
) -> T {
    let setup = Arc::clone(setup);
    spawn_blocking(move || work(&setup)).await.unwrap()
}

fn builder(setup: &SentinelSetup) -> LockClientBuilder {
    LockClient::builder().url(setup.url())
}

fn server_on(setup: &SentinelSetup, port: u16) -> &RedisServer {
    setup.servers().iter().find(|server| server.port() == port).unwrap()
}

async fn owner(server: &RedisServer, key: &str) -> Option<String> {
    server.connection().await.get(key).await.unwrap()
}

/// Waits until both replicas have all that was written so far.
async fn replicated(server: &RedisServer) {
    let mut connection = server.connection().await;
    // It waits for what this connection wrote, and so for all before.
    connection.set::<_, _, ()>("written", "last").await.unwrap();
    eventually("both replicas are in step", FAILOVER, async || {
        let mut wait = redis::cmd("WAIT");
        // A short one: the connection has a time-out of its own.
        wait.arg(2).arg(100).query_async::<usize>(&mut connection).await.unwrap() == 2
    })
    .await;
}

/// What a failover must do to holders, waiters and newcomers, however it comes about.
async fn failover_is_followed(fail_over: fn(&SentinelSetup) -> u16) {
    let setup = start(SentinelOptions::default()).await;
    let [holds, waits] = [(); 2].map(|()| builder(&setup).build().unwrap());
    let [held, contended, fresh] = ["held", "contended", "fresh"].map(unique_key);
    let former = with(&setup, |setup| setup.wait_for_master(None).port()).await;
    let held_guard = holds.on(&held).acquire().await.unwrap();
    let contended_guard = holds.on(&contended).acquire().await.unwrap();
    let waiter = tokio::spawn({
        let (waits, contended) = (waits.clone(), contended.clone());
        async move { waits.on(&contended).wait(2 * FAILOVER).acquire().await }
    });
    let passes = Arc::new(AtomicUsize::new(0));
    let busy = tokio::spawn({
        let (holds, key, passes) = (holds.clone(), unique_key("busy"), Arc::clone(&passes));
        async move {
            loop {
                let call = holds.on(&key).run(async |_| tokio::time::sleep(ms(2)).await);
                passes.fetch_add(usize::from(call.await.is_ok()), Ordering::Relaxed);
            }
        }
    });
    crate::common::queued_at(server_on(&setup, former), &contended, 1).await;
    replicated(server_on(&setup, former)).await;

    assert_eq!(with(&setup, fail_over).await, former);
    let start = Instant::now();
    let master = with(&setup, move |setup| setup.wait_for_master(Some(former)).port()).await;
    let master = server_on(&setup, master);

    // A newcomer gets a lock on the new master.
    eventually("a newcomer gets a lock on the new master", FAILOVER, async || {
        let Ok(guard) = waits.on(&fresh).acquire().await else { return false };
        let is_there = owner(master, &fresh).await.as_deref() == Some(guard.owner());
        guard.release().await.unwrap();
        is_there
    })
    .await;
    // A lock that the new master knows as held, because its release came too late for it, is free
    // long before its lease of ten seconds ends.
    let before = passes.load(Ordering::Relaxed);
    let flows = async || passes.load(Ordering::Relaxed) > before + 10;
    eventually("a busy lock is passed on", ms(8_000), flows).await;
    busy.abort();
    // What was held is confirmed there, long before a renewal would be due.
    eventually("the hold is confirmed by the new master", FAILOVER, async || {
        assert!(!held_guard.is_lost(), "the replicas were in step");
        held_guard.remaining() + start.elapsed() > ms(10_000)
    })
    .await;
    assert_eq!(owner(master, &held).await.as_deref(), Some(held_guard.owner()));
    // The waiter is still in line, and gets its lock.
    contended_guard.release().await.unwrap();
    let guard = tokio::time::timeout(FAILOVER, waiter).await.unwrap().unwrap().unwrap();
    assert_eq!(owner(master, &contended).await.as_deref(), Some(guard.owner()));
    guard.release().await.unwrap();
    held_guard.release().await.unwrap();
    assert_eq!(owner(master, &held).await, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn master_that_dies_is_replaced_under_holders_waiters_and_newcomers() {
    failover_is_followed(SentinelSetup::kill_master).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn master_that_falls_silent_is_replaced_under_holders_waiters_and_newcomers() {
    failover_is_followed(SentinelSetup::pause_master).await;
}

/// The former master runs on, for some seconds as a second master that answers as ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn master_that_steps_down_is_left_by_holders_waiters_and_newcomers() {
    failover_is_followed(SentinelSetup::order_failover).await;
}

/// A master that was cut off from the sentinels, but not from us, has to be left without its help.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn isolated_master_that_still_answers_is_left() {
    let setup = start(SentinelOptions::default()).await;
    let locks = builder(&setup).build().unwrap();
    let key = unique_key("isolated");
    let former = with(&setup, |setup| setup.wait_for_master(None).port()).await;
    // Whoever wants to make it a replica is not let in; who is in, stays.
    locks.on(&key).acquire().await.unwrap().release().await.unwrap();
    let isolated = server_on(&setup, former);
    let mut administrator = isolated.connection().await;
    let rules = ["ACL", "SETUSER", "default", "-replicaof", "-slaveof", "-client|kill", "-config"];
    let mut command = redis::cmd(rules[0]);
    command.arg(&rules[1..]).exec_async(&mut administrator).await.unwrap();
    with(&setup, SentinelSetup::order_failover).await;
    let master = with(&setup, move |setup| setup.wait_for_master(Some(former)).port()).await;

    eventually("locks are taken on the new master", FAILOVER, async || {
        let Ok(guard) = locks.on(&key).acquire().await else { return false };
        let there = owner(server_on(&setup, master), &key).await.as_deref() == Some(guard.owner());
        guard.release().await.unwrap();
        there
    })
    .await;
    let role: Vec<redis::Value> = redis::cmd("ROLE").query_async(&mut administrator).await.unwrap();
    assert_eq!(role[0], redis::Value::BulkString(b"master".to_vec()), "it was cut off");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sentinels_that_do_not_answer_and_services_that_they_do_not_know_are_told() {
    let setup = start(SentinelOptions::default()).await;
    let unknown = LockClient::connect(&setup.url_for("odrers")).await.unwrap_err();
    assert_eq!(unknown.kind(), LockErrorKind::Backend);
    let text = unknown.to_string();
    assert!(text.contains("do not know a service \"odrers\", but: orders"), "{text}");

    let sentinel = setup.hosts().split(',').next().unwrap().to_owned();
    let error = LockClient::connect(&format!("redis://{sentinel}/")).await.unwrap_err();
    assert!(error.to_string().contains("is a sentinel"), "{error}");

    // One that is frozen costs nothing, and a single one is enough.
    let locks = builder(&setup).connect().await.unwrap();
    let guard = locks.on(&unique_key("blind")).lease(ms(1_000)).acquire().await.unwrap();
    // So that it is renewed, which is another connection's work.
    eventually("it is to be renewed", FAILOVER, async || guard.remaining() < ms(800)).await;
    eventually("it is renewed", FAILOVER, async || guard.remaining() > ms(800)).await;
    setup.pause_sentinel(0);
    builder(&setup).connect().await.unwrap();
    setup.kill_sentinel(1);
    builder(&setup).connect().await.unwrap();
    setup.resume_sentinel(0);

    (0..3).for_each(|index| setup.kill_sentinel(index));
    let start = Instant::now();
    let error = builder(&setup).wait(ms(500)).connect().await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Backend);
    assert!(start.elapsed() < ms(2_000), "{:?}", start.elapsed());
    let text = error.to_string();
    assert!(text.contains("orders") || text.contains("within"), "{text}");
    // What is open does not need them.
    tokio::time::sleep(ms(1_500)).await;
    assert!(!guard.is_lost());
    locks.on(&unique_key("blind")).acquire().await.unwrap().release().await.unwrap();
    guard.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_and_sentinels_have_passwords_of_their_own() {
    let (servers, sentinels) = ("for-servers".to_owned(), "for-sentinels".to_owned());
    let options = SentinelOptions {
        passwords: Some((servers.clone(), sentinels.clone())),
        ..SentinelOptions::default()
    };
    let setup = start(options).await;
    let locks = LockClient::connect(&setup.url()).await.unwrap();
    locks.on(&unique_key("signed-in")).acquire().await.unwrap().release().await.unwrap();

    for (url, told) in [
        (setup.url().replace(&servers, "wr0ng"), "wrong password for redis"),
        (setup.url().replace(&sentinels, "wr0ng"), "check sentinel_user and sentinel_password"),
        (format!("redis-sentinel://:{servers}@{}/orders", setup.hosts()), "?sentinel_password="),
        (
            format!("redis-sentinel://{}/orders?sentinel_password={sentinels}", setup.hosts()),
            "asks for a password",
        ),
    ] {
        let start = Instant::now();
        let error = LockClient::connect(&url).await.unwrap_err();
        assert_eq!(error.kind(), LockErrorKind::Backend);
        let text = format!("{error} {error:?}");
        assert!(text.contains(told), "{text}");
        for secret in [servers.as_str(), sentinels.as_str(), "wr0ng"] {
            assert!(!text.contains(secret), "{text}");
        }
        assert!(start.elapsed() < ms(2_000), "{:?}", start.elapsed());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn documented_rights_at_the_sentinels_are_enough() {
    let setup = start(SentinelOptions::default()).await;
    let documented = include_str!("../../runtime/docs/servers.md");
    let line = documented.lines().find(|line| line.starts_with("ACL SETUSER watch ")).unwrap();
    setup.run_at_sentinels::<()>(&line.split(' ').collect::<Vec<_>>());
    let url =
        |service: &str| setup.url_for(service) + "?sentinel_user=watch&sentinel_password=password";

    let locks = LockClient::connect(&url(SentinelSetup::SERVICE)).await.unwrap();
    let error = LockClient::connect(&url("odrers")).await.unwrap_err();
    assert!(error.to_string().contains("but: orders"), "{error}");

    eventually("all sentinels are listened to", FAILOVER, async || {
        let clients: Vec<String> = setup.run_at_sentinels(&["CLIENT", "LIST"]);
        clients.iter().all(|clients| {
            clients.lines().any(|line| line.contains("user=watch") && line.contains(" sub=2 "))
        })
    })
    .await;
    let refused: Vec<Vec<redis::Value>> = setup.run_at_sentinels(&["ACL", "LOG"]);
    assert!(refused.iter().all(Vec::is_empty), "{refused:?}");
    drop(locks);
    // Nobody is left to be told.
    eventually("nobody listens any more", FAILOVER, async || {
        let clients: Vec<String> = setup.run_at_sentinels(&["CLIENT", "LIST"]);
        !clients.iter().any(|clients| clients.contains("user=watch"))
    })
    .await;
}

/// For what comes about by a failover: the sentinels have half a second of patience, vote, and wait
/// for replicas; the rest is for a busy machine.
const FAILOVER: Duration = Duration::from_secs(20);
