//! What fencing tokens cost, and how they go on when the store forgets.
//!
//! ```sh
//! cargo run --release --example fencing_cost                # 100000 locks, 1000000 keys
//! cargo run --release --example fencing_cost -- 10000 50000
//! ```
//!
//! It starts `redis-server` from the PATH. The output is like
//!
//! ```text
//! tokens of one key
//!   1796089214205803  the first one
//!   1796089214206090  after a release
//!   1796089214206405  after the loss of the counter (DEL)
//!   1796089214210539  after FLUSHALL
//!   1796089214247281  after a restart without data
//!   1796089214274569  after another one
//!   each is higher than the one before
//!
//! the store's time on the processor for an acquire, over 100000 locks
//!                                         plain    fenced   ratio
//!   one at a time, all of the server    18.10 us  26.17 us    1.45
//!   one at a time, the command alone     2.13 us   8.74 us    4.10
//!   50 at a time, all of the server      2.97 us   9.48 us    3.19
//!   50 at a time, the command alone      1.41 us  10.01 us    7.12
//!
//! after fenced locks of 1000000 keys, all released: 1000000 keys in Redis, 145 MB more than before,
//!   145 bytes for each; all of it expires 24 h after its last use
//! ```
//!
//! and the exit code is 0 only if all tokens grew, and a fenced acquire, one at a time, costs the store
//! at most 1.6 times the plain one. Where commands come in batches, as over one connection under load,
//! reading and answering costs next to nothing, and the script shows.

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
    let (Ok(locks), Ok(keys)) = (number(1, 100_000), number(2, 1_000_000)) else {
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
    println!("\nthe store's time on the processor for an acquire, over {locks} locks");
    println!("  {:<34} {:>9} {:>9} {:>7}", "", "plain", "fenced", "ratio");
    let mut cheap = true;
    for (name, at_once) in [("one at a time", 1), ("50 at a time", 50)] {
        let plain = cost(locks, at_once, Way::Plain).await?;
        let fenced = cost(locks, at_once, Way::Fenced).await?;
        for (what, plain, fenced) in [
            ("all of the server", plain.server, fenced.server),
            ("the command alone", plain.command, fenced.command),
        ] {
            let ratio = fenced / plain;
            println!(
                "  {:<34} {plain:>6.2} us {fenced:>6.2} us {ratio:>7.2}",
                format!("{name}, {what}")
            );
        }
        // Where commands come in batches, the server does hardly anything else for a plain one.
        cheap &= at_once > 1 || fenced.server <= LARGEST_RATIO * plain.server;
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
                let counter = "distlock:{stock:lock:7}:fence";
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

/// Microseconds of the store's processor for one acquire.
struct Cost {
    server: f64,
    command: f64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Fenced,
    Plain,
}

async fn cost(count: usize, at_once: usize, way: Way) -> Result<Cost> {
    let server = RedisServer::start();
    let locks = client(&server)?;
    // Connections, scripts and pages of memory.
    drop(acquire(&locks, "warm", count / 10, at_once, way).await?);
    let mut connection = server.connection().await;
    redis::cmd("CONFIG").arg("RESETSTAT").exec_async(&mut connection).await?;

    let before = processor_seconds(&server).await?;
    let guards = acquire(&locks, "measured", count, at_once, way).await?;
    let seconds = processor_seconds(&server).await? - before;

    let statistics = info(&server, "commandstats").await?;
    let command = if way == Way::Fenced { "cmdstat_evalsha" } else { "cmdstat_set" };
    let of_command = field(&statistics, command).ok_or("no such command was sent")?;
    let number = |name: &str| {
        let text =
            of_command.split(',').find_map(|part| part.strip_prefix(name)?.strip_prefix('='));
        text.and_then(|text| text.parse::<f64>().ok()).ok_or("statistics of another form")
    };
    let command = number("usec")? / number("calls")?;
    drop(guards);
    Ok(Cost { server: seconds * 1e6 / count as f64, command })
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
        "\nafter fenced locks of {count} keys, all released: {keys} keys in Redis, {:.0} MB more \
         than before,\n  {:.0} bytes for each; all of it expires {} h after its last use",
        after - before,
        (after - before) * 1e6 / count as f64,
        24
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
