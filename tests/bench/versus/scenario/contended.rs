//! One lock that everybody wants, in one process and in several.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;

use super::sections::Sections;
use super::with_contestant;
use crate::bench::Bench;
use crate::clock::{now_ns, work as keep_busy};
use crate::contestant::{Contestant, Name};
use crate::figures::{Figures, Limit};
use crate::job::Job;
use crate::station;
use crate::statistics::jain;

/// Waiters by process, and what distlock must reach there.
struct Crowd {
    processes: u64,
    waiters: u64,
    of_ideal: f64,
    commands: f64,
    of_mean_wait: f64,
    of_best_peer: f64,
}

/// Each waiter must get a fixed share of sections with some work in them.
pub(super) fn measure_share(scenario: &'static str, bench: &mut Bench) {
    let share = bench.options.pick(16, 4);
    for crowd in &CROWDS {
        let Crowd { processes, waiters, .. } = *crowd;
        let mut figures = Figures::new(format!("{scenario}-{processes}x{waiters}"));
        bench.take_turns(&Name::WAITING, |bench, name, round| {
            let job = bench.job(scenario, name).with("waiters", waiters);
            let job = job.with("share", share).with("hold_us", 1_000);
            let outcome = round.run(bench, &vec![job; processes as usize]);
            let sections = Sections::of(&outcome);
            if let Some(commands) = outcome.commands {
                figures.add(name, "commands/section", commands / sections.len() as f64);
                return;
            }
            figures.add(name, "total s", sections.total_ns() / 1e9);
            figures.add(name, "of ideal", sections.total_ns() / sections.ideal_ns());
            figures.add(name, "Jain", sections.jain(share as usize));
            figures.add(name, "wait p99 ms", sections.wait_p99_ns() / 1e6);
            let of_mean = sections.wait_max_ns() / sections.wait_mean_ns();
            figures.add(name, "max/mean wait", of_mean);
        });
        let value = |metric| figures.value(Name::Distlock, metric);
        let judged = [
            ("of ideal", value("of ideal"), Limit::AtMost(crowd.of_ideal)),
            ("commands/section", value("commands/section"), Limit::AtMost(crowd.commands)),
            ("Jain", value("Jain"), Limit::AtLeast(0.99)),
            ("max/mean wait", value("max/mean wait"), Limit::AtMost(crowd.of_mean_wait)),
        ];
        for (what, value, limit) in judged {
            figures.judge(what, value, limit);
        }
        figures.print();
    }
}

/// As many empty sections as can be had.
pub(super) fn measure_rate(scenario: &'static str, bench: &mut Bench) {
    let window_ms = bench.options.pick(2_000, 1_000);
    for crowd in &CROWDS {
        let Crowd { processes, waiters, .. } = *crowd;
        let mut figures = Figures::new(format!("{scenario}-{processes}x{waiters}"));
        bench.take_turns(&Name::WAITING, |bench, name, round| {
            let job = bench.job(scenario, name).with("waiters", waiters);
            let job = job.with("window_ms", window_ms);
            let outcome = round.run(bench, &vec![job; processes as usize]);
            let counts: Vec<_> = outcome.rows("sections").map(|row| row[0]).collect();
            let sections: f64 = counts.iter().sum();
            if let Some(commands) = outcome.commands {
                figures.add(name, "commands/section", commands / sections);
                return;
            }
            figures.add(name, "sections/s", sections * 1e3 / window_ms as f64);
            figures.add(name, "Jain", jain(&counts));
            figures.add(name, "client µs/section", outcome.sum("cpu_ns") / sections / 1e3);
        });
        if let Some(best) = figures.best_peer("sections/s", |one, other| one > other) {
            let what = format!("sections/s of {}", best.text());
            let of_best = figures.ratio(Name::Distlock, best, "sections/s");
            figures.judge(what, of_best, Limit::AtLeast(crowd.of_best_peer));
        }
        figures.judge("Jain", figures.value(Name::Distlock, "Jain"), Limit::AtLeast(0.99));
        figures.print();
    }
}

pub(super) fn work(job: &Job) {
    with_contestant(job, |contestant| async {
        let contestant = Arc::new(contestant);
        warm_up(&contestant).await;
        station::ready();
        let (begun_ns, cpu_before) = (now_ns(), crate::clock::cpu_ns());
        // A share of none is a window.
        let (share, window_ms) = (job.setting("share"), job.setting("window_ms"));
        let until_ns = begun_ns + window_ms * 1_000_000;
        let hold = Duration::from_micros(job.setting("hold_us"));
        let mut running = JoinSet::new();
        for waiter in 0..job.setting("waiters") {
            let contestant = Arc::clone(&contestant);
            running.spawn(async move {
                let (mut rows, mut sections) = (Vec::with_capacity(share as usize), 0_u64);
                while sections < share || (share == 0 && now_ns() < until_ns) {
                    let asked_ns = now_ns();
                    let body = || (now_ns(), keep_busy(hold));
                    let (section_ns, held_ns) = contestant.section(0, body).await;
                    sections += 1;
                    if share > 0 {
                        rows.push([waiter, asked_ns, section_ns, held_ns]);
                    }
                }
                (rows, sections)
            });
        }
        let finished = running.join_all().await;
        station::report("cpu_ns", &[(crate::clock::cpu_ns() - cpu_before) as f64]);
        for (rows, sections) in finished {
            station::report("sections", &[sections as f64]);
            rows.iter().for_each(|row| station::report("section", &row.map(|value| value as f64)));
        }
    });
}

/// Waits for a lock once, so that whatever waiting needs is connected.
pub(super) async fn warm_up(contestant: &Contestant) {
    let key = KEYS_OF_WARM_UP + u64::from(std::process::id());
    let first = contestant.hold(key).await;
    let second = contestant.section(key, || ());
    let release = async {
        tokio::time::sleep(Duration::from_millis(20)).await;
        contestant.release(first).await;
    };
    tokio::join!(second, release);
}

const KEYS_OF_WARM_UP: u64 = 1 << 32;

static CROWDS: [Crowd; 2] = [
    Crowd {
        processes: 1,
        waiters: 64,
        of_ideal: 1.12,
        commands: 0.3,
        of_mean_wait: 2.0,
        of_best_peer: 30.0,
    },
    Crowd {
        processes: 4,
        waiters: 16,
        of_ideal: 1.15,
        commands: 0.5,
        of_mean_wait: 3.0,
        of_best_peer: 15.0,
    },
];
