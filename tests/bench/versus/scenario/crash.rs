//! The holder's process is killed: how soon after the end of its leases others go on.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use super::handover::{hold_all, wait_for};
use super::with_contestant;
use crate::bench::Bench;
use crate::child::Child;
use crate::clock::now_ns;
use crate::contestant::{Name, key_text};
use crate::figures::{Figures, Limit};
use crate::job::Job;
use crate::round::Round;
use crate::station;
use crate::statistics::{max, median};

pub(super) fn measure(scenario: &'static str, bench: &mut Bench) {
    let mut figures = Figures::new(scenario);
    // The raw one trusts that nobody dies.
    let contestants = [Name::Distlock, Name::AsyncRedisLock, Name::Rslock];
    bench.take_turns(&contestants, |bench, name, round| {
        if round == Round::Counted {
            return;
        }
        let job = bench.job(scenario, name).with("lease_ms", LEASE_MS).with("waiters", 1);
        let mut holder = Child::start(&job.clone().with("holds", 1));
        let mut waiter = Child::start(&job);
        waiter.go();
        thread::sleep(SETTLING);
        drop(holder.process().kill());
        drop(holder.process().wait());
        let ends: BTreeMap<u64, f64> =
            (0..KEYS).map(|key| (key, lease_end_ns(bench, key))).collect();
        let began = waiter.finish();
        let after_ms = |row: &Vec<f64>| (row[1] - ends[&(row[0] as u64)]) / 1e6;
        let after_ms: Vec<_> = began.rows("began").iter().map(after_ms).collect();
        figures.add(name, "median ms after the lease", median(&after_ms));
        figures.add(name, "max ms after the lease", max(&after_ms));
    });
    let worst = figures.value(Name::Distlock, "max ms after the lease");
    figures.judge("max ms after the lease", worst, Limit::AtMost(50.0));
    figures.print();
}

/// When the server will forget the key, by the machine's clock.
fn lease_end_ns(bench: &mut Bench, key: u64) -> f64 {
    let reply = bench.server.ask(&format!("PTTL {}", key_text(key)));
    let left_ms: f64 = reply.trim_start_matches(':').parse().expect("a lock has a lease");
    now_ns() as f64 + left_ms * 1e6
}

pub(super) fn work(job: &Job) {
    with_contestant(job, |contestant| async {
        let contestant = Arc::new(contestant);
        if job.setting("holds") == 1 {
            let _holds = hold_all(&contestant, KEYS).await;
            station::ready();
            std::future::pending::<()>().await;
        } else {
            wait_for(&contestant, KEYS, 1).await;
        }
    });
}

const KEYS: u64 = 10;
const LEASE_MS: u64 = 2_000;
const SETTLING: Duration = Duration::from_millis(500);
