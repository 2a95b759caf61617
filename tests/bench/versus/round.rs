//! One contestant's turn: children that measure, and what the server saw of them.

use crate::bench::Bench;
use crate::child::{Child, Report};
use crate::job::Job;
use crate::monitor::Monitor;

/// What a round is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Round {
    /// Commands are counted, which costs the server time.
    Counted,
    Timed,
}

/// What came of a turn.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) reports: Vec<Report>,
    /// In a counted round only.
    pub(crate) commands: Option<f64>,
    pub(crate) server_cpu_ns: f64,
}

impl Round {
    /// Has the jobs done at the same time, each by a process of its own.
    pub(crate) fn run(self, bench: &mut Bench, jobs: &[Job]) -> Outcome {
        let mut children: Vec<_> = jobs.iter().map(Child::start).collect();
        let monitor = (self == Self::Counted).then(|| Monitor::start(&bench.server));
        let count = |bench: &mut Bench| monitor.as_ref().map(|m| m.count(&mut bench.server));
        let (before, cpu_before) = (count(bench), bench.server.cpu_ns());
        children.iter_mut().for_each(Child::go);
        let reports = children.into_iter().map(Child::finish).collect();
        let server_cpu_ns = bench.server.cpu_ns() - cpu_before;
        let commands = count(bench).zip(before).map(|(after, before)| after - before);
        Outcome { reports, commands, server_cpu_ns }
    }
}

impl Outcome {
    /// The sum of a number that every child reports once.
    pub(crate) fn sum(&self, name: &str) -> f64 {
        self.reports.iter().map(|report| report.one(name)).sum()
    }

    /// A kind of rows of all children.
    pub(crate) fn rows<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Vec<f64>> + 'a {
        self.reports.iter().flat_map(move |report| report.rows(name))
    }
}
