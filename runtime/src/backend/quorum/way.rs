//! One channel's way to one node.

use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::runtime::Handle;

use super::node::Node;
use crate::backend::{Channel, Events, StoreError, StoreErrorKind, StoreResult};

/// A node as one channel of the quorum reaches it.
#[derive(Debug)]
pub(super) struct Way {
    pub(super) node: Arc<Node>,
    slot: Mutex<Slot>,
    /// What the node's messages go to, on a listening channel. Such a channel outlives its
    /// connections, so a lost one is replaced.
    hearing: Option<Arc<Hearing>>,
}

#[derive(Debug)]
struct Slot {
    channel: Option<Arc<dyn Channel>>,
    opening: bool,
    unanswered: u32,
}

impl Way {
    /// A way by the calling runtime's connection, as it is now.
    pub(super) fn now(node: &Arc<Node>) -> Arc<Self> {
        let channel = node.backend.channel();
        let way = Self::new(node, channel, None);
        if way.channel().is_some() {
            node.reached();
        }
        way
    }

    /// A way that is opened when it is needed, and hears.
    pub(super) fn listening(node: &Arc<Node>, events: Weak<dyn Events>) -> Arc<Self> {
        Self::new(node, None, Some(Arc::new(Hearing(events))))
    }

    fn new(
        node: &Arc<Node>,
        channel: Option<Arc<dyn Channel>>,
        hearing: Option<Arc<Hearing>>,
    ) -> Arc<Self> {
        let slot = Slot { channel, opening: false, unanswered: 0 };
        Arc::new(Self { node: Arc::clone(node), slot: Mutex::new(slot), hearing })
    }

    pub(super) fn is_listening(&self) -> bool {
        self.hearing.is_some()
    }

    /// The open connection, if there is one. If there is none, one is opened in the background: a
    /// request does not wait for a node that is down.
    pub(super) fn channel_or_open(self: &Arc<Self>) -> Option<Arc<dyn Channel>> {
        let channel = self.channel();
        if channel.is_none()
            && let Ok(runtime) = Handle::try_current()
            && self.node.may_try()
        {
            let way = Arc::clone(self);
            runtime.spawn(async move { drop(way.reach().await) });
        }
        channel
    }

    pub(super) fn channel(&self) -> Option<Arc<dyn Channel>> {
        self.slot().channel.clone().filter(|channel| channel.is_open())
    }

    /// The open connection, or a new one.
    pub(super) async fn reach(&self) -> StoreResult<Arc<dyn Channel>> {
        if let Some(channel) = self.channel() {
            return Ok(channel);
        }
        let opened = match &self.hearing {
            // One attempt of the calling runtime serves all.
            None => self.node.backend.open().await?,
            Some(hearing) => {
                let _opening = Opening::begin(self)?;
                let weak: Weak<Hearing> = Arc::downgrade(hearing);
                self.node.backend.open_listening(weak).await?
            }
        };
        self.node.reached();
        // Its end may come back to us: not under the mutex.
        let closed = self.slot().channel.replace(Arc::clone(&opened));
        drop(closed);
        Ok(opened)
    }

    /// Asks within the node's time.
    pub(super) async fn ask<T>(
        &self,
        request: impl Future<Output = StoreResult<T>>,
    ) -> StoreResult<T> {
        let mut asking = Asking { way: self, answered: false };
        self.slot().unanswered += 1;
        let answer = self.node.within(request).await;
        asking.answered =
            !matches!(&answer, Err(StoreError { kind: StoreErrorKind::Unavailable, .. }));
        drop(asking);
        answer
    }

    /// Closes the connection if it owes answers: the quorum answers elsewhere.
    pub(super) fn retire(&self, key: &str) {
        let silent = {
            let slot = self.slot();
            slot.channel.clone().filter(|_| slot.unanswered > 0)
        };
        if let Some(channel) = silent {
            channel.retire(key);
        }
    }

    fn slot(&self) -> MutexGuard<'_, Slot> {
        // Each change is one assignment, so a poisoned slot is a whole slot.
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request under way: it counts until it is answered.
struct Asking<'a> {
    way: &'a Way,
    answered: bool,
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        let mut slot = self.way.slot();
        slot.unanswered = if self.answered { 0 } else { slot.unanswered };
    }
}

/// The one attempt to open a listening connection.
struct Opening<'a>(&'a Way);

impl<'a> Opening<'a> {
    fn begin(way: &'a Way) -> StoreResult<Self> {
        if std::mem::replace(&mut way.slot().opening, true) {
            return Err(way.node.down());
        }
        Ok(Self(way))
    }
}

impl Drop for Opening<'_> {
    fn drop(&mut self) {
        self.0.slot().opening = false;
    }
}

/// Passes on what one node says. A node grants nothing here: whoever is told may try.
struct Hearing(Weak<dyn Events>);

impl Events for Hearing {
    fn granted(&self, key: &str, owner: &str) {
        // Of a client that takes this node for a store of its own.
        self.next_in_line(key, owner, Duration::ZERO);
    }

    fn next_in_line(&self, key: &str, owner: &str, claim: Duration) {
        if let Some(events) = self.0.upgrade() {
            events.next_in_line(key, owner, claim);
        }
    }

    fn interrupted(&self) {
        if let Some(events) = self.0.upgrade() {
            events.interrupted();
        }
    }
}

impl std::fmt::Debug for Hearing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hearing").finish_non_exhaustive()
    }
}
