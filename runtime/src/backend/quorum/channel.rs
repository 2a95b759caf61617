//! The quorum as one store: requests go to all nodes, and come back as one answer.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::way::Way;
use super::{Quorum, draw, inspect, release, renew, take};
use crate::backend::{
    Acquired, BoxFuture, Channel, Contended, Drawn, Holder, Lock, Released, Renewal, Renewed,
    StoreError, StoreErrorKind, StoreResult,
};

#[derive(Debug)]
pub(super) struct QuorumChannel {
    quorum: Arc<Quorum>,
    ways: Vec<Arc<Way>>,
    /// Set once too few nodes were in reach, or it was retired: then it stays closed.
    closed: OnceLock<()>,
}

impl QuorumChannel {
    pub(super) fn new(quorum: &Arc<Quorum>, ways: Vec<Arc<Way>>) -> Self {
        quorum.nodes.iter().for_each(|node| node.collect());
        Self { quorum: Arc::clone(quorum), ways, closed: OnceLock::new() }
    }

    /// The ways that the calling runtime has now.
    pub(super) fn now(quorum: &Arc<Quorum>) -> Self {
        Self::new(quorum, quorum.nodes.iter().map(Way::now).collect())
    }

    fn round(&self) -> Round {
        Round { quorum: Arc::clone(&self.quorum), ways: self.ways.clone() }
    }
}

/// What a request takes along.
pub(super) struct Round {
    pub(super) quorum: Arc<Quorum>,
    pub(super) ways: Vec<Arc<Way>>,
}

impl Channel for QuorumChannel {
    fn is_open(&self) -> bool {
        if self.closed.get().is_some() {
            return false;
        }
        let open = self.ways.iter().filter(|way| way.channel().is_some()).count();
        let is_open = open >= self.quorum.majority();
        if !is_open {
            // A second time means the same.
            let _ = self.closed.set(());
        }
        is_open
    }

    /// A fencing token takes two rounds.
    fn answers_within(&self) -> Duration {
        let of_node = |way: &Arc<Way>| way.node.answers_within();
        2 * self.ways.iter().map(of_node).max().unwrap_or_default()
    }

    fn retire(&self, key: &str) {
        self.ways.iter().for_each(|way| way.retire(key));
    }

    fn acquire(&self, lock: &Lock, lease: Duration) -> BoxFuture<StoreResult<Acquired>> {
        take::acquire(self.round(), lock.clone(), lease)
    }

    fn contend(
        &self,
        lock: &Lock,
        lease: Duration,
        keep: Duration,
    ) -> BoxFuture<StoreResult<Contended>> {
        if !self.ways.iter().all(|way| way.is_listening()) {
            return Box::pin(async { Err(not_listening()) });
        }
        take::contend(self.round(), lock.clone(), lease, keep)
    }

    fn draw(&self, lock: &Lock, take: Option<Duration>) -> BoxFuture<StoreResult<Drawn>> {
        match take {
            Some(lease) => take::draw(self.round(), lock.clone(), lease),
            None => draw::draw(self.round(), lock.clone()),
        }
    }

    fn renew(&self, batch: &[Renewal]) -> BoxFuture<StoreResult<Vec<Renewed>>> {
        if batch.is_empty() {
            return Box::pin(async { Ok(Vec::new()) });
        }
        renew::renew(self.round(), batch.to_vec())
    }

    fn release(&self, lock: &Lock, claim: Duration) -> BoxFuture<StoreResult<Released>> {
        release::release(self.round(), lock.clone(), claim)
    }

    fn inspect(&self, key: &Arc<str>) -> BoxFuture<StoreResult<Option<Holder>>> {
        inspect::inspect(self.round(), Arc::clone(key))
    }

    /// Whether more than half of the nodes do: then any other half of the nodes, to which a release
    /// came, has one of them.
    fn delivers_events(&self) -> bool {
        let delivers = |way: &&Arc<Way>| way.channel().is_some_and(|way| way.delivers_events());
        self.ways.iter().filter(delivers).count() >= self.quorum.majority()
    }
}

fn not_listening() -> StoreError {
    StoreError::new(
        StoreErrorKind::Refused,
        "a contender needs a listening channel: open one with open_listening",
    )
}
