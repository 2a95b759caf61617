//! Instructions and time of the steps that every locked call takes.
//!
//! Instructions are counted by valgrind, which must be installed: they hardly vary, so that a small
//! change shows on a busy machine, too. `counts.txt` holds what they were; `--save` writes it anew.
//! Everything runs on the store in memory: it is the library's own work that is counted.

use std::process::ExitCode;
use std::time::Instant;

mod cases;
mod counts;
mod instructions;

use crate::cases::{CASES, Case};
use crate::counts::Counts;

fn main() -> ExitCode {
    let arguments: Vec<String> =
        std::env::args().skip(1).filter(|word| word != "--bench").collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["--case", name, iterations] => {
            let case = CASES.iter().find(|case| case.name == *name);
            let iterations = iterations.parse().expect("a number of iterations");
            (case.expect("a case").run)(iterations);
        }
        [] => measure().print(),
        ["--save"] => {
            let counts = measure();
            counts.print();
            counts.save();
        }
        _ => {
            eprintln!("cargo bench -p distlock-bench --bench micro [-- --save]");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

fn measure() -> Counts {
    let mut counts = Counts::default();
    for case in CASES {
        eprintln!("{}", case.name);
        counts.add(case.name, instructions::of(case), nanos(case));
    }
    counts
}

/// Nanoseconds an iteration: the best of some runs, which was disturbed least.
fn nanos(case: &Case) -> f64 {
    let run = || {
        let begun_at = Instant::now();
        (case.run)(TIMED_ITERATIONS);
        begun_at.elapsed().as_nanos() as f64 / TIMED_ITERATIONS as f64
    };
    (0..RUNS).map(|_| run()).fold(f64::INFINITY, f64::min)
}

const TIMED_ITERATIONS: u64 = 100_000;
const RUNS: usize = 7;
