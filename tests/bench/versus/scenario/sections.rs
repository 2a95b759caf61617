//! What is known of sections that many waiters of several processes ran under one lock.

use std::collections::BTreeMap;

use crate::round::Outcome;
use crate::statistics::{jain, max, mean, percentile};

/// One run of a body under the lock; times in nanoseconds of the machine's clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Section {
    /// Process and number of the waiter.
    waiter: (usize, u64),
    asked_ns: f64,
    begun_ns: f64,
    held_ns: f64,
}

/// All sections of a run, in the order in which they began.
#[derive(Debug)]
pub(super) struct Sections(Vec<Section>);

impl Sections {
    /// Reads rows of waiter, asked, begun, held.
    pub(super) fn of(outcome: &Outcome) -> Self {
        let of_process = outcome.reports.iter().enumerate().flat_map(|(process, report)| {
            report.rows("section").iter().map(move |row| Section {
                waiter: (process, row[0] as u64),
                asked_ns: row[1],
                begun_ns: row[2],
                held_ns: row[3],
            })
        });
        let mut sections: Vec<_> = of_process.collect();
        sections.sort_unstable_by(|one, other| one.begun_ns.total_cmp(&other.begun_ns));
        Self(sections)
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// From the first wish to the last end.
    pub(super) fn total_ns(&self) -> f64 {
        let first = self.0.iter().map(|section| section.asked_ns).fold(f64::NAN, f64::min);
        let last = self.0.iter().map(|section| section.begun_ns + section.held_ns);
        last.fold(f64::NAN, f64::max) - first
    }

    /// One after the other, without a gap.
    pub(super) fn ideal_ns(&self) -> f64 {
        self.0.iter().map(|section| section.held_ns).sum()
    }

    /// How evenly the sections were spread when the first waiter had its whole share: at the end all
    /// have theirs, however unfair it was until then.
    pub(super) fn jain(&self, share: usize) -> f64 {
        let mut had: BTreeMap<_, f64> = self.0.iter().map(|s| (s.waiter, 0.0)).collect();
        for section in &self.0 {
            let count = had.entry(section.waiter).or_default();
            *count += 1.0;
            if *count as usize == share {
                break;
            }
        }
        jain(&had.into_values().collect::<Vec<_>>())
    }

    pub(super) fn wait_p99_ns(&self) -> f64 {
        percentile(&self.waits(), 0.99)
    }

    pub(super) fn wait_max_ns(&self) -> f64 {
        max(&self.waits())
    }

    pub(super) fn wait_mean_ns(&self) -> f64 {
        mean(&self.waits())
    }

    fn waits(&self) -> Vec<f64> {
        self.0.iter().map(|section| section.begun_ns - section.asked_ns).collect()
    }
}
