//! The drill of `examples/drill`, for as long as a test may take.

use std::env;
use std::process::Command;

use crate::plan::Plan;

#[path = "../examples/drill/clock.rs"]
mod clock;
#[path = "../examples/drill/crew.rs"]
mod crew;
#[path = "../examples/drill/fault.rs"]
mod fault;
#[path = "../examples/drill/judge.rs"]
mod judge;
#[path = "../examples/drill/plan.rs"]
mod plan;
#[path = "../examples/drill/report.rs"]
mod report;
#[path = "../examples/drill/run.rs"]
mod run;
#[path = "support/mod.rs"]
mod support;
#[path = "../examples/drill/table.rs"]
mod table;
#[path = "../examples/drill/witness.rs"]
mod witness;
#[path = "../examples/drill/work.rs"]
mod work;
#[path = "../examples/drill/worker.rs"]
mod worker;

#[test]
fn everything_breaks_and_the_lock_holds() {
    let arguments = ["--seed", "1", "--minutes", "0.9"];
    let plan = Plan::read(arguments.map(str::to_owned)).unwrap();
    let program = env::current_exe().unwrap();

    let passed = run::run(&plan, &|| {
        let mut command = Command::new(&program);
        command.args(["process_of_the_drill", "--exact", "--nocapture"]);
        command
    });

    assert!(passed.unwrap(), "see the table above");
}

/// A worker is this very program, started with an order; without one this does nothing.
#[test]
fn process_of_the_drill() {
    worker::carry_out();
}
