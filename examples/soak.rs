//! A long run, after which everything must be as it was before: memory, tasks, threads, file
//! descriptors, and in Redis keys, channels and clients.
//!
//! First a million locks of a million different keys, each taken and released; then ten minutes in
//! which callers of two clients contend for a few keys and give up at any moment.
//!
//! ```sh
//! cargo run --release --example soak
//! cargo run --release --example soak -- 100000 1.5      # keys, minutes of contention
//! ```
//!
//! It starts `redis-server` from the PATH, and reads its own figures from `/proc`, so it needs Linux.
//! The output ends like
//!
//! ```text
//!                                  before         keys   contention
//!   memory, kB                       5620         5728         5748
//!   tasks of the runtime                3            3            3
//!   threads                             5            5            5
//!   file descriptors                   25           25           25
//!   keys in Redis                       0            0            0
//!   channels in Redis                   2            2            2
//!   clients of Redis                    5            5            5
//! ```
//!
//! and the exit code tells whether it came back.

use std::error::Error;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use std::{env, fs};

use distlock::{LockClient, LockError, lock_key};
use futures_util::{StreamExt, TryStreamExt, future, stream};
use tokio::runtime::Handle;

use self::support::RedisServer;

#[path = "../tests/support/mod.rs"]
mod support;

/// How much a run does.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// Different keys to lock.
    pub keys: u64,
    /// How long callers contend.
    pub contention: Duration,
}

type Result<T> = std::result::Result<T, Box<dyn Error>>;

#[tokio::main]
async fn main() -> ExitCode {
    let arguments: Vec<_> = env::args().skip(1).collect();
    let number = |index: usize, default: f64| match arguments.get(index) {
        Some(text) => text.replace('_', "").parse::<f64>(),
        None => Ok(default),
    };
    let (Ok(keys), Ok(minutes)) = (number(0, 1e6), number(1, 10.0)) else {
        eprintln!("soak [KEYS [MINUTES]]");
        return ExitCode::FAILURE;
    };
    let contention = Duration::from_secs_f64(minutes * 60.0);
    match soak(Size { keys: keys as u64, contention }).await {
        Ok(failures) if failures.is_empty() => ExitCode::SUCCESS,
        Ok(failures) => {
            failures.iter().for_each(|failure| println!("FAILED {failure}"));
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("soak: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs it, prints the figures, and says what did not come back.
pub async fn soak(size: Size) -> std::result::Result<Vec<String>, Box<dyn Error>> {
    let server = RedisServer::start();
    let mut observer = server.connection().await;
    let build = || LockClient::builder().url(server.url()).lease(LEASE).build();
    let clients = [build()?, build()?];

    // Connections, threads, and what the allocator keeps.
    different_keys(&clients[0], "warm", size.keys / 10).await?;
    contend(&clients, size.contention / 10).await?;
    let before = Figures::read(&mut observer, None).await?;

    let start = Instant::now();
    different_keys(&clients[0], "soak", size.keys).await?;
    let took = start.elapsed().as_secs_f64();
    println!("{} locks of different keys in {took:.1} s", size.keys);
    let between = Figures::read(&mut observer, Some(&before)).await?;

    let Contention { done, gave_up } = contend(&clients, size.contention).await?;
    println!(
        "{done} locks under contention in {:.0} s, {gave_up} callers gave up on the way",
        size.contention.as_secs_f64()
    );
    let after = Figures::read(&mut observer, Some(&before)).await?;

    println!("\n  {:<24} {:>12} {:>12} {:>12}", "", "before", "keys", "contention");
    let mut failures = Vec::new();
    for (((name, before), (_, between)), (_, after)) in
        before.rows().into_iter().zip(between.rows()).zip(after.rows())
    {
        println!("  {name:<24} {before:>12} {between:>12} {after:>12}");
        let slack = if name == MEMORY { MEMORY_SLACK_KB } else { 0 };
        if between.max(after) > before + slack {
            failures.push(format!("{name}: {before}, then {between}, at the end {after}"));
        }
    }
    for client in clients {
        client.shutdown(Duration::from_secs(1)).await?;
    }
    Ok(failures)
}

/// Takes and releases locks of `count` keys.
async fn different_keys(
    locks: &LockClient,
    name: &str,
    count: u64,
) -> std::result::Result<(), LockError> {
    stream::iter(0..count)
        .map(Ok)
        .try_for_each_concurrent(50, |number| async move {
            let guard = locks.lock(lock_key!("soak:<name>:<number>")).acquire().await?;
            guard.release().await
        })
        .await
}

struct Contention {
    done: u64,
    gave_up: u64,
}

/// Callers of both clients want the same few keys; many of them give up, at any moment.
async fn contend(
    clients: &[LockClient],
    time: Duration,
) -> std::result::Result<Contention, LockError> {
    let (done, gave_up) = (AtomicU64::new(0), AtomicU64::new(0));
    let end = Instant::now() + time;
    let callers = (0..CALLERS).map(|caller| {
        let (done, gave_up) = (&done, &gave_up);
        let locks = &clients[caller % clients.len()];
        async move {
            while Instant::now() < end {
                let key = fastrand::u64(..KEYS);
                let work = Duration::from_micros(fastrand::u64(..2000));
                let call =
                    locks.lock(lock_key!("soak:hot:<key>")).run(|_| tokio::time::sleep(work));
                let patience = match fastrand::u32(..3) {
                    0 => Duration::from_secs(60),
                    1 => Duration::from_micros(fastrand::u64(..2000)),
                    _ => Duration::from_millis(fastrand::u64(..100)),
                };
                match tokio::time::timeout(patience, call).await {
                    Ok(outcome) => {
                        outcome?;
                        done.fetch_add(1, Ordering::Relaxed);
                    }
                    Err(_) => {
                        gave_up.fetch_add(1, Ordering::Relaxed);
                    }
                }
            }
            Ok(())
        }
    });
    future::try_join_all(callers).await?;
    Ok(Contention { done: done.into_inner(), gave_up: gave_up.into_inner() })
}

/// What must come back.
#[derive(Debug)]
struct Figures {
    memory_kb: u64,
    tasks: u64,
    threads: u64,
    descriptors: u64,
    keys: u64,
    channels: u64,
    clients: u64,
}

impl Figures {
    /// Reads them; waits a moment for what ends in the background, if it is more than before.
    async fn read(
        observer: &mut redis::aio::MultiplexedConnection,
        before: Option<&Self>,
    ) -> Result<Self> {
        let start = Instant::now();
        loop {
            let figures = Self::now(observer).await?;
            let settled = match before {
                Some(before) => {
                    figures.rows().iter().zip(before.rows()).all(|(now, was)| now.1 <= was.1)
                }
                None => figures.keys == 0 && start.elapsed() > LEASE,
            };
            if settled || start.elapsed() > 3 * LEASE {
                return Ok(figures);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn now(observer: &mut redis::aio::MultiplexedConnection) -> Result<Self> {
        let count = |folder: &str| Ok::<_, Box<dyn Error>>(fs::read_dir(folder)?.count() as u64);
        let status = fs::read_to_string("/proc/self/status")?;
        let memory = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let memory = memory.and_then(|text| text.split_whitespace().next()?.parse().ok());
        let info: String = redis::cmd("INFO").arg("clients").query_async(observer).await?;
        let clients = info.lines().find_map(|line| line.strip_prefix("connected_clients:"));
        let channels: Vec<String> =
            redis::cmd("PUBSUB").arg("CHANNELS").query_async(observer).await?;
        Ok(Self {
            memory_kb: memory.ok_or("no VmRSS in /proc/self/status")?,
            tasks: Handle::current().metrics().num_alive_tasks() as u64,
            threads: count("/proc/self/task")?,
            descriptors: count("/proc/self/fd")?,
            keys: redis::cmd("DBSIZE").query_async(observer).await?,
            channels: channels.len() as u64,
            clients: clients.ok_or("no connected_clients in INFO")?.parse()?,
        })
    }

    fn rows(&self) -> [(&'static str, u64); 7] {
        [
            (MEMORY, self.memory_kb),
            ("tasks of the runtime", self.tasks),
            ("threads", self.threads),
            ("file descriptors", self.descriptors),
            ("keys in Redis", self.keys),
            ("channels in Redis", self.channels),
            ("clients of Redis", self.clients),
        ]
    }
}

const CALLERS: usize = 64;
const KEYS: u64 = 4;
const LEASE: Duration = Duration::from_secs(1);
const MEMORY: &str = "memory, kB";
/// What the allocator may keep more than before: 8 bytes for each of a million keys.
const MEMORY_SLACK_KB: u64 = 8_000;
