//! What was measured in a scenario, and what it is held against.

use std::collections::BTreeMap;

use crate::contestant::Name;
use crate::statistics::median;

/// A scenario's figures: one value a round for each contestant and metric.
#[derive(Debug)]
pub(crate) struct Figures {
    scenario: String,
    metrics: Vec<String>,
    contestants: Vec<Name>,
    values: BTreeMap<(Name, String), Vec<f64>>,
    verdicts: Vec<Verdict>,
}

#[derive(Debug)]
struct Verdict {
    what: String,
    value: f64,
    limit: Limit,
}

/// What distlock must reach.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Limit {
    AtLeast(f64),
    AtMost(f64),
}

impl Figures {
    pub(crate) fn new(scenario: impl Into<String>) -> Self {
        Self {
            scenario: scenario.into(),
            metrics: Vec::new(),
            contestants: Vec::new(),
            values: BTreeMap::new(),
            verdicts: Vec::new(),
        }
    }

    /// Notes a round's value.
    pub(crate) fn add(&mut self, contestant: Name, metric: &str, value: f64) {
        if !self.metrics.iter().any(|known| known == metric) {
            self.metrics.push(metric.to_owned());
        }
        if !self.contestants.contains(&contestant) {
            self.contestants.push(contestant);
        }
        self.values.entry((contestant, metric.to_owned())).or_default().push(value);
    }

    /// The median of the rounds.
    pub(crate) fn value(&self, contestant: Name, metric: &str) -> f64 {
        self.rounds(contestant, metric).map_or(f64::NAN, median)
    }

    /// The median of what the first has for each one that the second has, round by round.
    pub(crate) fn ratio(&self, one: Name, other: Name, metric: &str) -> f64 {
        let (Some(ones), Some(others)) = (self.rounds(one, metric), self.rounds(other, metric))
        else {
            return f64::NAN;
        };
        median(&ones.iter().zip(others).map(|(one, other)| one / other).collect::<Vec<_>>())
    }

    /// The peer with the best value, if any peer took part.
    pub(crate) fn best_peer(&self, metric: &str, better: fn(f64, f64) -> bool) -> Option<Name> {
        let peers = self.contestants.iter().copied().filter(|name| name.is_peer());
        let measured = peers.filter(|peer| self.value(*peer, metric).is_finite());
        measured.reduce(|best, peer| {
            if better(self.value(peer, metric), self.value(best, metric)) { peer } else { best }
        })
    }

    /// Holds a value against what it must reach.
    pub(crate) fn judge(&mut self, what: impl Into<String>, value: f64, limit: Limit) {
        // What was not measured is not judged.
        if value.is_finite() {
            self.verdicts.push(Verdict { what: what.into(), value, limit });
        }
    }

    /// Prints the table, the verdicts and a line for each figure.
    pub(crate) fn print(&self) {
        println!("\n### {}\n", self.scenario);
        println!("| contestant | {} |", self.metrics.join(" | "));
        println!("|---|{}", "---:|".repeat(self.metrics.len()));
        for contestant in &self.contestants {
            let cells = self.metrics.iter().map(|metric| cell(self.value(*contestant, metric)));
            println!("| {} | {} |", contestant.text(), cells.collect::<Vec<_>>().join(" | "));
        }
        if !self.verdicts.is_empty() {
            println!("\n| distlock must reach | limit | measured | |\n|---|---:|---:|---|");
            for verdict in &self.verdicts {
                let Verdict { what, value, limit } = verdict;
                println!("| {what} | {} | {} | {} |", limit.text(), cell(*value), verdict.word());
            }
        }
        println!();
        for ((contestant, metric), values) in &self.values {
            let (scenario, name) = (&self.scenario, contestant.text());
            println!("RESULT {scenario} {name} {} {}", metric.replace(' ', "_"), median(values));
        }
        for verdict in &self.verdicts {
            let what = verdict.what.replace(' ', "_");
            println!("VERDICT {} {what} {} {}", self.scenario, verdict.value, verdict.word());
        }
    }

    fn rounds(&self, contestant: Name, metric: &str) -> Option<&[f64]> {
        self.values.get(&(contestant, metric.to_owned())).map(Vec::as_slice)
    }
}

impl Verdict {
    fn word(&self) -> &'static str {
        let reached = match self.limit {
            Limit::AtLeast(limit) => self.value >= limit,
            Limit::AtMost(limit) => self.value <= limit,
        };
        if reached { "ok" } else { "missed" }
    }
}

impl Limit {
    fn text(self) -> String {
        match self {
            Self::AtLeast(limit) => format!(">= {limit}"),
            Self::AtMost(limit) => format!("<= {limit}"),
        }
    }
}

fn cell(value: f64) -> String {
    match value.abs() {
        _ if value.is_nan() => "-".to_owned(),
        size if size >= 1000.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.3}"),
    }
}
