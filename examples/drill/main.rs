//! A drill for the worst day: everything breaks at random, and a witness counts who is at work.
//!
//! Some processes with some tasks each take a few locks over a real Redis, each process through a
//! proxy. Meanwhile processes are killed and frozen for several leases, connections are cut, delayed
//! and swallowed, Redis is stopped and restarted with and without its data, keys are deleted and
//! overwritten. The bodies report to a witness outside of Redis that they begin, work, write and end.
//!
//! ```sh
//! cargo run --release --example drill
//! cargo run --release --example drill -- --seed 7 --minutes 10 --processes 4 --tasks 6 --keys 3
//! cargo run --release --example drill -- --faults freeze,kill
//! ```
//!
//! Which fault comes when follows from the seed alone, which is printed. The drill passes, with exit
//! code 0, if
//!
//! - at most one body was at work at a time on each key while the store kept its data. What runs
//!   inside of one poll cannot be stopped, so ticks from inside of a poll in which the process was
//!   frozen are counted apart;
//! - where the store lost its locks (restarted empty, flushed, a key deleted by hand), each holder
//!   learnt of it at its next renewal, or by its deadline where that could not reach the store;
//! - no poll of a body began after its local deadline;
//! - the fenced store took no stale write, and each token was higher than all that were drawn before
//!   it was asked for;
//! - nothing hung, no refusal came much later than `wait`, everybody worked again soon after each
//!   fault, and at the end nothing was left in Redis.
//!
//! The output ends with a table like the following. Everybody has recovered from a fault when each
//! process has done work on some key, and some process on each key, that began after the fault's end.
//!
//! ```text
//!                                                 bodies ticks in   stale           recovered within
//!   fault             times  sections  losses  at once  freezes  writes  overlap  median / longest
//!   the store keeps its data:
//!     none                0      1329       1        1        0       0
//!     kill                6       157       0        1        0       0              1.35 / 2.29 s
//!     freeze              7       341       4        1        5       2              0.37 / 2.30 s
//!     ...
//!   the store loses locks:
//!     restart-empty       3        37       1        2        0       0   0.07 s     0.55 / 0.61 s
//!     ...
//!
//! seed 2: passed
//! ```

use std::env;
use std::process::{Command, ExitCode};

use crate::plan::Plan;

mod clock;
mod crew;
mod fault;
mod judge;
mod plan;
mod report;
mod run;
#[path = "../../tests/support/mod.rs"]
mod support;
mod table;
mod witness;
mod work;
mod worker;

fn main() -> ExitCode {
    // A worker is this very program, started with an order.
    worker::carry_out();
    let passed = Plan::read(env::args().skip(1)).map_err(Into::into).and_then(|plan| {
        let program = env::current_exe()?;
        run::run(&plan, &|| Command::new(&program))
    });
    match passed {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("drill: {error}");
            ExitCode::FAILURE
        }
    }
}
