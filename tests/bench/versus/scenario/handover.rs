//! A lock goes from one process to another that has waited for seconds.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use tokio::task::JoinSet;

use super::contended::warm_up;
use super::with_contestant;
use crate::bench::Bench;
use crate::child::{Child, Report};
use crate::clock::now_ns;
use crate::contestant::{Contestant, Hold, Name};
use crate::figures::{Figures, Limit};
use crate::job::Job;
use crate::monitor::Monitor;
use crate::round::Round;
use crate::station;
use crate::statistics::percentile;

pub(super) fn measure(scenario: &'static str, bench: &mut Bench) {
    let mut figures = Figures::new(scenario);
    let wait_ms = bench.options.pick(5_000, 2_000);
    let mut samples: BTreeMap<Name, Vec<f64>> = BTreeMap::new();
    bench.take_turns(&Name::HANDING_OVER, |bench, name, round| {
        // Counted with a crowd behind each key, timed with one waiter.
        let waiters = if round == Round::Counted { CROWD } else { 1 };
        let job = bench.job(scenario, name).with("wait_ms", wait_ms).with("waiters", waiters);
        let mut holder = Child::start(&job.clone().with("holds", 1));
        let mut waiter = Child::start(&job);
        let monitor = (round == Round::Counted).then(|| Monitor::start(&bench.server));
        holder.go();
        waiter.go();
        if let Some(monitor) = monitor {
            thread::sleep(SETTLING);
            let before = monitor.count(&mut bench.server);
            let window = Duration::from_millis(wait_ms) - 2 * SETTLING;
            thread::sleep(window);
            let commands = monitor.count(&mut bench.server) - before;
            let rate = commands / window.as_secs_f64() / KEYS as f64;
            figures.add(name, "commands/s of a process and key", rate);
        }
        let (released, began) = (holder.finish(), waiter.finish());
        if round == Round::Timed {
            let latencies = latencies(&released, &began);
            figures.add(name, "p50 ms", percentile(&latencies, 0.5));
            samples.entry(name).or_default().extend(latencies);
        }
    });
    for (name, samples) in &samples {
        figures.add(*name, "p99 ms", percentile(samples, 0.99));
        figures.add(*name, "samples", samples.len() as f64);
    }
    let of_raw = figures.ratio(Name::Distlock, Name::RawGrant, "p50 ms");
    figures.judge("p50 of raw-grant", of_raw, Limit::AtMost(1.3));
    let of_blpop = figures.ratio(Name::Distlock, Name::Blpop, "p50 ms");
    figures.judge("p50 of blpop", of_blpop, Limit::AtMost(1.0));
    if let Some(best) = figures.best_peer("p50 ms", |one, other| one < other) {
        let of_best = figures.ratio(Name::Distlock, best, "p50 ms");
        figures.judge(format!("p50 of {}", best.text()), of_best, Limit::AtMost(1.0));
    }
    let rate = figures.value(Name::Distlock, "commands/s of a process and key");
    figures.judge("commands/s of a process and key", rate, Limit::AtMost(1.0));
    figures.print();
}

/// From each release to the begin of the body that it let in, in milliseconds.
fn latencies(released: &Report, began: &Report) -> Vec<f64> {
    let began: BTreeMap<u64, f64> =
        began.rows("began").iter().map(|row| (row[0] as u64, row[1])).collect();
    let latency = |row: &Vec<f64>| Some((began.get(&(row[0] as u64))? - row[1]) / 1e6);
    released.rows("released").iter().filter_map(latency).collect()
}

pub(super) fn work(job: &Job) {
    let wait = Duration::from_millis(job.setting("wait_ms"));
    with_contestant(job, |contestant| async {
        let contestant = Arc::new(contestant);
        if job.setting("holds") == 1 {
            hold(&contestant, wait).await;
        } else {
            wait_for(&contestant, KEYS, job.setting("waiters")).await;
        }
    });
}

async fn hold(contestant: &Contestant, wait: Duration) {
    let holds = hold_all(contestant, KEYS).await;
    station::ready();
    tokio::time::sleep(wait).await;
    for (key, hold) in (0..KEYS).zip(holds) {
        tokio::time::sleep(BETWEEN_RELEASES).await;
        let now_ns = now_ns();
        contestant.release(hold).await;
        station::report("released", &[key as f64, now_ns as f64]);
    }
}

/// Takes that many locks.
pub(super) async fn hold_all(contestant: &Contestant, keys: u64) -> Vec<Hold> {
    let mut holds = Vec::new();
    for key in 0..keys {
        holds.push(contestant.hold(key).await);
    }
    holds
}

/// Waits for that many locks, with so many waiters each, and reports when each body began.
pub(super) async fn wait_for(contestant: &Arc<Contestant>, keys: u64, waiters: u64) {
    warm_up(contestant).await;
    station::ready();
    let mut running = JoinSet::new();
    for key in (0..keys).flat_map(|key| (0..waiters).map(move |_| key)) {
        let contestant = Arc::clone(contestant);
        running.spawn(async move { (key, contestant.section(key, now_ns).await) });
    }
    for (key, begun_ns) in running.join_all().await {
        station::report("began", &[key as f64, begun_ns as f64]);
    }
}

const KEYS: u64 = 20;
const CROWD: u64 = 16;
const SETTLING: Duration = Duration::from_millis(500);
const BETWEEN_RELEASES: Duration = Duration::from_millis(15);
