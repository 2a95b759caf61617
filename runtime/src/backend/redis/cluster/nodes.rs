//! The connections of one runtime to the nodes, each opened when it is first needed.
//!
//! Invariant: a line is in the map from the end of the attempt that opened it until it closes, and
//! a generation of channels ends with the first line that does: so whoever finds a channel open
//! finds that nothing was lost on it.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::runtime::{self, Handle};
use tokio::sync::watch;

use super::atlas::Atlas;
use super::channel::ClusterChannel;
use super::ears::Ears;
use super::endings::Endings;
use super::generation::Generation;
use super::survey::Survey;
use super::topology::{Address, Topology};
use crate::backend::redis::channel::RedisChannel;
use crate::backend::redis::connect::connect;
use crate::backend::redis::line::{Duty, Line};
use crate::backend::redis::runtimes::{given_up, no_runtime};
use crate::backend::{Channel, Events, StoreResult};

/// One connection among those of a runtime.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(in crate::backend::redis) struct Member {
    pub(super) address: Address,
    pub(super) purpose: Purpose,
}

/// What a connection is for. Requests and shard subscriptions do not share one: that a slot moves
/// ends its subscriptions by a message that the client crate takes for a reply, so that every later
/// reply would be read as another request's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Purpose {
    Hearing,
    Requests,
}

pub(in crate::backend::redis) struct Nodes {
    pub(super) atlas: Arc<Atlas>,
    home: Home,
    slots: Mutex<HashMap<Member, Slot>>,
    generation: Mutex<Option<Arc<Generation>>>,
    /// Of all generations: they share the lines.
    pub(super) endings: Endings,
    pub(super) ears: Ears,
    pub(super) survey: Survey,
}

/// Whose connections they are.
pub(super) enum Home {
    Caller { pools: Weak<Pools>, runtime: runtime::Id },
    Driver { events: Weak<dyn Events>, runtime: runtime::Id },
}

/// The nodes of each runtime that calls.
#[derive(Debug, Default)]
pub(super) struct Pools(Mutex<HashMap<runtime::Id, Arc<Nodes>>>);

#[derive(Clone, Debug)]
enum Slot {
    Open(Arc<RedisChannel>),
    Opening(Outcome),
}

/// `None` as long as the attempt runs.
type Outcome = watch::Receiver<Option<StoreResult<Arc<RedisChannel>>>>;

impl Nodes {
    pub(super) fn new(atlas: &Arc<Atlas>, home: Home) -> Arc<Self> {
        let nodes = Arc::new(Self {
            atlas: Arc::clone(atlas),
            home,
            slots: Mutex::default(),
            generation: Mutex::default(),
            endings: Endings::new(),
            ears: Ears::default(),
            survey: Survey::default(),
        });
        atlas.enter(&nodes);
        nodes
    }

    /// Waits until there is a map.
    pub(super) async fn ready(self: &Arc<Self>) -> StoreResult<()> {
        if self.atlas.topology().is_some() {
            return Ok(());
        }
        self.look_around().await
    }

    /// The channel by the newest map, over the lines that are open, if there is a map.
    pub(super) fn channel(self: &Arc<Self>) -> Option<ClusterChannel> {
        let topology = self.atlas.topology()?;
        let mut current = self.generation();
        let generation = match &*current {
            Some(generation) if generation.is_open() => Arc::clone(generation),
            _ => {
                let generation = Arc::new(Generation::new(topology));
                let before = current.replace(Arc::clone(&generation));
                drop(current);
                // Not under the mutex: the end of a connection comes back here.
                drop(before);
                generation
            }
        };
        Some(ClusterChannel::new(Arc::clone(self), generation))
    }

    /// The line to a node, opened by one attempt for all who ask.
    pub(super) async fn line(self: &Arc<Self>, member: &Member) -> StoreResult<Arc<RedisChannel>> {
        let handle = Handle::try_current().map_err(|_| no_runtime())?;
        let (mut outcome, attempt) = match self.join(member) {
            Joined::Done(channel) => return Ok(channel),
            Joined::Follower(outcome) => (outcome, None),
            Joined::Leader(outcome, attempt) => (outcome, Some(attempt)),
        };
        // A task of its own: the one who came first may leave, the others still wait for it.
        if let Some(attempt) = attempt {
            handle.spawn(attempt.run());
        }
        let outcome = match outcome.wait_for(Option::is_some).await {
            Ok(outcome) => outcome.clone(),
            Err(_) => None,
        };
        outcome.unwrap_or_else(|| Err(given_up()))
    }

    /// Whether a line to the node is open by now.
    pub(super) fn reaches(&self, address: &Address) -> bool {
        let member = Member { address: address.clone(), purpose: Purpose::Requests };
        matches!(self.slots().get(&member), Some(Slot::Open(channel)) if channel.is_open())
    }

    /// Closes what leads to no primary any more.
    pub(super) fn keep_primaries(&self, topology: &Topology) {
        let mut slots = self.slots();
        let is_left = |member: &Member, slot: &Slot| {
            matches!(slot, Slot::Opening(_)) || topology.primaries().contains(&member.address)
        };
        let gone = slots.iter().filter(|(member, slot)| !is_left(member, slot));
        let gone: Vec<_> = gone.map(|(member, slot)| (member.clone(), slot.clone())).collect();
        for (member, _) in gone.iter().filter(|(member, _)| member.purpose == Purpose::Requests) {
            slots.remove(member);
        }
        drop(slots);
        // Not under the mutex: the end of a connection comes back here. Requests under way on one get
        // their answers; who listens must be told.
        for (member, slot) in gone {
            if let (Purpose::Hearing, Slot::Open(channel)) = (member.purpose, slot) {
                channel.line().close("its node serves no slots any more");
            }
        }
    }

    /// There is a primary that was none before: what waited for the one in whose place it came, or was
    /// promised by that one, is verified.
    pub(super) fn meet_newcomer(&self) {
        if let Some(events) = self.events() {
            events.interrupted();
        }
    }

    /// Removes a line that has closed, and no later one in its place.
    pub(in crate::backend::redis) fn forget(&self, member: &Member, line: &Line) {
        let mut slots = self.slots();
        let is_it = |slot: &Slot| match slot {
            Slot::Open(channel) => std::ptr::eq(channel.line(), line),
            Slot::Opening(_) => false,
        };
        if !slots.get(member).is_some_and(is_it) {
            return;
        }
        let gone = slots.remove(member);
        let last = slots.is_empty();
        drop(slots);
        let generation = self.generation().clone();
        match (member.purpose, &self.home) {
            (Purpose::Requests, _) => generation.iter().for_each(|generation| generation.close()),
            (Purpose::Hearing, Home::Driver { events, .. }) => {
                if let Some(events) = events.upgrade() {
                    events.interrupted();
                }
            }
            (Purpose::Hearing, Home::Caller { .. }) => {}
        }
        if let (true, Home::Caller { pools, runtime }) = (last, &self.home)
            && let Some(pools) = pools.upgrade()
        {
            pools.forget(*runtime, self);
        }
        drop(gone);
    }

    /// Who is to hear what the nodes say unasked.
    pub(in crate::backend::redis) fn events(&self) -> Option<Arc<dyn Events>> {
        match &self.home {
            Home::Caller { .. } => None,
            Home::Driver { events, .. } => events.upgrade(),
        }
    }

    /// Whether they are a driver's.
    pub(super) fn listen(&self) -> bool {
        matches!(self.home, Home::Driver { .. })
    }

    /// Whether they are those of the driver that hears by `events` on this runtime.
    pub(super) fn belong_to(&self, events: &Weak<dyn Events>, runtime: runtime::Id) -> bool {
        match &self.home {
            Home::Caller { .. } => false,
            Home::Driver { events: ours, runtime: here } => {
                Weak::ptr_eq(ours, events) && *here == runtime
            }
        }
    }

    fn join(self: &Arc<Self>, member: &Member) -> Joined {
        let mut slots = self.slots();
        match slots.get(member) {
            Some(Slot::Open(channel)) if channel.is_open() => Joined::Done(Arc::clone(channel)),
            // One whose sender is gone ended with its runtime.
            Some(Slot::Opening(outcome)) if outcome.has_changed().is_ok() => {
                Joined::Follower(outcome.clone())
            }
            _ => {
                let (report, outcome) = watch::channel(None);
                let closed = slots.insert(member.clone(), Slot::Opening(outcome.clone()));
                drop(slots);
                drop(closed);
                let attempt =
                    Attempt { nodes: Arc::downgrade(self), member: member.clone(), report };
                Joined::Leader(outcome, attempt)
            }
        }
    }

    fn slots(&self) -> MutexGuard<'_, HashMap<Member, Slot>> {
        // Each change is one insertion or removal, so a poisoned map is a whole map.
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn generation(&self) -> MutexGuard<'_, Option<Arc<Generation>>> {
        // Each change is one assignment.
        self.generation.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Nodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Nodes").field("slots", &self.slots()).finish_non_exhaustive()
    }
}

impl Pools {
    pub(super) fn current(&self) -> Option<Arc<Nodes>> {
        let runtime = Handle::try_current().ok()?.id();
        self.pools().get(&runtime).cloned()
    }

    /// The nodes of the calling runtime.
    pub(super) fn join(self: &Arc<Self>, atlas: &Arc<Atlas>) -> StoreResult<Arc<Nodes>> {
        let runtime = Handle::try_current().map_err(|_| no_runtime())?.id();
        let mut pools = self.pools();
        let mut ended = Vec::new();
        if !pools.contains_key(&runtime) {
            // Of runtimes that ended without ever having had a line.
            let is_unused = |nodes: &Arc<Nodes>| nodes.slots().is_empty();
            ended.extend(pools.extract_if(|_, nodes| is_unused(nodes)));
        }
        let nodes = pools.entry(runtime).or_insert_with(|| {
            let home = Home::Caller { pools: Arc::downgrade(self), runtime };
            Nodes::new(atlas, home)
        });
        let nodes = Arc::clone(nodes);
        drop(pools);
        drop(ended);
        Ok(nodes)
    }

    fn forget(&self, runtime: runtime::Id, nodes: &Nodes) {
        let mut pools = self.pools();
        let is_it = |pool: &Arc<Nodes>| std::ptr::eq(Arc::as_ptr(pool), nodes);
        let gone =
            if pools.get(&runtime).is_some_and(is_it) { pools.remove(&runtime) } else { None };
        drop(pools);
        drop(gone);
    }

    fn pools(&self) -> MutexGuard<'_, HashMap<runtime::Id, Arc<Nodes>>> {
        // Each change is one insertion or removal, so a poisoned map is a whole map.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.pools().len()
    }
}

enum Joined {
    Done(Arc<RedisChannel>),
    Follower(Outcome),
    Leader(Outcome, Attempt),
}

/// The one attempt to reach a node. Wherever it ends, also unfinished with its runtime, its slot
/// does not stay behind.
struct Attempt {
    nodes: Weak<Nodes>,
    member: Member,
    report: watch::Sender<Option<StoreResult<Arc<RedisChannel>>>>,
}

impl Attempt {
    async fn run(self) {
        let outcome = self.connect().await;
        if let Some(nodes) = self.nodes.upgrade() {
            let mut slots = nodes.slots();
            match &outcome {
                // A channel that closes from here on finds itself in the map.
                Ok(channel) if channel.is_open() => {
                    slots.insert(self.member.clone(), Slot::Open(Arc::clone(channel)));
                }
                // Removed before anyone hears of it: who tries again starts anew.
                _ => {
                    slots.remove(&self.member);
                }
            }
        }
        self.report.send_replace(Some(outcome));
    }

    async fn connect(&self) -> StoreResult<Arc<RedisChannel>> {
        let Some(nodes) = self.nodes.upgrade() else { return Err(given_up()) };
        let server = nodes.atlas.server(&self.member.address);
        drop(nodes);
        let duty = Duty::Member { nodes: Weak::clone(&self.nodes), member: self.member.clone() };
        Ok(Arc::new(connect(&server, duty, None).await?))
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        let Some(nodes) = self.nodes.upgrade() else { return };
        let mut slots = nodes.slots();
        if matches!(slots.get(&self.member), Some(Slot::Opening(_))) {
            slots.remove(&self.member);
        }
    }
}
