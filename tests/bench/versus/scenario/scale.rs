//! How cost grows: with held locks, with waiters of a key, and with keys that are waited for.

use super::{waiters, watchdog};
use crate::bench::Bench;
use crate::contestant::Name;
use crate::job::Job;

pub(super) fn measure(scenario: &'static str, bench: &mut Bench) {
    for locks in bench.options.pick(&[1_000, 10_000, 100_000][..], &[1_000, 10_000]) {
        let title = format!("{scenario}-held-{locks}");
        watchdog::observe(title, bench, *locks, &[Name::Distlock]).print();
    }
    for (waiting, keys) in [(100, 1), (1_000, 1), (10_000, 1), (10_000, 10), (10_000, 100)] {
        let title = format!("{scenario}-waiting-{waiting}-on-{keys}");
        waiters::observe(title, bench, (waiting, keys), &[Name::Distlock]).print();
    }
}

/// Its jobs are those of the scenarios that it is made of.
pub(super) fn work(job: &Job) {
    panic!("{job:?} has no work of its own");
}
