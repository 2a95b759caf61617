//! Why nodes gave no answer, in one error.

use super::tally::majority;
use crate::backend::{StoreError, StoreErrorKind};

/// The failures of nodes in one round.
#[derive(Debug)]
pub(super) struct Trouble {
    nodes: usize,
    failures: Vec<StoreError>,
}

impl Trouble {
    pub(super) fn new(nodes: usize) -> Self {
        Self { nodes, failures: Vec::new() }
    }

    pub(super) fn add(&mut self, failure: StoreError) {
        self.failures.push(failure);
    }

    pub(super) fn count(&self) -> usize {
        self.failures.len()
    }

    /// The error of a store that could not be asked. Asking again does not help if more than half
    /// refused, or so many that the others are too few.
    pub(super) fn no_majority(&self) -> StoreError {
        let refused =
            self.failures.iter().filter(|error| error.kind == StoreErrorKind::Refused).count();
        let kind = if refused + majority(self.nodes) > self.nodes {
            StoreErrorKind::Refused
        } else {
            StoreErrorKind::Unavailable
        };
        self.error(kind)
    }

    /// The error of this kind, with what the nodes said of it.
    pub(super) fn error(&self, kind: StoreErrorKind) -> StoreError {
        // Those of the kind first: they are the reason.
        let (same, other): (Vec<_>, Vec<_>) =
            self.failures.iter().partition(|error| error.kind == kind);
        let reasons: Vec<_> = same.iter().chain(&other).map(|error| &*error.message).collect();
        let (count, nodes) = (self.failures.len(), self.nodes);
        let text = if reasons.is_empty() {
            format!("no {} of the {nodes} nodes of the quorum agree", majority(nodes))
        } else {
            format!(
                "{count} of the {nodes} nodes of the quorum gave no answer, {} are needed: {}",
                majority(nodes),
                reasons.join("; ")
            )
        };
        StoreError::new(kind, text)
    }
}
