//! What fencing tokens cost, and how they go on when the store forgets.
//!
//! ```sh
//! cargo run --release --example fencing_cost                # 20000 locks, 1000000 keys
//! cargo run --release --example fencing_cost -- 10000 50000
//! ```
//!
//! It starts `redis-server` from the PATH. The output is like
//!
//! ```text
//! tokens of one key
//!   3678475385787694  the first one
//!   3678475385787695  after a release
//!   3678475385789758  after the loss of the counter (DEL)
//!   3678475385790974  after FLUSHALL
//!   3678475385829842  after a restart without data
//!   3678475385860700  after another one
//!   each is higher than the one before
//!
//! the store's time on the processor for an acquire, over 20000 locks, median of 5
//!                        plain    fenced   ratio
//!   1 at a time       33.47 us  40.79 us    1.22
//!   50 at a time       6.07 us   7.10 us    1.17
//!
//! after fenced locks of 200000 keys, all released: 1 key in Redis, 0.34 MB more than before
//! ```
//!
//! and the exit code is 0 only if all tokens grew, and a fenced acquire costs the store at most 1.6 times
//! the plain one.

use std::env;
use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use distlock::{FencingToken, LockClient, LockError, LockGuard, lock_key};
use futures_util::{StreamExt, TryStreamExt, stream};

use crate::support::{Data, RedisServer};

#[path = "../tests/support/mod.rs"]
mod support;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

#[tokio::main]
async fn main() -> ExitCode {
    let number = |index, default| match env::args().nth(index) {
        Some(text) => text.replace('_', "").parse::<usize>(),
        None => Ok(default),
    };
    let (Ok(locks), Ok(keys)) = (number(1, 20_000), number(2, 1_000_000)) else {
        eprintln!("fencing_cost [LOCKS [KEYS]]");
        return ExitCode::FAILURE;
    };
    match measure(locks, keys).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("fencing_cost: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn measure(locks: usize, keys: usize) -> Result<bool> {
    let grow = show_sequence().await?;
    println!(
        "\nthe store's time on the processor for an acquire, over {locks} locks, median of {ROUNDS}"
    );
    println!("  {:<16} {:>9} {:>9} {:>7}", "", "plain", "fenced", "ratio");
    let mut cheap = true;
    for at_once in [1, 50] {
        let (mut plain, mut fenced) = (Vec::new(), Vec::new());
        // In turns, so that a machine that is busy for a while is so for both.
        for _ in 0..ROUNDS {
            plain.push(cost(locks, at_once, Way::Plain).await?);
            fenced.push(cost(locks, at_once, Way::Fenced).await?);
        }
        let (plain, fenced) = (median(plain), median(fenced));
        let ratio = fenced / plain;
        println!(
            "  {:<16} {plain:>6.2} us {fenced:>6.2} us {ratio:>7.2}",
            format!("{at_once} at a time")
        );
        cheap &= ratio <= LARGEST_RATIO;
    }
    show_memory(keys).await?;
    Ok(grow && cheap)
}

/// Prints tokens of one key while the store forgets; says whether each was higher than the last.
async fn show_sequence() -> Result<bool> {
    let server = RedisServer::start();
    let locks = client(&server)?;
    let mut tokens: Vec<FencingToken> = Vec::new();
    println!("tokens of one key");
    for event in [
        "the first one",
        "after a release",
        "after the loss of the counter (DEL)",
        "after FLUSHALL",
        "after a restart without data",
        "after another one",
    ] {
        match event {
            "after the loss of the counter (DEL)" => {
                let mut connection = server.connection().await;
                let counter = "distlock:fence";
                let deleted: u64 =
                    redis::cmd("DEL").arg(counter).query_async(&mut connection).await?;
                if deleted != 1 {
                    return Err("the counter is not where it should be".into());
                }
            }
            "after FLUSHALL" => {
                redis::cmd("FLUSHALL").exec_async(&mut server.connection().await).await?;
            }
            "after a restart without data" | "after another one" => server.restart(Data::Lost),
            _ => {}
        }
        let guard = locks.lock(lock_key!("stock:lock:7")).fencing().acquire().await?;
        let token = guard.fencing_token().await?;
        guard.release().await?;
        println!("  {token}  {event}");
        tokens.push(token);
    }
    locks.shutdown(Duration::from_secs(1)).await?;
    let grow = tokens.is_sorted_by(|a, b| a < b);
    println!("  {}", if grow { "each is higher than the one before" } else { "NOT IN ORDER" });
    Ok(grow)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Fenced,
    Plain,
}

/// Microseconds of the store's processor for one acquire.
async fn cost(count: usize, at_once: usize, way: Way) -> Result<f64> {
    let server = RedisServer::start();
    let locks = client(&server)?;
    // Connections, scripts and pages of memory.
    drop(acquire(&locks, "warm", count / 10, at_once, way).await?);

    let before = processor_seconds(&server).await?;
    let guards = acquire(&locks, "measured", count, at_once, way).await?;
    let seconds = processor_seconds(&server).await? - before;

    // While the server is there to be told.
    drop(guards);
    locks.shutdown(Duration::from_secs(60)).await?;
    Ok(seconds * 1e6 / count as f64)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Takes locks of `count` keys, and keeps them.
async fn acquire(
    locks: &LockClient,
    name: &str,
    count: usize,
    at_once: usize,
    way: Way,
) -> std::result::Result<Vec<LockGuard>, LockError> {
    let guards = stream::iter(0..count).map(|number| {
        let request = locks.lock(lock_key!("cost:<name>:<number>"));
        let request = if way == Way::Fenced { request.fencing() } else { request };
        request.acquire()
    });
    guards.buffer_unordered(at_once).try_collect().await
}

/// Takes and releases locks of `count` keys, and prints what stays in the store: the counters.
async fn show_memory(count: usize) -> Result<()> {
    let server = RedisServer::start();
    let locks = Arc::new(client(&server)?);
    let memory = async |name| -> Result<f64> {
        let text = info(&server, "memory").await?;
        Ok(field(&text, name).ok_or("no such field")?.parse::<f64>()? / 1e6)
    };
    let before = memory("used_memory").await?;
    stream::iter(0..count)
        .map(Ok::<_, LockError>)
        .try_for_each_concurrent(50, |number| {
            let locks = &locks;
            async move {
                let request = locks.lock(lock_key!("stock:lock:<number>"));
                request.fencing().acquire().await?.release().await
            }
        })
        .await?;
    let after = memory("used_memory").await?;
    let keys: usize = redis::cmd("DBSIZE").query_async(&mut server.connection().await).await?;
    println!(
        "\nafter fenced locks of {count} keys, all released: {keys} key in Redis, {:.2} MB more than \
         before",
        after - before,
    );
    Ok(())
}

fn client(server: &RedisServer) -> std::result::Result<LockClient, LockError> {
    // So long that no renewal comes in between.
    LockClient::builder().url(server.url()).lease(Duration::from_secs(3600)).build()
}

async fn processor_seconds(server: &RedisServer) -> Result<f64> {
    let text = info(server, "cpu").await?;
    let field = |name| field(&text, name).and_then(|text| text.parse::<f64>().ok());
    Ok(field("used_cpu_user")
        .zip(field("used_cpu_sys"))
        .map(|(user, system)| user + system)
        .ok_or("no such field")?)
}

async fn info(server: &RedisServer, section: &str) -> Result<String> {
    Ok(redis::cmd("INFO").arg(section).query_async(&mut server.connection().await).await?)
}

fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
}

const LARGEST_RATIO: f64 = 1.6;
const ROUNDS: usize = 5;
