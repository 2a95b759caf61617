//! What a quorum costs, and that a node which is down or frozen delays nobody.
//!
//! ```sh
//! cargo run --release --example quorum            # 2000 locks for each line
//! cargo run --release --example quorum -- 10000
//! ```
//!
//! It starts `redis-server`s from the PATH. The output is like (clients and servers on two processors)
//!
//! ```text
//!                              acquire p50         p99 release p50         p99
//! 1 server                          105 us      352 us      117 us      804 us
//! 3 nodes, all up                   187 us      400 us      225 us      448 us
//! 3 nodes, one frozen               145 us      312 us      161 us      358 us
//! 3 nodes, one refused              144 us      303 us      150 us      337 us
//! 3 nodes, it is back               148 us      374 us      157 us      330 us
//! 5 nodes, all up                   243 us      472 us      283 us      603 us
//! 5 nodes, one frozen               207 us      423 us      242 us      476 us
//! 5 nodes, one refused              205 us      371 us      237 us      448 us
//! 5 nodes, it is back               269 us      619 us      301 us      653 us
//! ```
//!
//! and the exit code is 0 only if the 99th percentile with a node down or frozen stays below the time
//! that one node has for an answer (250 ms).

use std::env;
use std::error::Error;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use distlock::{LockClient, lock_key};

use crate::support::{Data, RedisServer};

#[path = "../tests/support/mod.rs"]
mod support;

#[tokio::main]
async fn main() -> ExitCode {
    let Ok(locks) = env::args().nth(1).map_or(Ok(2_000), |text| text.parse::<usize>()) else {
        eprintln!("quorum [LOCKS]");
        return ExitCode::FAILURE;
    };
    match run(locks).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(locks: usize) -> Result<bool, Box<dyn Error>> {
    println!("{:<28}{:>12}{:>12}{:>12}{:>12}", "", "acquire p50", "p99", "release p50", "p99");
    let mut in_time = true;
    let single = RedisServer::start();
    let client = LockClient::connect(&single.url()).await?;
    measure("1 server", &client, locks).await?;
    for count in [3, 5] {
        let nodes: Vec<_> = (0..count).map(|_| RedisServer::start()).collect();
        let hosts: Vec<_> = nodes.iter().map(|node| node.address().to_string()).collect();
        let client = LockClient::connect(&format!("redlock://{}/", hosts.join(","))).await?;
        measure(&format!("{count} nodes, all up"), &client, locks).await?;
        nodes[0].pause();
        in_time &= measure(&format!("{count} nodes, one frozen"), &client, locks).await?;
        nodes[0].kill();
        in_time &= measure(&format!("{count} nodes, one refused"), &client, locks).await?;
        nodes[0].restart(Data::Lost);
        measure(&format!("{count} nodes, it is back"), &client, locks).await?;
    }
    Ok(in_time)
}

/// Takes locks of different keys, one after the other. Whether the 99th percentile is in time.
async fn measure(what: &str, client: &LockClient, locks: usize) -> Result<bool, Box<dyn Error>> {
    let (mut acquired, mut released) = (Vec::new(), Vec::new());
    for number in 0..locks {
        let start = Instant::now();
        let guard = client.lock(lock_key!("stock:lock:<number>")).acquire().await?;
        acquired.push(start.elapsed());
        let start = Instant::now();
        guard.release().await?;
        released.push(start.elapsed());
    }
    let [acquired, released] = [acquired, released].map(|mut took| {
        took.sort_unstable();
        [took[took.len() / 2], took[took.len() * 99 / 100]]
    });
    let micros = |took: Duration| format!("{} us", took.as_micros());
    let columns = [acquired[0], acquired[1], released[0], released[1]].map(micros);
    let [a, b, c, d] = columns;
    println!("{what:<28}{a:>12}{b:>12}{c:>12}{d:>12}");
    Ok(acquired[1].max(released[1]) < NODE_TIMEOUT)
}

const NODE_TIMEOUT: Duration = Duration::from_millis(250);
