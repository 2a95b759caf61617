//! What is under way to one node, as guards: whatever becomes of a request, its ballot knows.

use std::sync::Arc;
use std::time::Duration;

use super::Quorum;
use super::ballot::Ballot;
use crate::clock::Timestamp;

/// A request that may set the ballot's value on a node. Dropped unanswered, it may still do so.
pub(super) struct Set {
    quorum: Arc<Quorum>,
    ballot: Arc<Ballot>,
    node: usize,
    answered: bool,
}

impl Set {
    /// None once the ballot is over.
    pub(super) fn begin(
        quorum: &Arc<Quorum>,
        ballot: &Arc<Ballot>,
        node: usize,
        lease: Duration,
    ) -> Option<Self> {
        let begun = ballot.state().begin(node, lease);
        begun.then(|| Self {
            quorum: Arc::clone(quorum),
            ballot: Arc::clone(ballot),
            node,
            answered: false,
        })
    }

    pub(super) fn answered(mut self, stands: bool) {
        self.answered = true;
        self.ballot.state().answered(self.node, stands);
    }
}

impl Drop for Set {
    fn drop(&mut self) {
        if self.answered {
            return;
        }
        let now = self.quorum.now();
        let owed = {
            let mut state = self.ballot.state();
            state.unanswered(self.node, now);
            state.is_over()
        };
        if owed {
            self.quorum.nodes[self.node].owe(Arc::clone(&self.ballot));
        }
    }
}

/// A delete of a ballot that is over on one node. Unless it is answered, and nothing can come after
/// it, the node is owed another.
pub(super) struct Delete {
    quorum: Arc<Quorum>,
    ballot: Arc<Ballot>,
    node: usize,
    sent_at: Timestamp,
    certain: bool,
    settled: bool,
}

impl Delete {
    /// It is sent now.
    pub(super) fn begin(quorum: &Arc<Quorum>, ballot: Arc<Ballot>, node: usize) -> Self {
        let sent_at = quorum.now();
        let certain = ballot.state().is_certain(node, sent_at);
        Self { quorum: Arc::clone(quorum), ballot, node, sent_at, certain, settled: false }
    }

    /// The node answered, or will not.
    pub(super) fn answered(mut self, answered: bool) {
        self.settled = answered && self.certain;
        if self.settled {
            self.ballot.state().found_gone(self.node, self.sent_at);
        }
    }
}

impl Drop for Delete {
    fn drop(&mut self) {
        let may_stand = || self.ballot.state().may_stand(self.node, self.quorum.now());
        if !self.settled && may_stand() {
            self.quorum.nodes[self.node].owe(Arc::clone(&self.ballot));
        }
    }
}
