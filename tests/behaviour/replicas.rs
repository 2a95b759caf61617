//! Locks that count only once replicas have them, and what a failover forgets without.

use std::time::Duration;

use distlock::{LockClient, LockClientBuilder, LockErrorKind, MemoryStore};
use redis::AsyncCommands;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, timeout};

use crate::common::{Inside, LONG, LockText, SOON, ms};
use crate::support::{Cluster, Plan, RedisServer, SentinelSetup, eventually, unique_key};

struct Pair {
    primary: RedisServer,
    replica: RedisServer,
}

impl Pair {
    async fn start() -> Self {
        let primary = RedisServer::with_arguments(&["--repl-diskless-sync-delay", "0"]);
        let port = primary.port().to_string();
        let replica = RedisServer::with_arguments(&["--replicaof", "127.0.0.1", &port]);
        let mut connection = replica.connection().await;
        eventually("the replica follows", SOON, async || {
            let info: String =
                redis::cmd("INFO").arg("replication").query_async(&mut connection).await.unwrap();
            info.contains("master_link_status:up")
        })
        .await;
        Self { primary, replica }
    }

    fn builder(&self) -> LockClientBuilder {
        LockClient::builder().url(self.primary.url()).response_timeout(ms(600))
    }

    fn client(&self, min_replicas: u32) -> LockClient {
        self.builder().min_replicas(min_replicas).build().unwrap()
    }

    /// From now on the replica hears nothing, as when it is about to be promoted.
    async fn part(&self) {
        run(&self.replica, &["REPLICAOF", "NO", "ONE"]).await;
    }

    /// The primary is gone, and the replica is promoted with what it has.
    fn fail_over(&self) -> LockClient {
        self.primary.kill();
        LockClient::builder().url(self.replica.url()).build().unwrap()
    }
}

async fn run(server: &RedisServer, words: &[&str]) {
    let mut command = redis::cmd(words[0]);
    command.arg(&words[1..]);
    command.exec_async(&mut server.connection().await).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lock_counts_once_the_replica_has_it() {
    let pair = Pair::start().await;
    let client = pair.client(1);
    let guard = client.on("both").lease(ms(900)).fencing().acquire().await.unwrap();
    let mut replica = pair.replica.connection().await;
    let there: Option<String> = replica.get("both").await.unwrap();
    assert_eq!(there.as_deref(), Some(guard.owner()));
    // Over several renewals.
    tokio::time::sleep(ms(2_000)).await;
    assert!(!guard.is_lost());
    guard.release().await.unwrap();

    // By way of the queue.
    let held = pair.client(0).on("queue").acquire().await.unwrap();
    let waiting = tokio::spawn(async move { client.on("queue").acquire().await.map(drop) });
    crate::common::queued_at(&pair.primary, "queue", 1).await;
    held.release().await.unwrap();
    waiting.await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lock_that_the_replica_does_not_get_is_an_error_and_leaves_nothing() {
    let pair = Pair::start().await;
    let (client, inside) = (pair.client(1), Inside::default());
    client.on("warm").run(|_| async {}).await.unwrap();
    pair.replica.pause();
    for wait in [Duration::ZERO, ms(500)] {
        let start = Instant::now();
        let call = client.on("lags").wait(wait).run(|_| async { drop(inside.enter()) });
        let error = call.await.unwrap_err();
        assert_eq!(error.kind(), LockErrorKind::Backend, "{error}");
        assert!(start.elapsed() < ms(1_200), "{:?}", start.elapsed());
        let mut primary = pair.primary.connection().await;
        eventually("nothing is left", ms(1_500), async || {
            !primary.exists::<_, bool>("lags").await.unwrap()
        })
        .await;
    }
    assert_eq!(inside.total(), 0);

    pair.replica.resume();
    client.on("lags").run(|_| async { drop(inside.enter()) }).await.unwrap();
    assert_eq!(inside.total(), 1);
}

/// a11 without `min_replicas`: the failover forgets the lock, and two hold it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failover_to_a_replica_that_lags_forgets_a_lock_that_was_not_waited_for() {
    let pair = Pair::start().await;
    let client = pair.client(0);
    pair.part().await;
    let first = client.on("forgotten").lease(ms(20_000)).acquire().await.unwrap();
    let new = pair.fail_over();

    let second = new.on("forgotten").wait(ms(500)).acquire().await.unwrap();

    assert!(!first.is_lost() && !second.is_lost(), "this is what min_replicas is for");
}

/// a11: with all replicas that may be promoted, no failover makes two holders. The lock of the first
/// half is never obtained; that of the second is lost before the new primary gives it away.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failover_to_a_replica_that_was_waited_for_makes_no_two_holders() {
    let pair = Pair::start().await;
    let (client, inside) = (pair.client(1), Inside::default());
    let lease = ms(1_500);
    let holder = tokio::spawn({
        let (client, inside) = (client.clone(), inside.clone());
        async move {
            let body = |_| async move {
                let _visit = inside.enter();
                std::future::pending::<()>().await;
            };
            client.on("held").lease(lease).run(body).await
        }
    });
    eventually("it is held", SOON, async || inside.now() == 1).await;
    pair.part().await;
    let error = client.on("late").wait(ms(400)).lease(lease).acquire().await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Backend, "{error}");

    let new = pair.fail_over();
    let _late = new.on("late").wait(ms(500)).acquire().await.unwrap();
    let meet = |_| async {
        let _visit = inside.enter();
    };
    new.on("held").wait(ms(10_000)).run(meet).await.unwrap();

    assert_eq!((inside.most(), inside.total()), (1, 2));
    let error = holder.await.unwrap().unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Lost { completed: false }, "{error}");
}

/// Those who ask at the same time wait for the replicas together.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_locks_are_waited_for_together() {
    let pair = Pair::start().await;
    let client = pair.client(1);
    client.on("warm").run(|_| async {}).await.unwrap();
    run(&pair.primary, &["CONFIG", "RESETSTAT"]).await;
    let tasks: Vec<_> = (0..200)
        .map(|number| {
            let client = client.clone();
            tokio::spawn(async move {
                client.on(&format!("many {number}")).wait(ms(10_000)).run(|_| async {}).await
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap().unwrap();
    }
    let mut connection = pair.primary.connection().await;
    let stats: String =
        redis::cmd("INFO").arg("commandstats").query_async(&mut connection).await.unwrap();
    let waits = stats.lines().find_map(|line| line.strip_prefix("cmdstat_wait:calls="));
    let waits: u32 = waits.unwrap().split(',').next().unwrap().parse().unwrap();
    assert!((1..120).contains(&waits), "{waits} WAITs for 200 locks");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_that_forbids_waiting_says_so_at_the_start() {
    let server = RedisServer::start();
    run(&server, &["ACL", "SETUSER", "app", "on", ">secret", "~*", "&*", "+@all", "-wait"]).await;
    let url = format!("redis://app:secret@{}/", server.address());
    let error = LockClient::builder().url(url).min_replicas(1).connect().await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Backend);
    let text = error.to_string();
    assert!(text.contains("min_replicas needs the command WAIT"), "{text}");
    assert!(!text.contains("secret"), "{text}");

    let renamed = RedisServer::with_arguments(&["--rename-command", "WAIT", ""]);
    let builder = LockClient::builder().url(renamed.url()).min_replicas(1);
    let error = builder.connect().await.unwrap_err();
    let text = error.to_string();
    assert!(text.contains("min_replicas needs the command WAIT"), "{text}");
}

#[tokio::test]
async fn store_without_replicas_is_refused_at_once() {
    let builder = LockClient::builder().memory_store(MemoryStore::new()).min_replicas(1);
    assert_eq!(builder.build().unwrap_err().kind(), LockErrorKind::Config);
}

/// A cluster of three primaries with a replica each.
async fn cluster() -> Cluster {
    let plan = Plan { replicas: true, ..Plan::default() };
    spawn_blocking(move || Cluster::planned(plan)).await.unwrap()
}

fn client_of(url: String, min_replicas: u32) -> LockClient {
    let builder = LockClient::builder().url(url).response_timeout(ms(600));
    builder.min_replicas(min_replicas).build().unwrap()
}

/// What a replica has of `key`.
async fn on_replica(replica: &RedisServer, key: &str) -> Option<String> {
    let mut connection = replica.connection().await;
    redis::cmd("READONLY").exec_async(&mut connection).await.unwrap();
    connection.get(key).await.unwrap()
}

/// Tries for a lock that its replicas do not get, and finds no trace of it afterwards.
async fn is_not_to_be_had(client: &LockClient, key: &str, owner: impl Fn() -> Option<String>) {
    for wait in [Duration::ZERO, ms(500)] {
        let start = Instant::now();
        let error = client.on(key).wait(wait).acquire().await.unwrap_err();
        assert_eq!(error.kind(), LockErrorKind::Backend, "{error}");
        assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
        eventually("nothing is left", SOON, async || owner().is_none()).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lock_in_a_cluster_counts_once_the_replica_of_its_node_has_it() {
    let cluster = cluster().await;
    let client = client_of(cluster.url(), 1);
    let [held, late] = ["held", "late"].map(|prefix| cluster.key_at(0, prefix));
    let elsewhere = [1, 2].map(|node| cluster.key_at(node, "elsewhere"));
    let guard = client.on(&held).lease(ms(900)).fencing().acquire().await.unwrap();
    let there = on_replica(cluster.server(3), &held).await;
    assert_eq!(there.as_deref(), Some(guard.owner()));
    let others = elsewhere.each_ref().map(|key| client.on(key).lease(ms(900)).acquire());
    let [first, second] = others;
    let others = [first.await.unwrap(), second.await.unwrap()];
    // Over several renewals.
    tokio::time::sleep(ms(2_000)).await;
    assert!(!guard.is_lost() && others.iter().all(|guard| !guard.is_lost()));

    cluster.server(3).pause();
    is_not_to_be_had(&client, &late, || cluster.get(&late)).await;
    // What is held needs the replica of its own node.
    timeout(LONG, guard.lost()).await.unwrap();
    drop(guard);
    assert!(others.iter().all(|guard| !guard.is_lost()));
    for guard in others {
        guard.release().await.unwrap();
    }
    client.on(&elsewhere[0]).run(|_| async {}).await.unwrap();

    cluster.server(3).resume();
    client.on(&late).wait(LONG).run(|_| async {}).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lock_whose_slot_moves_is_waited_for_at_its_new_node() {
    let cluster = cluster().await;
    let client = client_of(cluster.url(), 1);
    let key = cluster.key_at(0, "moves");
    let guard = client.on(&key).lease(ms(1_500)).acquire().await.unwrap();
    let migration = cluster.begin_to_move(&key, 0, 1);
    migration.move_keys();
    // Over a renewal that the old node hands on.
    tokio::time::sleep(ms(1_000)).await;
    assert!(!guard.is_lost());
    migration.finish();
    tokio::time::sleep(ms(2_000)).await;
    assert!(!guard.is_lost());
    let there = on_replica(cluster.server(4), &key).await;
    assert_eq!(there.as_deref(), Some(guard.owner()));

    cluster.server(4).pause();
    timeout(LONG, guard.lost()).await.unwrap();
    cluster.server(4).resume();
}

/// The replica that is elected lacks what came last; who was told of a grant is in it all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failover_in_a_cluster_forgets_only_what_was_not_waited_for() {
    let cluster = cluster().await;
    let [plain, waits] = [0, 1].map(|replicas| client_of(cluster.url(), replicas));
    let [early, late, forgotten] =
        ["early", "late", "forgotten"].map(|prefix| cluster.key_at(0, prefix));
    let lease = ms(20_000);
    let kept = waits.on(&early).lease(lease).acquire().await.unwrap();
    let (primary, replica) = (cluster.server(0), cluster.server(3));
    // What is on its way to a frozen replica arrives when it thaws; what comes after this does not.
    replica.pause();
    cluster.cut_off_replicas(0);
    let unheard = plain.on(&forgotten).lease(lease).acquire().await.unwrap();
    let error = waits.on(&late).wait(ms(300)).lease(lease).acquire().await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Backend, "{error}");
    primary.kill();
    replica.resume();
    eventually("the replica has taken over", LONG, async || cluster.is_primary(3)).await;

    assert_eq!(cluster.get(&early).as_deref(), Some(kept.owner()));
    assert_eq!(cluster.get(&late), None);
    assert_ne!(cluster.get(&forgotten).as_deref(), Some(unheard.owner()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_of_a_cluster_that_forbids_waiting_says_so_at_the_start() {
    let cluster = spawn_blocking(Cluster::start).await.unwrap();
    for server in cluster.primaries() {
        run(server, &["ACL", "SETUSER", "app", "on", ">secret", "~*", "&*", "+@all", "-wait"])
            .await;
    }
    let url = cluster.url().replace("://", "://app:secret@");
    let error = LockClient::builder().url(url).min_replicas(1).connect().await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Backend);
    let text = error.to_string();
    assert!(text.contains("min_replicas needs the command WAIT"), "{text}");
    assert!(!text.contains("secret"), "{text}");
}

/// Both replicas of a service must have it, also with another master.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lock_under_sentinels_counts_once_the_replicas_have_it() {
    let setup = spawn_blocking(SentinelSetup::start).await.unwrap();
    let client = client_of(setup.url(), 2);
    let [before, after] = ["before", "after"].map(unique_key);
    let guard = client.on(&before).acquire().await.unwrap();
    let master = setup.wait_for_master(None);
    let replicas = || setup.servers().iter().filter(|server| server.port() != master.port());
    for replica in replicas() {
        let there: Option<String> = replica.connection().await.get(&before).await.unwrap();
        assert_eq!(there.as_deref(), Some(guard.owner()));
    }
    guard.release().await.unwrap();

    let frozen = replicas().next().unwrap();
    frozen.pause();
    is_not_to_be_had(&client, &before, || setup.run_at(master, &["GET", &before])).await;
    frozen.resume();
    client.on(&before).wait(LONG).run(|_| async {}).await.unwrap();

    let former = setup.order_failover();
    setup.wait_for_master(Some(former));
    // As soon as the others follow it.
    client.on(&after).wait(LONG).run(|_| async {}).await.unwrap();
}
