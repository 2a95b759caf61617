//! One lock over several independent stores, of which more than half must agree.
//!
//! Decides what the answers of the nodes come to (`tally`), by which value each round asks (`ballot`),
//! and what is owed to a node that did not answer (`debts`). The nodes are stores of any kind, and all
//! that is known of them is what [`Backend`] says.
//!
//! Every request goes to all nodes at once and is answered as soon as the outcome is certain; the rest
//! goes on in the background (`asked`). A node that is down is left out at once, and tried again
//! beside the requests (`way`, `node`).
//!
//! Nobody is granted a lock by a release here: two nodes could grant it to two contenders. A release
//! deletes on all nodes, and once more than half are free tells the contender at the head of one
//! node's queue, who tries like everyone else.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use self::asked::{Asked, early};
use self::ballot::Ballots;
use self::channel::QuorumChannel;
use self::node::Node;
use self::tally::majority;
use self::trouble::Trouble;
use self::way::Way;
use super::{Backend, BoxFuture, Channel, DriverHome, Events, StoreResult};
use crate::clock::{Clock, Timestamp};

mod ask;
mod asked;
mod ballot;
mod channel;
mod debts;
mod draw;
mod inspect;
mod node;
mod release;
mod renew;
mod sends;
mod take;
mod tally;
#[cfg(test)]
mod tests;
mod trouble;
mod way;

/// One client's way to a quorum.
#[derive(Debug)]
pub(crate) struct QuorumBackend(Arc<Quorum>);

/// What all channels of a client share.
#[derive(Debug)]
struct Quorum {
    nodes: Vec<Arc<Node>>,
    clock: Clock,
    home: DriverHome,
    ballots: Mutex<Ballots>,
}

impl QuorumBackend {
    /// A quorum of `nodes`, each of which has `timeout` for an answer.
    pub(crate) fn new(nodes: Vec<Arc<dyn Backend>>, timeout: Duration) -> Self {
        let remote = nodes.iter().find(|node| node.driver_home() == DriverHome::OwnThread);
        let (clock, home) = match (remote, nodes.first()) {
            (Some(remote), _) => (remote.clock(), DriverHome::OwnThread),
            (None, Some(first)) => (first.clock(), DriverHome::Caller),
            (None, None) => (Clock::tokio(), DriverHome::Caller),
        };
        let ballots = Mutex::new(Ballots::new(nodes.len()));
        let nodes = nodes.into_iter().enumerate();
        let nodes = nodes
            .map(|(index, backend)| Arc::new(Node::new(index, backend, clock, timeout)))
            .collect();
        Self(Arc::new(Quorum { nodes, clock, home, ballots }))
    }
}

impl Backend for QuorumBackend {
    fn clock(&self) -> Clock {
        self.0.clock
    }

    fn driver_home(&self) -> DriverHome {
        self.0.home
    }

    fn channel(&self) -> Option<Arc<dyn Channel>> {
        let channel = QuorumChannel::now(&self.0);
        channel.is_open().then(|| Arc::new(channel) as Arc<dyn Channel>)
    }

    fn open(&self) -> BoxFuture<StoreResult<Arc<dyn Channel>>> {
        let quorum = Arc::clone(&self.0);
        Box::pin(async move {
            let ways: Vec<_> = quorum.nodes.iter().map(Way::now).collect();
            quorum.reach(&ways).await?;
            Ok(Arc::new(QuorumChannel::new(&quorum, ways)) as Arc<dyn Channel>)
        })
    }

    fn open_listening(&self, events: Weak<dyn Events>) -> BoxFuture<StoreResult<Arc<dyn Channel>>> {
        let quorum = Arc::clone(&self.0);
        Box::pin(async move {
            let listen = |node| Way::listening(node, Weak::clone(&events));
            let ways: Vec<_> = quorum.nodes.iter().map(listen).collect();
            quorum.reach(&ways).await?;
            Ok(Arc::new(QuorumChannel::new(&quorum, ways)) as Arc<dyn Channel>)
        })
    }
}

impl Quorum {
    /// Opens all ways, and comes back once more than half are open, or can no longer be. The others
    /// get a moment more, and go on in the background.
    async fn reach(&self, ways: &[Arc<Way>]) -> StoreResult<()> {
        let (nodes, majority) = (ways.len(), self.majority());
        let ways = ways.to_vec();
        let reaching = early(|mut decide| async move {
            let mut asked = Asked::new();
            for (index, way) in ways.into_iter().enumerate() {
                asked.add(index, async move { way.reach().await.map(drop) });
            }
            let (mut open, mut trouble) = (0, Trouble::new(nodes));
            while open < majority {
                match asked.next().await {
                    Some((_, Ok(()))) => open += 1,
                    Some((_, Err(error))) => trouble.add(error),
                    None => return decide.decide(Err(trouble.no_majority())),
                }
                if trouble.count() + majority > nodes {
                    decide.decide(Err(trouble.no_majority()));
                }
            }
            let rest = async { while asked.next().await.is_some() {} };
            // A lock that is taken on all nodes from the start outlasts more.
            let rest_is_here = tokio::time::timeout(GRACE, rest).await.is_ok();
            decide.decide(Ok(()));
            while !rest_is_here && asked.next().await.is_some() {}
        });
        reaching.await
    }

    fn majority(&self) -> usize {
        majority(self.nodes.len())
    }

    fn now(&self) -> Timestamp {
        self.clock.now()
    }

    fn ballots(&self) -> MutexGuard<'_, Ballots> {
        // Each change is whole when its function returns.
        self.ballots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How long the first request of a runtime waits for the nodes that are not needed.
const GRACE: Duration = Duration::from_millis(20);
