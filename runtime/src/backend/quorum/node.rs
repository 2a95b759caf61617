//! One node of a quorum, for all channels of a client.

use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;

use super::asked::Asked;
use super::ballot::Ballot;
use super::debts::{Debt, Debts};
use crate::backend::{Backend, Channel, StoreError, StoreErrorKind, StoreResult};
use crate::backoff::{self, Chance};
use crate::clock::{Clock, Timestamp};

pub(super) struct Node {
    /// Its place among the nodes, from 0.
    index: usize,
    pub(super) backend: Arc<dyn Backend>,
    clock: Clock,
    timeout: Duration,
    pace: Mutex<Pace>,
    debts: Mutex<Debts>,
}

/// When the next attempt to reach a node that is down may begin.
#[derive(Debug)]
struct Pace {
    failures: u32,
    not_before: Timestamp,
}

impl Node {
    pub(super) fn new(
        index: usize,
        backend: Arc<dyn Backend>,
        clock: Clock,
        timeout: Duration,
    ) -> Self {
        let pace = Pace { failures: 0, not_before: Timestamp::NOW };
        Self {
            index,
            backend,
            clock,
            timeout,
            pace: Mutex::new(pace),
            debts: Mutex::new(Debts::default()),
        }
    }

    /// How long a request takes at most. The node's own time-out says more; it comes first.
    pub(super) fn answers_within(&self) -> Duration {
        self.timeout + OWN_TIMEOUT_FIRST
    }

    /// What the node answers within its time.
    pub(super) async fn within<T>(
        &self,
        request: impl Future<Output = StoreResult<T>>,
    ) -> StoreResult<T> {
        if Handle::try_current().is_err() {
            // A drop outside of any runtime, which has no timers: it looks once, and a store in this
            // process has answered by then.
            return request.await;
        }
        tokio::time::timeout(self.answers_within(), request).await.unwrap_or_else(|_| {
            let text = format!("node {} did not answer within {:?}", self.index + 1, self.timeout);
            Err(StoreError::new(StoreErrorKind::Unavailable, text))
        })
    }

    /// Why nothing is asked of a node that is down.
    pub(super) fn down(&self) -> StoreError {
        let text = format!("node {} is down", self.index + 1);
        StoreError::new(StoreErrorKind::Unavailable, text)
    }

    /// Whether to try to reach it again now. So a node that is down costs a few attempts a second, and
    /// no request waits for them.
    pub(super) fn may_try(&self) -> bool {
        let now = self.clock.now();
        let mut pace = self.pace();
        if now < pace.not_before {
            return false;
        }
        let pause = backoff::pause(pace.failures, FIRST_PAUSE, LONGEST_PAUSE, Chance::roll());
        pace.failures = pace.failures.saturating_add(1);
        pace.not_before = now + pause;
        true
    }

    pub(super) fn reached(&self) {
        *self.pace() = Pace { failures: 0, not_before: Timestamp::NOW };
    }

    /// Owes the node the delete of a ballot that is over, and sees to it in the background.
    pub(super) fn owe(self: &Arc<Self>, ballot: Arc<Ballot>) {
        self.debts().add(ballot, self.clock.now());
        self.collect();
    }

    /// Sees to it that somebody works on what is owed, if anything is.
    pub(super) fn collect(self: &Arc<Self>) {
        // Without a runtime it stays owed until somebody comes by who has one.
        let Ok(runtime) = Handle::try_current() else { return };
        {
            let mut debts = self.debts();
            if debts.collected || debts.next_due().is_none() {
                return;
            }
            debts.collected = true;
        }
        // Not under the mutex: a runtime that is shutting down drops the task at once.
        let node = Arc::clone(self);
        runtime.spawn(Collector { node, taken: Vec::new(), ended: false }.run());
    }

    #[cfg(test)]
    pub(super) fn owes(&self) -> usize {
        self.debts().len()
    }

    async fn command_channel(&self) -> StoreResult<Arc<dyn Channel>> {
        if let Some(channel) = self.backend.channel() {
            return Ok(channel);
        }
        if !self.may_try() {
            return Err(self.down());
        }
        let channel = self.backend.open().await?;
        self.reached();
        Ok(channel)
    }

    fn pace(&self) -> MutexGuard<'_, Pace> {
        // Both fields are set together, so a poisoned pace is a whole pace.
        self.pace.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn debts(&self) -> MutexGuard<'_, Debts> {
        // Each change is whole when its function returns.
        self.debts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The task that works on what is owed to a node; ends when nothing is. If it is dropped, what it had
/// in hand is owed again, and the next one who comes by goes on.
struct Collector {
    node: Arc<Node>,
    taken: Vec<Debt>,
    ended: bool,
}

impl Collector {
    async fn run(mut self) {
        loop {
            let now = self.node.clock.now();
            let next = {
                let mut debts = self.node.debts();
                self.taken = debts.take_due(self.node.index, now);
                if self.taken.is_empty() { debts.next_due() } else { Some(now) }
            };
            let Some(next) = next else {
                if self.ends() {
                    return;
                }
                continue;
            };
            if self.taken.is_empty() {
                tokio::time::sleep(next.since(now)).await;
                continue;
            }
            self.send().await;
        }
    }

    async fn send(&mut self) {
        let mut answered = vec![false; self.taken.len()];
        if let Ok(channel) = self.node.command_channel().await {
            let mut asked = Asked::new();
            for (index, debt) in self.taken.iter().enumerate() {
                let (node, channel) = (Arc::clone(&self.node), Arc::clone(&channel));
                let lock = debt.ballot.lock.clone();
                asked.add(index, async move {
                    node.within(channel.release(&lock, Duration::ZERO)).await.is_ok()
                });
            }
            while let Some((index, ok)) = asked.next().await {
                answered[index] = ok;
            }
        }
        let now = self.node.clock.now();
        let mut debts = self.node.debts();
        for (mut debt, answered) in self.taken.drain(..).zip(answered) {
            if !debt.answered(self.node.index, answered, now, Chance::roll()) {
                debts.put_back(debt);
            }
        }
    }

    /// Whether there is nothing to do any more. Decided under the mutex under which more is added.
    fn ends(&mut self) -> bool {
        let mut debts = self.node.debts();
        self.ended = debts.next_due().is_none();
        debts.collected = !self.ended;
        self.ended
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        let mut debts = self.node.debts();
        self.taken.drain(..).for_each(|debt| debts.put_back(debt));
        debts.collected = false;
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node").field("index", &self.index).finish_non_exhaustive()
    }
}

const OWN_TIMEOUT_FIRST: Duration = Duration::from_millis(20);
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
