//! Very many locks that are held, and have to be renewed.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;

use super::{LEASE, with_contestant};
use crate::bench::Bench;
use crate::clock::cpu_ns;
use crate::contestant::{Contestant, Hold, Name};
use crate::figures::{Figures, Limit};
use crate::job::Job;
use crate::memory::resident_bytes;
use crate::round::Round;
use crate::station;

pub(super) fn measure(scenario: &'static str, bench: &mut Bench) {
    let one = bench.options.pick(&[Name::Distlock, Name::AsyncRedisLock][..], &[Name::Distlock]);
    measure_size(scenario, bench, 10_000, one).print();
    if bench.options.pick(true, false) {
        measure_size(scenario, bench, 100_000, &[Name::Distlock]).print();
    }
}

fn measure_size(
    scenario: &'static str,
    bench: &mut Bench,
    locks: u64,
    contestants: &[Name],
) -> Figures {
    let mut figures = observe(format!("{scenario}-{locks}"), bench, locks, contestants);
    let scale = locks as f64 / 10_000.0;
    let limits = [
        ("client % of a core", 1.5 * scale),
        ("server % of a core", 3.0 * scale),
        ("bytes/hold", 1024.0),
        ("calls over 1 ms", 0.0),
        ("latest renewal, of the lease", 0.5),
    ];
    for (metric, limit) in limits {
        let value = figures.value(Name::Distlock, metric);
        figures.judge(metric, value, Limit::AtMost(limit));
    }
    figures
}

/// Holds `locks` for some of their leases.
pub(super) fn observe(
    title: String,
    bench: &mut Bench,
    locks: u64,
    contestants: &[Name],
) -> Figures {
    let mut figures = Figures::new(title);
    // Whole thirds of a lease, so that every lock is renewed equally often.
    let window_ms = bench.options.pick(3, 1) * LEASE.as_millis() as u64 / 3;
    bench.take_turns(contestants, |bench, name, round| {
        let watched = u64::from(round == Round::Counted);
        let job = bench.job("watchdog", name).with("locks", locks).with("watched", watched);
        bench.server.watch_slow_calls();
        let outcome = round.run(bench, &[job.with("window_ms", window_ms)]);
        let seconds = window_ms as f64 / 1e3;
        if let Some(commands) = outcome.commands {
            figures.add(name, "commands/s", commands / seconds);
            figures.add(name, "latest renewal, of the lease", outcome.sum("latest_renewal"));
            return;
        }
        figures.add(name, "client % of a core", outcome.sum("cpu_ns") / seconds / 1e7);
        figures.add(name, "server % of a core", outcome.server_cpu_ns / seconds / 1e7);
        figures.add(name, "bytes/hold", outcome.sum("bytes") / locks as f64);
        figures.add(name, "calls over 1 ms", bench.server.slow_calls());
    });
    figures
}

pub(super) fn work(job: &Job) {
    with_contestant(job, |contestant| async {
        let contestant = Arc::new(contestant);
        let bytes_before = resident_bytes();
        let holds = take(&contestant, job.setting("locks")).await;
        // The first renewals are over when it begins.
        tokio::time::sleep(LEASE / 3).await;
        station::ready();
        let cpu_before = cpu_ns();
        let window = Duration::from_millis(job.setting("window_ms"));
        let latest = if job.setting("watched") == 1 {
            latest_renewal(&holds, window).await
        } else {
            tokio::time::sleep(window).await;
            f64::NAN
        };
        station::report("cpu_ns", &[(cpu_ns() - cpu_before) as f64]);
        station::report("bytes", &[resident_bytes() - bytes_before]);
        station::report("latest_renewal", &[latest]);
    });
}

async fn take(contestant: &Arc<Contestant>, locks: u64) -> Vec<Hold> {
    let mut taking = JoinSet::new();
    for first in 0..TAKERS {
        let contestant = Arc::clone(contestant);
        taking.spawn(async move {
            let mut holds = Vec::new();
            for key in (first..locks).step_by(TAKERS as usize) {
                holds.push(contestant.hold(key).await);
            }
            holds
        });
    }
    taking.join_all().await.into_iter().flatten().collect()
}

/// The largest part of a lease that was over before its renewal, as distlock itself sees it.
async fn latest_renewal(holds: &[Hold], window: Duration) -> f64 {
    let until = tokio::time::Instant::now() + window;
    let mut least = LEASE;
    while tokio::time::Instant::now() < until {
        tokio::time::sleep(Duration::from_millis(50)).await;
        for hold in holds {
            let Hold::Distlock(guard) = hold else { return f64::NAN };
            least = least.min(guard.remaining());
        }
    }
    1.0 - least.as_secs_f64() / LEASE.as_secs_f64()
}

const TAKERS: u64 = 128;
