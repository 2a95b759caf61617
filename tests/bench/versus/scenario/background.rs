//! One task whose calls do not wait for their releases: how many round trips a call takes.

use super::{LEASE, with_contestant};
use crate::bench::Bench;
use crate::clock::now_ns;
use crate::contestant::{Contestant, Name};
use crate::figures::{Figures, Limit};
use crate::job::Job;
use crate::station;
use crate::statistics::median;

/// What is timed, turn by turn, in one process: so that all of it meets the same machine.
#[derive(Clone, Copy)]
enum Call {
    /// A round trip by the same kind of connection.
    Ping,
    /// The default: the call returns when its lock is released.
    Awaited,
    /// One key again and again.
    SameKey,
    /// A key that was not used before.
    NewKey,
}

pub(super) fn measure(scenario: &'static str, bench: &mut Bench) {
    let mut figures = Figures::new(scenario);
    let turns = bench.options.pick(200, 50);
    let name = Name::Distlock;
    bench.take_turns_of(5, &[name], |bench, name, round| {
        let outcome = round.run(bench, &[bench.job(scenario, name).with("turns", turns)]);
        if outcome.commands.is_some() {
            return;
        }
        let trip_ns = outcome.sum(Call::Ping.text());
        figures.add(name, "PING p50 µs", trip_ns / 1e3);
        for call in [Call::Awaited, Call::SameKey, Call::NewKey] {
            let metric = format!("{} p50, round trips", call.text());
            figures.add(name, &metric, outcome.sum(call.text()) / trip_ns);
        }
    });
    for call in [Call::SameKey, Call::NewKey] {
        let metric = format!("{} p50, round trips", call.text());
        let value = figures.value(name, &metric);
        figures.judge(metric, value, Limit::AtMost(1.15));
    }
    figures.print();
}

pub(super) fn work(job: &Job) {
    let (turns, url) = (job.setting("turns"), job.url.clone());
    with_contestant(job, |contestant| async move {
        let raw = Contestant::connect(Name::Raw, &url, LEASE).await;
        // On a worker, as a server's tasks are.
        let task = tokio::spawn(async move {
            take_turns(&contestant, &raw, 3).await;
            station::ready();
            for (call, times) in take_turns(&contestant, &raw, turns).await {
                station::report(call.text(), &[median(&times)]);
            }
        });
        task.await.expect("no panic");
    });
}

async fn take_turns(locks: &Contestant, raw: &Contestant, turns: u64) -> [(Call, Vec<f64>); 4] {
    let (Contestant::Distlock(locks), Contestant::Raw(raw)) = (locks, raw) else {
        unreachable!("the job names distlock")
    };
    let mut timed = Call::ALL.map(|call| (call, Vec::new()));
    let mut new_key = FIRST_NEW_KEY;
    for _ in 0..turns {
        for (call, times) in &mut timed {
            for _ in 0..CALLS_PER_TURN {
                new_key += 1;
                let begun_ns = now_ns();
                match call {
                    Call::Ping => raw.ping().await,
                    Call::Awaited => locks.section(0, || ()).await,
                    Call::SameKey => locks.section_released_in_background(0).await,
                    Call::NewKey => locks.section_released_in_background(new_key).await,
                }
                times.push((now_ns() - begun_ns) as f64);
            }
        }
    }
    timed
}

impl Call {
    const ALL: [Self; 4] = [Self::Ping, Self::Awaited, Self::SameKey, Self::NewKey];

    const fn text(self) -> &'static str {
        match self {
            Self::Ping => "ping",
            Self::Awaited => "awaited",
            Self::SameKey => "same-key",
            Self::NewKey => "new-key",
        }
    }
}

const CALLS_PER_TURN: u64 = 50;
const FIRST_NEW_KEY: u64 = 1 << 20;
