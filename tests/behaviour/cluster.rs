//! A Redis Cluster whose slots move, and whose nodes are deposed, killed and frozen.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use distlock::LockClient;
use tokio::task::JoinSet;

use crate::common::{LONG, LockText, SOON, WOKEN, literal, ms};
use crate::processes::{Play, assert_no_overlap};
use crate::support::{Cluster, CommandLog, Plan, Proxy, Reporter, Witness};
use crate::support::{eventually, unique_key};

fn client(cluster: &Cluster) -> LockClient {
    LockClient::builder().url(cluster.url()).build().unwrap()
}

/// Calls for one lock from several clients, under a witness, until it is stopped.
struct Load {
    witness: Witness,
    stop: Arc<AtomicBool>,
    grants: Arc<AtomicUsize>,
    tasks: JoinSet<Vec<String>>,
}

impl Load {
    fn start(cluster: &Cluster, key: &str) -> Self {
        let mut load = Self {
            witness: Witness::start(),
            stop: Arc::default(),
            grants: Arc::default(),
            tasks: JoinSet::new(),
        };
        for _ in 0..CLIENTS {
            let client = LockClient::builder().url(cluster.url()).lease(ms(5_000));
            let client = client.wait(ms(20_000)).build().unwrap();
            load.add(client, key.to_owned(), Reporter::connect(load.witness.address()));
        }
        load
    }

    fn add(&mut self, client: LockClient, key: String, reporter: Reporter) {
        let (stop, grants) = (Arc::clone(&self.stop), Arc::clone(&self.grants));
        self.tasks.spawn(async move {
            let mut failures = Vec::new();
            while !stop.load(Ordering::Relaxed) {
                let outcome = client
                    .on(&key)
                    .fencing()
                    .run(|held| {
                        reporter.body(held, async |body| {
                            body.tick();
                            tokio::time::sleep(ms(1)).await;
                            body.tick();
                        })
                    })
                    .await;
                match outcome {
                    Ok(()) => {
                        grants.fetch_add(1, Ordering::Relaxed);
                    }
                    Err(error) => failures.push(error.to_string()),
                }
            }
            client.shutdown(ms(100)).await.unwrap();
            failures
        });
    }

    fn grants(&self) -> usize {
        self.grants.load(Ordering::Relaxed)
    }

    /// Waits until there were `count` more grants.
    async fn goes_on(&self, count: usize, within: Duration) {
        let before = self.grants();
        let what = format!("{count} more grants");
        eventually(&what, within, async || self.grants() >= before + count).await;
    }

    /// Ends it. What failed.
    async fn stop(&mut self) -> Vec<String> {
        self.stop.store(true, Ordering::Relaxed);
        let mut failures = Vec::new();
        while let Some(failed) = self.tasks.join_next().await {
            failures.extend(failed.unwrap());
        }
        failures
    }

    /// Ends it, with no overlap. What failed.
    async fn end(mut self) -> Vec<String> {
        let failures = self.stop().await;
        let seen = self.witness.testimony();
        assert!(seen.overlaps.is_empty(), "{seen:#?}");
        assert_eq!(seen.refused_writes_in_time, 0, "{seen:#?}");
        failures
    }
}

const CLIENTS: usize = 3;

/// Processes with several tasks each, in all shares of the slots.
#[test]
fn lock_passes_between_processes() {
    let cluster = Cluster::shared();
    let play = |node| {
        let (witness, key) = (Witness::start(), cluster.key_at(node, "processes"));
        let processes = [(); 2].map(|()| Play::busy(&key).start_at(cluster.url(), &witness));
        (witness, key, processes)
    };
    for (witness, key, processes) in [0, 1, 2].map(play) {
        for mut process in processes {
            assert!(process.wait(ms(30_000)));
        }
        let seen = witness.testimony();
        assert_no_overlap(&seen);
        assert_eq!((seen.bodies, seen.completed), (200, 200));
        assert_eq!(cluster.get(&key), None);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lock_passes_between_clients_by_messages_of_a_shard() {
    let cluster = Cluster::start();
    let key = unique_key("shard");
    let (first, second) = (client(&cluster), client(&cluster));
    let guard = first.on(&key).acquire().await.unwrap();
    let waiting = tokio::spawn({
        let (second, key) = (second.clone(), key.clone());
        async move { second.on(&key).wait(ms(20_000)).acquire().await.unwrap() }
    });
    let queue = format!("distlock:{{{key}}}:queue");
    eventually("it waits", SOON, async || cluster.run::<u64>(&["ZCARD", &queue]) == 1).await;
    let start = Instant::now();

    guard.release().await.unwrap();
    let guard = waiting.await.unwrap();

    assert!(start.elapsed() < WOKEN, "no timer is that early: {:?}", start.elapsed());
    assert_eq!(cluster.get(&key).as_deref(), Some(guard.owner()));
    assert!(cluster.calls_of("spublish") > 0);
    assert_eq!(cluster.calls_of("publish"), 0);
    guard.release().await.unwrap();
    assert_eq!(cluster.get(&key), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn user_without_shard_channels_hears_by_ordinary_ones() {
    let cluster = Cluster::start();
    for server in cluster.primaries() {
        let mut connection = server.connection().await;
        let rules = ["SETUSER", "app", "on", ">secret", "~*", "&*", "+@all", "-ssubscribe"];
        redis::cmd("ACL").arg(&rules).exec_async(&mut connection).await.unwrap();
    }
    let url = cluster.url().replace("://", "://app:secret@");
    let client = || LockClient::builder().url(&url).build().unwrap();
    let key = unique_key("ordinary");
    let guard = client().on(&key).acquire().await.unwrap();
    let waiting = tokio::spawn({
        let (client, key) = (client(), key.clone());
        async move { client.on(&key).wait(ms(20_000)).acquire().await.unwrap() }
    });
    let queue = format!("distlock:{{{key}}}:queue");
    eventually("it waits", SOON, async || cluster.run::<u64>(&["ZCARD", &queue]) == 1).await;
    let start = Instant::now();

    guard.release().await.unwrap();
    let guard = waiting.await.unwrap();

    assert!(start.elapsed() < WOKEN, "no timer is that early: {:?}", start.elapsed());
    guard.release().await.unwrap();
    assert!(cluster.calls_of("publish") > 0);
    assert_eq!(cluster.calls_of("spublish"), 0);
}

/// g102.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_of_any_bytes_lock_wait_and_release() {
    let cluster = Cluster::shared();
    let (first, second) = (client(&cluster), client(&cluster));
    for key in ["{a}b", "a}b", "a{b", "}{", "{}x", "{}{x}", "stock:7", "é\n🔒", "\0", "}"] {
        let key = format!("{}{key}", unique_key("bytes"));
        let guard = first.on(&key).fencing().acquire().await.unwrap();
        let (waited, released) = tokio::join!(second.on(&key).wait(ms(20_000)).acquire(), async {
            tokio::time::sleep(ms(10)).await;
            guard.release().await
        });
        released.unwrap();
        waited.unwrap().release().await.unwrap();
        eventually("it is free", SOON, async || cluster.get(&key).is_none()).await;
    }
}

/// A request to the node that had the slot is sent on, and the next one goes to the right node.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lock_whose_slot_has_moved_is_found_again() {
    let cluster = Cluster::start();
    let key = cluster.key_at(0, "moved");
    let client = client(&cluster);
    let guard = client.on(&key).acquire().await.unwrap();

    cluster.begin_to_move(&key, 0, 1).finish();
    guard.extend(ms(20_000)).await.unwrap();
    guard.release().await.unwrap();

    assert_eq!(cluster.get(&key), None);
    let log = CommandLog::start(cluster.server(1));
    eventually("it goes there at once", SOON, async || {
        let mark = log.mark();
        client.on(&key).acquire().await.unwrap().release().await.unwrap();
        log.since(mark).iter().any(|command| command.starts_with("SET"))
            && !log.since(mark).iter().any(|command| command.starts_with("ASKING"))
    })
    .await;
}

/// While a slot is on its way, no script can have a lock and a queue that is not there: every step
/// goes on all the same, on either node.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lock_is_taken_waited_for_and_released_while_its_slot_is_on_its_way() {
    let cluster = Cluster::start();
    let key = cluster.key_at(0, "way");
    let (first, second) = (client(&cluster), client(&cluster));
    let before = first.on(&key).fencing().acquire().await.unwrap();
    let token = before.fencing_token().await.unwrap();
    let migration = cluster.begin_to_move(&key, 0, 1);

    // It stands where it stood.
    before.extend(ms(20_000)).await.unwrap();
    let (waited, released) = tokio::join!(second.on(&key).fencing().acquire(), async {
        tokio::time::sleep(ms(50)).await;
        before.release().await
    });
    released.unwrap();
    let during = waited.unwrap();
    assert!(during.fencing_token().await.unwrap() > token);
    // It stands at the new node, which lets in only who was sent there.
    during.extend(ms(20_000)).await.unwrap();
    assert_eq!(first.holder(literal(&key)).await.unwrap().unwrap().0, during.owner());
    let (waited, released) = tokio::join!(first.on(&key).acquire(), async {
        tokio::time::sleep(ms(50)).await;
        during.release().await
    });
    released.unwrap();
    let last = waited.unwrap();
    migration.finish();
    last.extend(ms(20_000)).await.unwrap();
    last.release().await.unwrap();
    assert_eq!(cluster.get(&key), None);
}

/// Waiters that stood in the queue before are served while the slot is on its way, and after it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_outlast_the_move_of_their_slot() {
    let cluster = Cluster::start();
    let key = cluster.key_at(0, "queue");
    let holder = client(&cluster);
    let guard = holder.on(&key).lease(LONG).acquire().await.unwrap();
    let mut waiters = JoinSet::new();
    for _ in 0..4 {
        let (client, key) = (client(&cluster), key.clone());
        waiters.spawn(async move {
            client.on(&key).wait(ms(20_000)).acquire().await.unwrap().release().await.unwrap();
        });
    }
    let queue = format!("distlock:{{{key}}}:queue");
    eventually("they wait", SOON, async || cluster.run::<u64>(&["ZCARD", &queue]) == 4).await;
    let migration = cluster.begin_to_move(&key, 0, 1);
    let start = Instant::now();

    guard.release().await.unwrap();
    waiters.join_next().await.unwrap().unwrap();
    let first = start.elapsed();
    migration.finish();
    waiters.join_all().await;

    assert!(first < WOKEN, "no timer is that early: {first:?}");
    eventually("it is free", SOON, async || cluster.get(&key).is_none()).await;
}

/// A slot goes back and forth under load: nothing overlaps, hangs or fails.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slot_moves_back_and_forth_under_load() {
    let cluster = Cluster::start();
    let key = cluster.key_at(0, "forth");
    let keys = [format!("{{{key}}}:a"), format!("{{{key}}}:b"), cluster.key_at(2, "still")];
    let loads = keys.each_ref().map(|key| Load::start(&cluster, key));

    for round in 0..6 {
        let (from, to) = (round % 2, (round + 1) % 2);
        go_on(&loads).await;
        let migration = cluster.begin_to_move(&key, from, to);
        go_on(&loads).await;
        migration.move_keys();
        go_on(&loads).await;
        migration.finish();
    }
    go_on(&loads).await;

    for (load, key) in loads.into_iter().zip(keys) {
        let failures = load.end().await;
        assert!(failures.is_empty(), "{failures:#?}");
        eventually("it is free", SOON, async || cluster.get(&key).is_none()).await;
    }
}

async fn go_on(loads: &[Load]) {
    for load in loads {
        load.goes_on(10, SOON).await;
    }
}

/// f80, f81, f94: replicas are not asked; the first request after the fail-over is a release, a renewal, an acquire.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deposed_primary_is_left_for_its_successor() {
    let cluster = Cluster::planned(Plan { replicas: true, ..Plan::default() });
    let keys = [0; 3].map(|node| cluster.key_at(node, "deposed"));
    let (first, second) = (client(&cluster), client(&cluster));
    let released = first.on(&keys[0]).acquire().await.unwrap();
    let renewed = first.on(&keys[1]).lease(ms(3_000)).acquire().await.unwrap();
    second.on(&keys[2]).acquire().await.unwrap().release().await.unwrap();

    assert!(second.holder(literal(&keys[0])).await.unwrap().is_some());
    // What comes from their primaries are no scripts.
    let scripts =
        |replica| cluster.calls_at(replica, "evalsha") + cluster.calls_at(replica, "eval");
    assert_eq!([3, 4, 5].map(scripts), [0; 3]);

    cluster.depose(0);

    released.release().await.unwrap();
    let start = Instant::now();
    for round in 0..6 {
        let client = if round % 2 == 0 { &second } else { &first };
        client.on(&keys[2]).acquire().await.unwrap().release().await.unwrap();
        client.on(&keys[0]).acquire().await.unwrap().release().await.unwrap();
    }
    assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
    tokio::time::sleep(ms(3_500)).await;
    assert!(!renewed.is_lost(), "it was renewed at the successor");
    assert_eq!(cluster.get(&keys[1]).as_deref(), Some(renewed.owner()));
    renewed.release().await.unwrap();
}

/// In agreement, so that nothing is lost: nothing overlaps, hangs or fails.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn primaries_are_deposed_under_load() {
    let cluster = Cluster::planned(Plan { replicas: true, ..Plan::default() });
    let keys = [cluster.key_at(0, "deposed"), cluster.key_at(1, "beside")];
    let loads = keys.each_ref().map(|key| Load::start(&cluster, key));
    go_on(&loads).await;
    for node in [0, 1] {
        cluster.depose(node);
        go_on(&loads).await;
    }
    for load in loads {
        let failures = load.end().await;
        assert!(failures.is_empty(), "{failures:#?}");
    }
}

/// What the primary had not yet passed on is lost with it, so that here an overlap cannot be ruled
/// out; what it had is kept, and the other slots notice nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_primary_is_followed_by_its_replica_under_load() {
    let cluster = Cluster::planned(Plan { replicas: true, ..Plan::default() });
    let held = cluster.key_at(0, "held");
    let client = client(&cluster);
    let guard = client.on(&held).lease(ms(6_000)).acquire().await.unwrap();
    let [mut hit, beside] = [0, 1].map(|node| Load::start(&cluster, &cluster.key_at(node, "load")));
    hit.goes_on(10, SOON).await;

    cluster.server(0).kill();
    while !cluster.is_primary(3) {
        beside.goes_on(5, WOKEN).await;
    }
    let start = Instant::now();
    hit.goes_on(10, SOON).await;

    assert!(start.elapsed() < SOON, "{:?} after the election", start.elapsed());
    tokio::time::sleep(ms(6_000)).await;
    assert!(!guard.is_lost(), "it was passed on long before, and renewed since");
    assert_eq!(cluster.get(&held).as_deref(), Some(guard.owner()));
    guard.release().await.unwrap();
    // A grant whose token could not be drawn any more is given up at once.
    let failures = hit.stop().await;
    assert!(failures.iter().all(|error| error.contains("unavailable")), "{failures:#?}");
    assert!(failures.len() <= CLIENTS, "{failures:#?}");
    let failures = beside.end().await;
    assert!(failures.is_empty(), "{failures:#?}");
}

/// A node that is there and says nothing harms its own slots and no others: neither what is held
/// there, nor who begins, nor who waits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silent_node_harms_its_own_slots_only() {
    let cluster = Cluster::start();
    let [silent, held, passed] = [0, 1, 2].map(|node| cluster.key_at(node, "silent"));
    let client = LockClient::builder().url(cluster.url()).lease(ms(3_000)).build().unwrap();
    let lost = client.on(&silent).acquire().await.unwrap();
    let kept = client.on(&held).acquire().await.unwrap();
    let load = Load::start(&cluster, &passed);
    load.goes_on(10, SOON).await;

    cluster.server(0).pause();
    let start = Instant::now();
    while start.elapsed() < ms(5_000) {
        load.goes_on(5, WOKEN).await;
        // Whoever wants something of it fails in time, and holds nobody up.
        let error = client.on(&silent).wait(ms(200)).acquire().await.unwrap_err();
        assert!(error.is_retryable(), "{error}");
        assert!(!kept.is_lost(), "renewed all along");
        let late = LockClient::builder().url(cluster.url()).build().unwrap();
        late.on(&cluster.key_at(1, "late")).acquire().await.unwrap().release().await.unwrap();
    }
    assert!(lost.is_lost());
    cluster.server(0).resume();

    eventually("it takes part again", ms(10_000), async || {
        client.on(&silent).wait(ms(500)).acquire().await.is_ok()
    })
    .await;
    kept.release().await.unwrap();
    let failures = load.end().await;
    assert!(failures.is_empty(), "{failures:#?}");
}

/// Renewals go by node and not by slot.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thousand_locks_are_renewed_with_few_commands() {
    let cluster = Cluster::start();
    let client = LockClient::builder().url(cluster.url()).lease(ms(9_000)).build().unwrap();
    let mut calls = JoinSet::new();
    for _ in 0..1_000 {
        let (client, key) = (client.clone(), unique_key("thousand"));
        calls.spawn(async move { client.on(&key).wait(ms(20_000)).acquire().await.unwrap() });
    }
    let guards = calls.join_all().await;
    let calls = |command: &'static str| cluster.calls_of(command);
    let scripts_before = calls("evalsha") + calls("eval");
    let renewals_before = calls("pexpire");

    eventually("all are renewed", ms(9_000), async || calls("pexpire") >= renewals_before + 1_000)
        .await;

    let scripts = calls("evalsha") + calls("eval") - scripts_before;
    // As few as there are moments at which some are due.
    assert!(scripts <= 500, "{scripts} scripts for a thousand renewals");
    assert!(guards.iter().all(|guard| !guard.is_lost()));
    for guard in guards {
        drop(guard);
    }
    client.shutdown(ms(100)).await.unwrap();
}

/// Every request's reply is lost once: the request is not sent again by the way, what it did is
/// found, and nothing stays behind.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_replies_do_no_harm() {
    let cluster = Cluster::planned(Plan { proxies: true, ..Plan::default() });
    let lose: [fn(&Proxy, &str); 2] = [Proxy::drop_next_reply, Proxy::cut_at_next_reply];
    for lose in lose {
        for step in ["acquire", "enqueue", "confirm", "renew", "release"] {
            lose_a_reply(&cluster, step, lose).await;
        }
    }
}

async fn lose_a_reply(cluster: &Cluster, step: &str, lose: fn(&Proxy, &str)) {
    let key = cluster.key_at(0, step);
    let proxy = cluster.proxy(0);
    let build = |lease| {
        let client = LockClient::builder().url(cluster.url()).response_timeout(ms(400));
        client.lease(lease).wait(ms(10_000)).build().unwrap()
    };
    let client = build(ms(3_000));
    // So that all lines are there.
    client.on(&cluster.key_at(0, "warm")).acquire().await.unwrap().release().await.unwrap();
    let script = |text: &str| format!("EVALSHA {}", redis::Script::new(text).get_hash());
    let [contend, renew, release] = [
        include_str!("../../runtime/src/backend/redis/lua/contend.lua"),
        include_str!("../../runtime/src/backend/redis/lua/renew.lua"),
        include_str!("../../runtime/src/backend/redis/lua/release.lua"),
    ]
    .map(script);
    let sent = |command: &str| {
        let requests = proxy.requests();
        let ours = requests
            .iter()
            .filter(|request| request.starts_with(command) && request.contains(&key));
        ours.count()
    };
    let guard = match step {
        "acquire" => {
            lose(proxy, "SET");
            let guard = client.on(&key).acquire().await.unwrap();
            assert_eq!(sent("SET"), 1, "its owner was found, and it was not said again");
            guard
        }
        "enqueue" | "confirm" => {
            let holder = build(ms(3_000)).on(&key).acquire().await.unwrap();
            lose(proxy, if step == "enqueue" { &contend } else { &renew });
            let waiting = tokio::spawn({
                let (client, key) = (client.clone(), key.clone());
                async move { client.on(&key).acquire().await.unwrap() }
            });
            let queue = format!("distlock:{{{key}}}:queue");
            eventually("it waits", SOON, async || cluster.run::<u64>(&["ZCARD", &queue]) == 1)
                .await;
            if step == "enqueue" {
                eventually("it asks again", SOON, async || sent(&contend) >= 2).await;
                assert_eq!(cluster.run::<u64>(&["ZCARD", &queue]), 1, "one place");
            }
            holder.release().await.unwrap();
            waiting.await.unwrap()
        }
        "renew" => {
            let guard = client.on(&key).acquire().await.unwrap();
            lose(proxy, &renew);
            eventually("it is renewed again", SOON, async || sent(&renew) >= 2).await;
            guard
        }
        _ => {
            let guard = client.on(&key).acquire().await.unwrap();
            lose(proxy, &release);
            guard
        }
    };
    assert!(!guard.is_lost(), "{step}");
    assert_eq!(cluster.get(&key).as_deref(), Some(guard.owner()), "{step}");
    drop(guard);
    eventually("it is free", SOON, async || cluster.get(&key).is_none()).await;
    // Whatever came late would be here by now, and stay for a lease.
    client.shutdown(ms(3_000)).await.unwrap();
    for side in ["queue", "waiters"] {
        let side = format!("distlock:{{{key}}}:{side}");
        assert_eq!(cluster.run::<u64>(&["EXISTS", &side]), 0, "{step}: {side}");
    }
    assert_eq!(cluster.get(&key), None, "{step}");
}
