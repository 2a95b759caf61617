//! Failovers under load: how long nobody gets a lock, and whether two ever had the same one.
//!
//! Some clients with some tasks each take a few locks of real servers all the time. Again and again the
//! servers fail over, and what comes of it is measured. The bodies report to a witness outside of
//! Redis, one for each key, which counts how many were at work at once.
//!
//! ```sh
//! cargo run --release --example failover -- sentinel            # five failovers of each way
//! cargo run --release --example failover -- sentinel --way kill --runs 10
//! cargo run --release --example failover -- cluster --min-replicas 1
//! cargo run --release --example failover                        # which topologies there are
//! ```
//!
//! It starts `redis-server` from the PATH. The output ends with a line for each way of failing over:
//!
//! ```text
//!                      min_             without any grant     without one of a key    bodies           calls
//!   topology  way    replicas   runs    median / longest      median / longest        at once   lost   failed
//!   sentinel  kill          0      5      1.83 /  2.65 s        2.22 /  2.70 s              1      0        1
//!   sentinel  kill          2      5      1.92 /  2.25 s        2.66 /  2.78 s              1      0        2
//!   sentinel  lag           0      5      2.56 /  8.29 s        2.77 /  8.37 s              2     12       39
//!   sentinel  lag           2      5      2.57 /  3.35 s        2.59 /  3.36 s              1      0       57
//!   sentinel  order         0      5      0.04 /  0.10 s        0.05 /  0.10 s              1     12        0
//!   cluster   kill          0      5      2.54 /  2.75 s        2.55 /  2.76 s              1      0        0
//!   cluster   kill          1      5      2.41 /  3.50 s        2.74 /  3.99 s              1      0       10
//!   cluster   lag           0      5      2.98 /  2.99 s        3.00 /  3.00 s              1     15       28
//!   cluster   lag           1      5      3.01 /  3.38 s        3.02 /  3.38 s              1      0       44
//!   cluster   order         0     15      0.07 /  0.11 s        0.07 /  0.12 s              1      0        0
//! ```
//!
//! In the way `lag` the replicas are cut off 150 ms before the kill, work that begins then takes
//! seconds, and under Sentinel one client more cannot follow to the new master: what a failover forgets
//! is held by two. In the cluster every client follows, and its holders learn of the loss before the lock
//! is granted again. With `--min-replicas` what was killed is started again at once, since else too few
//! replicas are left; a lock that was granted is on all of them.
//!
//! *Without any grant* is the longest time in which no caller got any of the keys, *without one of a
//! key* the longest in which nobody got some key: in `lag` also for the length of the work. A replica may
//! lag behind the master that died, so `bodies at once` may be 2 for the moment that the first holder
//! needs to learn of it, wherever replication is not waited for: the figure is shown and not judged.

use std::env;
use std::process::ExitCode;

use crate::cluster::ClusterShard;
use crate::run::Plan;
use crate::topology::{Sentinel, Single, Topology};

mod cluster;
mod load;
mod run;
#[path = "../../tests/support/mod.rs"]
mod support;
mod topology;

fn main() -> ExitCode {
    match measure() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("failover: {error}");
            ExitCode::FAILURE
        }
    }
}

fn measure() -> Result<(), String> {
    let plan = Plan::read(env::args().skip(1))?;
    let topology: Box<dyn Topology> = match plan.topology.as_str() {
        "single" => Box::new(Single::start()),
        "sentinel" => Box::new(Sentinel::start()),
        "cluster" => Box::new(ClusterShard::start()),
        other => return Err(format!("no topology {other:?}: there are single, sentinel, cluster")),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| error.to_string())?;
    runtime.block_on(run::run(&plan, topology.into()))
}
