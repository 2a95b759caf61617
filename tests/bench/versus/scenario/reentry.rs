//! A call on a lock that the calling chain holds already.

use super::with_contestant;
use crate::bench::Bench;
use crate::clock::cpu_ns;
use crate::contestant::{Contestant, Name};
use crate::figures::{Figures, Limit};
use crate::job::Job;
use crate::station;

pub(super) fn measure(scenario: &'static str, bench: &mut Bench) {
    let mut figures = Figures::new(scenario);
    // Among the peers no lock can be entered twice.
    bench.take_turns(&[Name::Distlock], |bench, name, round| {
        let outcome = round.run(bench, &[bench.job(scenario, name).with("calls", CALLS)]);
        if let Some(commands) = outcome.commands {
            figures.add(name, "commands/call", commands / CALLS as f64);
        } else {
            // CPU time: nothing here waits, and it does not suffer from what else the machine does.
            figures.add(name, "ns/call", outcome.sum("cpu_ns") / CALLS as f64);
        }
    });
    let ns = figures.value(Name::Distlock, "ns/call");
    figures.judge("ns/call", ns, Limit::AtMost(300.0));
    let commands = figures.value(Name::Distlock, "commands/call");
    // On a slow machine the outer lock is renewed meanwhile.
    figures.judge("commands/call", commands, Limit::AtMost(0.001));
    figures.print();
}

pub(super) fn work(job: &Job) {
    with_contestant(job, |contestant| async move {
        let Contestant::Distlock(locks) = &contestant else { return };
        let calls = job.setting("calls");
        let outer = locks.request(1).run(|_| async {
            nest(locks, 10_000).await;
            // Inside the lock, so that only the nested calls are seen.
            station::ready();
            let cpu_before = cpu_ns();
            nest(locks, calls).await;
            station::report("cpu_ns", &[(cpu_ns() - cpu_before) as f64]);
            station::done();
        });
        outer.await.expect("no loss");
    });
}

async fn nest(locks: &crate::contestant::Distlock, calls: u64) {
    for _ in 0..calls {
        locks.section(1, || ()).await;
    }
}

const CALLS: u64 = 1_000_000;
