//! What is sent to Redis, command by command.

use std::time::Duration;

use distlock::{LockClient, LockScope};
use futures_util::future::join_all;

use crate::common::{ANSWERED, LONG, LockText, SOON, literal, ms, queued_at};
use crate::support::{CommandLog, RedisServer, eventually, unique_key};

/// So long that no call here lasts until a renewal is due.
const LEASE: Duration = ms(12_000);

struct Scene {
    server: RedisServer,
    client: LockClient,
    log: CommandLog,
    key: String,
}

/// A server of its own, whose commands are counted, and a client that has connected.
async fn scene() -> Scene {
    let server = RedisServer::start();
    let client = client_of(&server).await;
    let log = CommandLog::start(&server);
    Scene { server, client, log, key: unique_key("wire") }
}

async fn client_of(server: &RedisServer) -> LockClient {
    let client = LockClient::builder().url(server.url()).lease(LEASE).build().unwrap();
    // The first release in the background opens the driver's connection, too.
    drop(client.on("warm").acquire().await.unwrap());
    eventually("it is released", SOON, async || {
        client.holder(literal("warm")).await.unwrap().is_none()
    })
    .await;
    client
}

fn assert_pair(sent: &[String], key: &str) {
    let [set, release] = sent else { panic!("two commands, not {sent:#?}") };
    assert!(set.starts_with(&format!("SET {key} ")), "{set}");
    assert!(set.ends_with(" NX GET PX 12000"), "{set}");
    assert!(release.starts_with("EVALSHA "), "{release}");
    assert!(release.contains(key), "{release}");
}

#[tokio::test]
async fn uncontended_call_sends_two_commands() {
    let Scene { client, log, key, .. } = &scene().await;
    let mark = log.mark();

    client.on(key).run(|_| async {}).await.unwrap();
    assert_pair(&log.since(mark), key);

    let mark = log.mark();
    client.on(key).acquire().await.unwrap().release().await.unwrap();
    assert_pair(&log.since(mark), key);
}

/// b22, e75: five deep, and a sibling, and a spawned child.
#[tokio::test]
async fn nested_calls_send_nothing_more() {
    let Scene { client, log, key, .. } = &scene().await;
    let mark = log.mark();

    let outer = client.on(key).run(|_| async {
        let nested = client.on(key).run(|_| async {
            let deeper = client.on(key).run(|_| client.on(key).run(|_| async {}));
            deeper.await.unwrap().unwrap();
            client.on(key).acquire().await.unwrap().release().await.unwrap();
        });
        let sibling = client.on(key).run(|_| async {});
        let (nested, sibling) = tokio::join!(nested, sibling);
        nested.and(sibling).unwrap();
        let request = client.on(key);
        let child = LockScope::current().instrument(request.run(|_| async {}));
        tokio::spawn(child).await.unwrap().unwrap().unwrap();
    });
    outer.await.unwrap();

    assert_pair(&log.since(mark), key);
}

#[tokio::test]
async fn held_key_costs_a_try_one_command_and_none_inside_its_process() {
    let Scene { server, client, log, key } = &scene().await;
    let other = client_of(server).await;
    let guard = client.on(key).lease(LONG).acquire().await.unwrap();

    let mark = log.mark();
    assert!(other.on(key).try_acquire().await.unwrap().is_none());
    assert_eq!(log.since(mark).len(), 1);

    let mark = log.mark();
    assert!(client.on(key).try_acquire().await.unwrap().is_none());
    assert_eq!(log.since(mark), [""; 0]);
    drop(guard);
}

/// c37: giving up costs at most one script, and nothing is released that was never granted.
#[tokio::test]
async fn waiter_that_times_out_leaves_with_one_script() {
    let Scene { server, client, log, key } = &scene().await;
    let other = client_of(server).await;
    let guard = client.on(key).lease(LONG).acquire().await.unwrap();
    let mark = log.mark();

    other.on(key).wait(ANSWERED).acquire().await.unwrap_err();
    queued_at(server, key, 0).await;

    let sent: Vec<_> = log.since(mark).into_iter().filter(|sent| !sent.contains("ZCARD")).collect();
    let sent: Vec<_> = sent.iter().filter(|sent| sent.contains(&**key)).collect();
    assert_eq!(sent.len(), 3, "a try, a place in the queue, the way out: {sent:#?}");
    assert!(!guard.is_lost());
    drop(guard);
}

#[tokio::test]
async fn waiters_of_one_client_ask_once_for_all_of_them() {
    let Scene { server, client, log, key } = &scene().await;
    let guard = client.on(key).lease(LONG).acquire().await.unwrap();
    let other = client_of(server).await;
    let mark = log.mark();
    let waiters: Vec<_> =
        (0..40).map(|_| tokio::spawn(other.on(key).wait(ANSWERED).acquire())).collect();
    for waiter in waiters {
        waiter.await.unwrap().unwrap_err();
    }

    let sent = log.since(mark);
    assert!(sent.len() <= 6, "{sent:#?}");
    drop(guard);
}

#[tokio::test]
async fn renewals_come_every_third_of_the_lease_in_one_command_and_end_with_the_hold() {
    let Scene { server, client, log, .. } = &scene().await;
    let keys: Vec<_> = (0..50).map(|_| unique_key("batch")).collect();
    // Sent together, so that they are in step.
    let calls = keys.iter().map(|key| client.on(key).lease(ms(1_500)).acquire());
    let guards: Vec<_> = join_all(calls).await.into_iter().map(|guard| guard.unwrap()).collect();
    let mark = log.mark();

    tokio::time::sleep(ms(1_750)).await;
    let renewals = log.since(mark);
    assert!(guards.iter().all(|guard| !guard.is_lost()));
    // Three or four rounds, of a few commands each.
    assert!(renewals.len() >= 3 && renewals.len() < 60, "{} commands", renewals.len());

    for guard in guards {
        guard.release().await.unwrap();
    }
    let mark = log.mark();
    tokio::time::sleep(ms(1_750)).await;
    assert_eq!(log.since(mark), [""; 0], "nothing is renewed after its release");
    let mut connection = server.connection().await;
    let left: Vec<String> = redis::AsyncCommands::keys(&mut connection, "*").await.unwrap();
    assert_eq!(left, [""; 0], "no key of any kind is left");
}

#[tokio::test]
async fn queue_and_all_that_belongs_to_it_go_with_the_last_waiter() {
    let Scene { server, client, key, .. } = &scene().await;
    let guard = client.on(key).acquire().await.unwrap();
    let mut tasks = Vec::new();
    for number in 0..5 {
        let other = client_of(server).await;
        let request = other.on(key).wait(LONG);
        tasks.push(tokio::spawn(async move { request.run(|_| async {}).await }));
        queued_at(server, key, number + 1).await;
    }

    guard.release().await.unwrap();
    for task in tasks {
        task.await.unwrap().unwrap();
    }

    let mut connection = server.connection().await;
    let left: Vec<String> = redis::AsyncCommands::keys(&mut connection, "*").await.unwrap();
    assert_eq!(left, [""; 0]);
}

#[tokio::test]
async fn every_key_in_the_store_has_a_ttl() {
    let Scene { server, client, key, .. } = &scene().await;
    let _guard = client.on(key).acquire().await.unwrap();
    let other = client_of(server).await;
    let waiter = tokio::spawn(other.on(key).wait(LONG).acquire());
    queued_at(server, key, 1).await;

    let mut connection = server.connection().await;
    let keys: Vec<String> = redis::AsyncCommands::keys(&mut connection, "*").await.unwrap();
    assert_eq!(keys.len(), 3, "{keys:?}");
    for key in keys {
        let ttl: i64 = redis::AsyncCommands::pttl(&mut connection, &key).await.unwrap();
        assert!(ttl > 0 && ttl <= 15_000, "{key}: {ttl}");
    }
    waiter.abort();
}
