//! Measures distlock beside the raw protocol and beside other crates.
//!
//! Every measurement is a process of its own (this same program, see `station`), so that CPU time and
//! memory are one contestant's alone. The parent starts a redis-server for all of them, lets the
//! contestants take turns round by round, and compares within a round: the machine may be noisy, but
//! then it is so for all. The first round is not timed: it warms up, and counts commands.

use std::process::ExitCode;

mod bench;
mod child;
mod clock;
mod contestant;
mod figures;
mod job;
mod memory;
mod monitor;
mod options;
mod round;
mod scenario;
mod server;
mod station;
mod statistics;

use crate::bench::Bench;
use crate::job::Job;
use crate::options::Options;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let Some(job) = Job::from_arguments(&arguments) {
        scenario::work(&job);
        return ExitCode::SUCCESS;
    }
    match Options::from_arguments(&arguments) {
        Ok(options) => scenario::measure(&mut Bench::new(options)),
        Err(text) => {
            eprintln!("{text}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}
