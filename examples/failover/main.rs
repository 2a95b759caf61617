//! Failovers under load: how long nobody gets a lock, and whether two ever had the same one.
//!
//! Some clients with some tasks each take a few locks of real servers all the time. Again and again the
//! servers fail over, and what comes of it is measured. The bodies report to a witness outside of
//! Redis, one for each key, which counts how many were at work at once.
//!
//! ```sh
//! cargo run --release --example failover -- sentinel            # five failovers of each way
//! cargo run --release --example failover -- sentinel --way kill --runs 10
//! cargo run --release --example failover                        # which topologies there are
//! ```
//!
//! It starts `redis-server` from the PATH. The output ends with a line for each way of failing over:
//!
//! ```text
//!                               without any grant     without one of a key    bodies           calls
//!   topology  way       runs    median / longest      median / longest        at once   lost   failed
//!   sentinel  kill         5      2.01 /  2.59 s        2.50 /  2.93 s              1      0        1
//!   sentinel  order        5      0.04 /  0.10 s        0.05 /  0.10 s              1     12        0
//!   cluster   kill         7      2.74 /  2.77 s        2.76 /  2.79 s              1      0        0
//!   cluster   order       15      0.07 /  0.11 s        0.07 /  0.12 s              1      0        0
//! ```
//!
//! *Without any grant* is the longest time in which no caller got any of the keys, *without one of a
//! key* the longest in which nobody got some key. A replica may lag behind the master that died, so
//! `bodies at once` may be 2 for the moment that the first holder needs to learn of it, wherever
//! replication is not waited for: the figure is shown and not judged.

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
