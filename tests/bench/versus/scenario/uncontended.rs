//! Many tasks, each with a lock of its own: what a lock costs that nobody else wants.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;

use super::with_contestant;
use crate::bench::Bench;
use crate::clock::{cpu_ns, now_ns};
use crate::contestant::Name;
use crate::figures::{Figures, Limit};
use crate::job::Job;
use crate::station;

pub(super) fn measure(scenario: &'static str, bench: &mut Bench) {
    measure_on(scenario, bench, 0);
}

pub(super) fn measure_one_thread(scenario: &'static str, bench: &mut Bench) {
    measure_on(scenario, bench, 1);
}

fn measure_on(scenario: &'static str, bench: &mut Bench, threads: u64) {
    for tasks in bench.options.pick(&[1, 16, 64, 256][..], &[1, 64]) {
        let mut figures = Figures::new(format!("{scenario}-{tasks}"));
        let parts = bench.options.pick(5, 2);
        bench.take_turns_of(parts, &Name::TAKING, |bench, name, round| {
            let job = bench.job(scenario, name).with("tasks", *tasks).with("threads", threads);
            let outcome = round.run(bench, &[job.with("window_ms", 200)]);
            let pairs = outcome.sum("pairs");
            if let Some(commands) = outcome.commands {
                figures.add(name, "commands/pair", commands / pairs);
            } else {
                figures.add(name, "pairs/s", pairs * 1e9 / outcome.sum("elapsed_ns"));
                figures.add(name, "client µs/pair", outcome.sum("cpu_ns") / pairs / 1e3);
                figures.add(name, "server µs/pair", outcome.server_cpu_ns / pairs / 1e3);
            }
        });
        judge(&mut figures);
        figures.print();
    }
}

fn judge(figures: &mut Figures) {
    let of_raw = figures.ratio(Name::Distlock, Name::Raw, "pairs/s");
    figures.judge("pairs/s of raw", of_raw, Limit::AtLeast(0.95));
    if let Some(best) = figures.best_peer("pairs/s", |one, other| one > other) {
        let of_best = figures.ratio(Name::Distlock, best, "pairs/s");
        figures.judge(format!("pairs/s of {}", best.text()), of_best, Limit::AtLeast(1.0));
    }
    let commands = figures.value(Name::Distlock, "commands/pair");
    figures.judge("commands/pair", commands, Limit::AtMost(2.0));
    let cpu = figures.ratio(Name::Distlock, Name::Raw, "client µs/pair");
    figures.judge("client CPU of raw", cpu, Limit::AtMost(1.5));
}

pub(super) fn work(job: &Job) {
    with_contestant(job, |contestant| async {
        let contestant = Arc::new(contestant);
        let tasks = job.setting("tasks");
        run(&contestant, tasks, Duration::from_millis(50)).await;
        station::ready();
        let (begun_ns, cpu_before) = (now_ns(), cpu_ns());
        let pairs = run(&contestant, tasks, Duration::from_millis(job.setting("window_ms"))).await;
        station::report("elapsed_ns", &[(now_ns() - begun_ns) as f64]);
        station::report("cpu_ns", &[(cpu_ns() - cpu_before) as f64]);
        station::report("pairs", &[pairs as f64]);
    });
}

/// How many pairs the tasks got done in the time.
async fn run(contestant: &Arc<crate::contestant::Contestant>, tasks: u64, time: Duration) -> u64 {
    let until_ns = now_ns() + time.as_nanos() as u64;
    let mut running = JoinSet::new();
    for key in 0..tasks {
        let contestant = Arc::clone(contestant);
        running.spawn(async move {
            let mut pairs = 0;
            while now_ns() < until_ns {
                contestant.section(key, || ()).await;
                pairs += 1;
            }
            pairs
        });
    }
    running.join_all().await.into_iter().sum()
}
