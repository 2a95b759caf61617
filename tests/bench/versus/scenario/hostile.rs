//! Code that never lets its runtime go: whether locks survive it.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use super::handover::hold_all;
use super::with_contestant;
use crate::bench::Bench;
use crate::child::Child;
use crate::contestant::Name;
use crate::figures::{Figures, Limit};
use crate::job::Job;
use crate::round::Round;
use crate::station;

pub(super) fn measure(scenario: &'static str, bench: &mut Bench) {
    let mut figures = Figures::new(scenario);
    // What renews.
    bench.take_turns(&[Name::Distlock, Name::AsyncRedisLock], |bench, name, round| {
        if round == Round::Counted {
            return;
        }
        let mut child = Child::start(&bench.job(scenario, name).with("lease_ms", LEASE_MS));
        child.go();
        thread::sleep(Duration::from_millis(LEASES * LEASE_MS));
        let left = bench.server.ask("DBSIZE").trim_start_matches(':').parse().unwrap_or(0.0);
        figures.add(name, "locks lost", LOCKS as f64 - left);
        drop(child.process().kill());
    });
    figures.judge("locks lost", figures.value(Name::Distlock, "locks lost"), Limit::AtMost(0.0));
    figures.print();
}

pub(super) fn work(job: &Job) {
    with_contestant(job, |contestant| async {
        let contestant = Arc::new(contestant);
        let _holds = hold_all(&contestant, LOCKS).await;
        station::ready();
        let workers = tokio::runtime::Handle::current().metrics().num_workers();
        for _ in 0..workers {
            tokio::spawn(async { thread::sleep(BLOCKED) });
        }
        // The thread that is blocked on this runs no tasks of others.
        std::future::pending::<()>().await;
    });
}

const LOCKS: u64 = 100;
const LEASE_MS: u64 = 1_000;
const LEASES: u64 = 3;
const BLOCKED: Duration = Duration::from_secs(10);
