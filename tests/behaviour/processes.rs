//! Instances as processes of their own: killed, frozen, shut down, under a witness outside of Redis.

use std::time::{Duration, Instant};

use distlock::{LockClient, LockErrorKind};

use crate::common::{LONG, LOOKS_AGAIN, LockText, SOON, ms, queued_at};
use crate::support::{
    BodyReporter, Data, Orders, Process, RedisServer, Reporter, Testimony, Witness,
};
use crate::support::{eventually, unique_key};

/// What a child does: calls on one key, with a body that reports to the witness.
#[derive(Clone, Debug)]
pub(crate) struct Play {
    key: String,
    tasks: u64,
    /// Calls per task; 0 for no end.
    rounds: u64,
    wait: Duration,
    lease: Duration,
    body: Body,
    lasts: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Body {
    /// Ticks, awaits, ticks, ...
    Awaits,
    /// Ticks all the time without an await.
    Spins,
}

impl Play {
    pub(crate) fn new(key: &str) -> Self {
        Self {
            key: key.to_owned(),
            tasks: 1,
            rounds: 1,
            wait: LONG,
            lease: ms(2_000),
            body: Body::Awaits,
            lasts: ms(60_000),
        }
    }

    /// Many short calls of several tasks.
    pub(crate) fn busy(key: &str) -> Self {
        Self { tasks: 4, rounds: 25, lasts: ms(3), lease: ms(2_000), ..Self::new(key) }
    }

    fn start(&self, server: &RedisServer, witness: &Witness) -> Process {
        self.start_at(server.url(), witness)
    }

    pub(crate) fn start_at(&self, url: String, witness: &Witness) -> Process {
        let millis = |duration: Duration| duration.as_millis().to_string();
        Process::start(
            "processes::child",
            &[
                ("url", url),
                ("witness", witness.address().to_string()),
                ("key", self.key.clone()),
                ("tasks", self.tasks.to_string()),
                ("rounds", self.rounds.to_string()),
                ("wait", millis(self.wait)),
                ("lease", millis(self.lease)),
                ("spins", u8::from(self.body == Body::Spins).to_string()),
                ("lasts", millis(self.lasts)),
            ],
        )
    }

    fn read(orders: &Orders) -> Self {
        let millis = |name| ms(orders.number(name));
        Self {
            key: orders.text("key"),
            tasks: orders.number("tasks"),
            rounds: orders.number("rounds"),
            wait: millis("wait"),
            lease: millis("lease"),
            body: if orders.number("spins") == 1 { Body::Spins } else { Body::Awaits },
            lasts: millis("lasts"),
        }
    }

    async fn call(&self, client: &LockClient, reporter: &Reporter) {
        let request = client.on(&self.key).wait(self.wait).lease(self.lease).fencing();
        let outcome = request.run(|held| reporter.body(held, |body| self.work(body))).await;
        let word = match outcome {
            Ok(()) => "done".to_owned(),
            Err(error) => format!("{:?}", error.kind()),
        };
        reporter.say(&format!("{}:{word}", std::process::id()));
    }

    async fn work(&self, reporter: BodyReporter) {
        let start = Instant::now();
        while start.elapsed() < self.lasts {
            match self.body {
                Body::Awaits => tokio::time::sleep(ms(3)).await,
                Body::Spins => std::thread::sleep(ms(3)),
            }
            reporter.tick();
        }
    }
}

/// The whole life of a child; passes at once where it is run as a test.
#[test]
fn child() {
    let Some(orders) = Orders::given() else { return };
    let play = Play::read(&orders);
    let reporter = Reporter::connect(orders.text("witness").parse().unwrap());
    let runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = { runtime }.worker_threads(2).enable_all().build().unwrap();
    let url = orders.text("url");
    let client = runtime.block_on(LockClient::connect(&url)).unwrap();
    let tasks: Vec<_> = (0..play.tasks)
        .map(|number| {
            let (mut play, client, reporter) = (play.clone(), client.clone(), reporter.clone());
            // Several tasks that shall hold at once take keys of their own.
            if play.key.ends_with('*') {
                play.key.push_str(&number.to_string());
            }
            runtime.spawn(async move {
                for round in 0.. {
                    if play.rounds > 0 && round == play.rounds {
                        return;
                    }
                    play.call(&client, &reporter).await;
                }
            })
        })
        .collect();
    if play.rounds == 0 || play.key.contains('*') {
        assert_eq!(orders.next_word(), "shut down");
        runtime.block_on(client.shutdown(ms(5_000))).unwrap();
        reporter.say("is down");
        tasks.iter().for_each(tokio::task::JoinHandle::abort);
        return;
    }
    for task in tasks {
        runtime.block_on(task).unwrap();
    }
}

pub(crate) fn assert_no_overlap(seen: &Testimony) {
    assert!(seen.overlaps.is_empty(), "{seen:#?}");
    assert_eq!(seen.most_at_once, 1, "{seen:#?}");
    assert_eq!(seen.refused_writes_in_time, 0, "{seen:#?}");
}

fn client(server: &RedisServer) -> LockClient {
    LockClient::builder().url(server.url()).build().unwrap()
}

/// Holds the key in this process for a while, with a body that reports.
async fn hold_here(
    server: &RedisServer,
    witness: &Witness,
    key: &str,
    lasts: Duration,
) -> Duration {
    let (client, start) = (client(server), Instant::now());
    let reporter = Reporter::connect(witness.address());
    let play = Play { lasts, ..Play::new(key) };
    let mut entered = Duration::ZERO;
    let call = client.on(key).wait(LONG).fencing().run(|held| {
        entered = start.elapsed();
        reporter.body(held, |body| play.work(body))
    });
    call.await.unwrap();
    // Once this has come to the witness, all before it has.
    reporter.say("left here");
    witness.wait_for_word("left here");
    entered
}

/// a15, b30, R3: frozen for longer than its lease, it does nothing more once it runs on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frozen_holder_is_not_polled_again() {
    let (server, witness, key) = (RedisServer::start(), Witness::start(), unique_key("frozen"));
    let holder = Play::new(&key).start(&server, &witness);
    witness.wait_for_body(holder.id(), 1);

    let entered = witness.frozen(holder.id(), || {
        holder.pause();
        let here = tokio::runtime::Handle::current();
        let entered = tokio::task::block_in_place(|| {
            here.block_on(hold_here(&server, &witness, &key, ms(1_200)))
        });
        holder.resume();
        entered
    });

    assert!(entered < LOOKS_AGAIN, "at the end of the lease: {entered:?}");
    witness.wait_for_word(&format!("{}:Lost {{ completed: false }}", holder.id()));
    assert_no_overlap(&witness.testimony());
}

/// While the other one is still at work.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frozen_holder_that_wakes_up_beside_the_next_one_is_not_polled_again() {
    let (server, witness, key) = (RedisServer::start(), Witness::start(), unique_key("beside"));
    let holder = Play::new(&key).start(&server, &witness);
    witness.wait_for_body(holder.id(), 1);
    let freeze = || {
        witness.frozen(holder.id(), || {
            holder.pause();
            witness.wait_for_body(std::process::id(), 1);
            std::thread::sleep(ms(100));
            holder.resume();
        });
    };

    std::thread::scope(|scope| {
        scope.spawn(freeze);
        let here = tokio::runtime::Handle::current();
        tokio::task::block_in_place(|| {
            here.block_on(hold_here(&server, &witness, &key, ms(1_500)));
        });
    });

    witness.wait_for_word(&format!("{}:Lost {{ completed: false }}", holder.id()));
    let seen = witness.testimony();
    assert_no_overlap(&seen);
    assert_eq!((seen.bodies, seen.completed), (2, 1));
}

/// What no lock can prevent, and a fenced storage does: the poll goes on in which it was frozen.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holder_frozen_inside_a_poll_is_refused_by_a_fenced_storage() {
    let (server, witness, key) = (RedisServer::start(), Witness::start(), unique_key("inside"));
    let play = Play { body: Body::Spins, lasts: ms(4_000), ..Play::new(&key) };
    let holder = play.start(&server, &witness);
    witness.wait_for_body(holder.id(), 1);

    witness.frozen(holder.id(), || {
        holder.pause();
        let here = tokio::runtime::Handle::current();
        tokio::task::block_in_place(|| {
            here.block_on(hold_here(&server, &witness, &key, ms(50)));
        });
        std::thread::sleep(ms(1_000));
        holder.resume();
    });

    // It ends its poll, and is told afterwards.
    witness.wait_for_word(&format!("{}:done", holder.id()));
    let seen = witness.testimony();
    assert!(seen.frozen_ticks > 0 && seen.refused_writes > 0, "{seen:#?}");
    assert_eq!(seen.refused_writes, seen.frozen_ticks, "every late write, and no other");
    assert_no_overlap(&seen);
}

/// d64: killed, it says nothing more; its lease is what the others wait for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_holder_costs_its_lease() {
    let (server, witness, key) = (RedisServer::start(), Witness::start(), unique_key("killed"));
    let mut holder = Play::new(&key).start(&server, &witness);
    witness.wait_for_body(holder.id(), 1);
    let waiting = tokio::spawn({
        let client = client(&server);
        let key = key.clone();
        async move { client.on(&key).wait(LONG).acquire().await }
    });
    queued_at(&server, &key, 1).await;
    let start = Instant::now();

    holder.kill();
    waiting.await.unwrap().unwrap().release().await.unwrap();

    // Two thirds of the lease at least, had the last renewal been in time.
    let took = start.elapsed();
    assert!(took > ms(300) && took < LOOKS_AGAIN, "{took:?}");
    assert_no_overlap(&witness.testimony());
}

/// d56: dead waiters together cost little, not each a time-out of its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_waiters_are_passed_over() {
    let (server, witness, key) = (RedisServer::start(), Witness::start(), unique_key("waiters"));
    // Of the one who releases comes the time that each grant stands unconfirmed.
    let claim = ms(1_500);
    let releases = LockClient::builder().url(server.url()).claim_lease(claim).build().unwrap();
    let guard = releases.on(&key).acquire().await.unwrap();
    let mut waiters = Vec::new();
    for number in 0..6 {
        waiters.push(Play::new(&key).start(&server, &witness));
        queued_at(&server, &key, number + 1).await;
    }
    let last = tokio::spawn({
        let (client, key) = (client(&server), key.clone());
        async move { client.on(&key).wait(LONG).acquire().await }
    });
    queued_at(&server, &key, 7).await;
    waiters.iter_mut().for_each(Process::kill);
    let start = Instant::now();

    guard.release().await.unwrap();
    last.await.unwrap().unwrap().release().await.unwrap();

    assert!(start.elapsed() < 3 * claim, "half of what six of them cost: {:?}", start.elapsed());
    assert_eq!(witness.testimony().bodies, 0);
}

/// d55: short waits and long leases, then all of them die.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_waiters_that_came_and_went_leave_nothing_to_outwait() {
    let (server, witness, key) = (RedisServer::start(), Witness::start(), unique_key("drift"));
    let play = Play {
        rounds: 0,
        tasks: 3,
        wait: ms(20),
        lease: ms(1_000),
        lasts: ms(15),
        ..Play::new(&key)
    };
    let mut players = [play.start(&server, &witness), play.start(&server, &witness)];
    for player in &players {
        witness.wait_for_body(player.id(), 8);
    }
    players.iter_mut().for_each(Process::kill);
    let start = Instant::now();

    let guard = client(&server).on(&key).wait(LONG).acquire().await.unwrap();

    // One lease, and one dead waiter's claim.
    assert!(start.elapsed() < LOOKS_AGAIN, "{:?}", start.elapsed());
    guard.release().await.unwrap();
    assert_no_overlap(&witness.testimony());
}

/// A frozen waiter at the head: the grant to it lapses, and later it waits on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frozen_waiter_is_passed_over_and_served_later() {
    let (server, witness, key) =
        (RedisServer::start(), Witness::start(), unique_key("frozen-head"));
    let guard = client(&server).on(&key).acquire().await.unwrap();
    let play = Play { lasts: ms(30), ..Play::new(&key) };
    let mut waiter = play.start(&server, &witness);
    queued_at(&server, &key, 1).await;
    let next = tokio::spawn({
        let (client, key) = (client(&server), key.clone());
        async move { client.on(&key).wait(LONG).acquire().await }
    });
    queued_at(&server, &key, 2).await;
    waiter.pause();
    let start = Instant::now();

    guard.release().await.unwrap();
    let guard = next.await.unwrap().unwrap();
    assert!(start.elapsed() < LOOKS_AGAIN, "one claim of 500 ms: {:?}", start.elapsed());
    waiter.resume();
    tokio::time::sleep(ms(300)).await;
    assert!(!guard.is_lost());
    assert_eq!(witness.testimony().bodies, 0, "the lapsed grant is nobody's");
    guard.release().await.unwrap();

    assert!(tokio::task::block_in_place(|| waiter.wait(SOON)), "it got its turn");
    witness.wait_for_word(&format!("{}:done", waiter.id()));
    assert_eq!(witness.testimony().completed, 1);
}

/// Three processes on one key; they are frozen and killed, and new ones come.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bodies_never_overlap_while_processes_freeze_and_die() {
    let (server, witness, key) = (RedisServer::start(), Witness::start(), unique_key("nemesis"));
    let play = Play { rounds: 0, tasks: 2, lease: ms(1_000), lasts: ms(12), ..Play::new(&key) };
    let mut players: Vec<_> = (0..3).map(|_| play.start(&server, &witness)).collect();
    for player in &players {
        witness.wait_for_body(player.id(), 1);
    }
    tokio::task::block_in_place(|| {
        for round in 0..5 {
            let index = round % players.len();
            std::thread::sleep(ms(200 + 7 * round as u64));
            witness.frozen(players[index].id(), || {
                players[index].pause();
                std::thread::sleep(ms(1_400));
                players[index].resume();
            });
            let victim = (round + 1) % players.len();
            players[victim].kill();
            players[victim] = play.start(&server, &witness);
            witness.wait_for_body(players[victim].id(), 1);
        }
    });
    players.iter_mut().for_each(Process::kill);

    let seen = witness.testimony();
    assert_no_overlap(&seen);
    assert!(seen.completed > 20, "{seen:#?}");
}

/// k155: shut down in order, 30 keys are gone at once; killed, they run out.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shut_down_frees_at_once_and_a_kill_by_the_lease() {
    let (server, witness) = (RedisServer::start(), Witness::start());
    for in_order in [true, false] {
        // Shut down in order it takes far less than the lease, however busy the machine is.
        let lease = if in_order { ms(30_000) } else { ms(2_000) };
        let play = Play { tasks: 30, lease, ..Play::new(&format!("{}*", unique_key("end"))) };
        let mut player = play.start(&server, &witness);
        witness.wait_for_body(player.id(), 30);
        let mut connection = server.connection().await;
        let mut held = async || -> usize {
            let keys: Vec<String> =
                redis::AsyncCommands::keys(&mut connection, format!("{}*", play.key))
                    .await
                    .unwrap();
            keys.len()
        };
        assert_eq!(held().await, 30);
        let start = Instant::now();
        if in_order {
            player.tell("shut down");
            witness.wait_for_word("is down");
            assert_eq!(held().await, 0, "released when it says so");
            assert!(start.elapsed() < lease / 2, "{:?}", start.elapsed());
            assert!(tokio::task::block_in_place(|| player.wait(SOON)));
        } else {
            player.kill();
            assert_eq!(held().await, 30, "a kill gives nothing back");
            eventually("the leases have ended", lease + SOON, async || held().await == 0).await;
        }
    }
}

/// A child whose store goes away ends all the same, with errors and without a body.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_recover_by_themselves_from_a_restart_of_the_server() {
    let server = RedisServer::durable();
    let (witness, key) = (Witness::start(), unique_key("recover"));
    let play = Play { rounds: 0, lasts: ms(10), ..Play::new(&key) };
    let players = [play.start(&server, &witness), play.start(&server, &witness)];
    tokio::task::block_in_place(|| {
        for round in 1..=3 {
            for player in &players {
                witness.wait_for_body(player.id(), 10 * round);
            }
            server.restart(Data::Kept);
        }
        for player in &players {
            witness.wait_for_body(player.id(), 60);
        }
    });
    drop(players);

    assert_no_overlap(&witness.testimony());
    let kind = LockErrorKind::Lost { completed: false };
    println!("{} losses of kind {kind:?}", witness.count_of(&format!("{kind:?}")));
}

/// Processes on a quorum whose nodes freeze, and end and come back with their data, one at a time. The
/// fenced storage of the witness takes every write that comes in time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_on_a_quorum_never_meet_while_nodes_come_and_go() {
    let nodes: Vec<_> = (0..3).map(|_| RedisServer::durable()).collect();
    let hosts: Vec<_> = nodes.iter().map(|node| node.address().to_string()).collect();
    let url = format!("redlock://{}/", hosts.join(","));
    let (witness, key) = (Witness::start(), unique_key("quorum"));
    let play = Play { tasks: 2, rounds: 0, wait: ms(4_000), lasts: ms(15), ..Play::new(&key) };
    let mut children: Vec<_> = (0..3).map(|_| play.start_at(url.clone(), &witness)).collect();
    children.iter().for_each(|child| witness.wait_for_body(child.id(), 1));

    for turn in 0..6 {
        let node = &nodes[turn % 3];
        node.pause();
        std::thread::sleep(ms(400));
        node.resume();
        std::thread::sleep(ms(200));
        node.kill();
        std::thread::sleep(ms(200));
        node.restart(Data::Kept);
        std::thread::sleep(ms(200));
    }

    // Each of them has its turn again.
    children.iter().for_each(|child| witness.wait_for_body(child.id(), 3));
    children.iter_mut().for_each(|child| child.tell("shut down"));
    let all_down = async || witness.count_of("is down") == children.len();
    eventually("all are down", SOON, all_down).await;
    assert_no_overlap(&witness.testimony());
    for node in &nodes {
        let mut connection = node.connection().await;
        eventually("the lock is gone on every node", SOON, async || {
            !redis::AsyncCommands::exists::<_, bool>(&mut connection, &key).await.unwrap()
        })
        .await;
    }
}
