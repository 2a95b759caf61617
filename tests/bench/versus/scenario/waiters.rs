//! Very many waiters: what they cost while they wait, and how fast they can all be sent home.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;

use super::contended::warm_up;
use super::handover::hold_all;
use super::with_contestant;
use crate::bench::Bench;
use crate::child::Child;
use crate::clock::{cpu_ns, now_ns};
use crate::contestant::{Contestant, Name};
use crate::figures::{Figures, Limit};
use crate::job::Job;
use crate::memory::resident_bytes;
use crate::round::Round;
use crate::station;

pub(super) fn measure(scenario: &'static str, bench: &mut Bench) {
    for keys in [1, 1_000] {
        let title = format!("{scenario}-{WAITERS}-on-{keys}");
        let mut figures = observe(title, bench, (WAITERS, keys), &Name::WAITING);
        let limits = [("bytes/waiter", 1024.0), ("connections", 3.0), ("cancel ms", 100.0)];
        for (metric, limit) in limits {
            let value = figures.value(Name::Distlock, metric);
            figures.judge(metric, value, Limit::AtMost(limit));
        }
        figures.print();
    }
}

/// Has so many wait on so many keys, and then sends them home.
pub(super) fn observe(
    title: String,
    bench: &mut Bench,
    (waiters, keys): (u64, u64),
    contestants: &[Name],
) -> Figures {
    let mut figures = Figures::new(title);
    bench.take_turns(contestants, |bench, name, round| {
        if round == Round::Counted {
            return;
        }
        let job = bench.job("waiters", name).with("keys", keys).with("waiters", waiters);
        let mut holder = Child::start(&job.clone().with("holds", 1));
        let before = bench.server.connections();
        let mut waiter = Child::start(&job);
        waiter.go();
        let report = waiter.await_ready();
        figures.add(name, "bytes/waiter", report.one("bytes") / waiters as f64);
        figures.add(name, "connections", bench.server.connections() - before);
        figures.add(name, "client % of a core", report.one("cpu_percent"));
        waiter.go();
        figures.add(name, "cancel ms", waiter.finish().one("cancel_ms"));
        drop(holder.process().kill());
    });
    figures
}

pub(super) fn work(job: &Job) {
    let (keys, waiters) = (job.setting("keys"), job.setting("waiters"));
    with_contestant(job, |contestant| async move {
        let contestant = Arc::new(contestant);
        if job.setting("holds") == 1 {
            let _holds = hold_all(&contestant, keys).await;
            station::ready();
            std::future::pending::<()>().await;
        } else {
            crowd(&contestant, waiters, keys).await;
        }
    });
}

async fn crowd(contestant: &Arc<Contestant>, waiters: u64, keys: u64) {
    warm_up(contestant).await;
    station::ready();
    let bytes_before = resident_bytes();
    let mut waiting = JoinSet::new();
    for number in 0..waiters {
        waiting.spawn(contestant.small_section(number % keys));
    }
    tokio::time::sleep(SETTLING).await;
    let (begun_ns, cpu_before) = (now_ns(), cpu_ns());
    tokio::time::sleep(SETTLING).await;
    let share = (cpu_ns() - cpu_before) as f64 / (now_ns() - begun_ns) as f64;
    station::report("cpu_percent", &[100.0 * share]);
    station::report("bytes", &[resident_bytes() - bytes_before]);
    station::ready();
    let begun_ns = now_ns();
    waiting.shutdown().await;
    station::report("cancel_ms", &[(now_ns() - begun_ns) as f64 / 1e6]);
}

const WAITERS: u64 = 10_000;
const SETTLING: Duration = Duration::from_secs(1);
