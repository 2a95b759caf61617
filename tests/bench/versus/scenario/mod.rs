//! What is measured. A scenario has two halves: `measure`, in the parent, hands out jobs and makes
//! figures of what comes back; `work`, in a child, does the job.

use std::future::Future;
use std::thread;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};

use crate::bench::Bench;
use crate::contestant::Contestant;
use crate::job::Job;
use crate::station;

mod background;
mod contended;
mod crash;
mod handover;
mod hostile;
mod reentry;
mod scale;
mod sections;
mod uncontended;
mod waiters;
mod watchdog;

struct Scenario {
    name: &'static str,
    measure: fn(&'static str, &mut Bench),
    work: fn(&Job),
}

/// The names of all scenarios.
pub(crate) fn names() -> Vec<&'static str> {
    ALL.iter().map(|scenario| scenario.name).collect()
}

/// Measures what is wanted.
pub(crate) fn measure(bench: &mut Bench) {
    for scenario in &ALL {
        if bench.options.wants(scenario.name) {
            eprintln!("{}", scenario.name);
            (scenario.measure)(scenario.name, bench);
        }
    }
}

/// Does a child's job; a child that hangs ends, and the benchmark with it.
pub(crate) fn work(job: &Job) {
    let text = format!("{job:?} took longer than {LONGEST_JOB:?}");
    thread::spawn(move || {
        thread::sleep(LONGEST_JOB);
        eprintln!("{text}");
        std::process::exit(1);
    });
    let scenario = ALL.iter().find(|scenario| scenario.name == job.scenario);
    (scenario.expect("a job names a scenario").work)(job);
    station::done();
}

/// A child's runtime: as `#[tokio::main]` makes it, unless the job says `threads=1`.
fn runtime(job: &Job) -> Runtime {
    let mut builder = if job.setting("threads") == 1 {
        Builder::new_current_thread()
    } else {
        Builder::new_multi_thread()
    };
    builder.enable_all().build().expect("a runtime")
}

/// Runs `body` on the child's runtime with its contestant.
fn with_contestant<F: Future<Output = ()>>(job: &Job, body: impl FnOnce(Contestant) -> F) {
    runtime(job).block_on(async {
        let lease = match job.setting("lease_ms") {
            0 => LEASE,
            lease_ms => Duration::from_millis(lease_ms),
        };
        body(Contestant::connect(job.contestant, &job.url, lease).await).await;
    });
}

/// The lease of all contestants, unless the job sets another.
const LEASE: Duration = Duration::from_secs(10);
const LONGEST_JOB: Duration = Duration::from_secs(90);

static ALL: [Scenario; 12] = [
    Scenario { name: "uncontended", measure: uncontended::measure, work: uncontended::work },
    Scenario {
        name: "uncontended-one-thread",
        measure: uncontended::measure_one_thread,
        work: uncontended::work,
    },
    Scenario { name: "background", measure: background::measure, work: background::work },
    Scenario { name: "re-entry", measure: reentry::measure, work: reentry::work },
    Scenario { name: "contended-share", measure: contended::measure_share, work: contended::work },
    Scenario { name: "contended-rate", measure: contended::measure_rate, work: contended::work },
    Scenario { name: "hand-over", measure: handover::measure, work: handover::work },
    Scenario { name: "crash", measure: crash::measure, work: crash::work },
    Scenario { name: "watchdog", measure: watchdog::measure, work: watchdog::work },
    Scenario { name: "waiters", measure: waiters::measure, work: waiters::work },
    Scenario { name: "scale", measure: scale::measure, work: scale::work },
    Scenario { name: "hostile", measure: hostile::measure, work: hostile::work },
];
