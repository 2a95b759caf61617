//! Releases that are due at the same moment, sent as one command.
//!
//! A release alone goes at once. One that comes while another is under way waits until every task
//! that is ready by now had its turn, and goes with theirs: under load that is most of them, and both
//! ends have half of the work. A caller that leaves meanwhile takes nothing with it, its lock is
//! released with the others.

use std::future::Future;
use std::slice;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::task::yield_now;

use super::channel::Way;
use crate::backend::{Lock, Released, StoreError, StoreErrorKind, StoreResult};
use crate::join::all;

/// The releases on one connection.
#[derive(Debug, Default)]
pub(super) struct Releases(Mutex<State>);

/// Invariant: where `gathered` is not empty, a [`Sending`] is about to send it, or to give it up.
#[derive(Debug, Default)]
struct State {
    /// How many were sent and not answered.
    under_way: usize,
    gathered: Gathered,
}

#[derive(Debug, Default)]
struct Gathered {
    locks: Vec<Lock>,
    callers: Vec<oneshot::Sender<StoreResult<Released>>>,
    claim: Duration,
}

/// How a release goes.
enum Passage {
    Alone,
    /// With others.
    Gathered(oneshot::Receiver<StoreResult<Released>>),
    /// With others, for whom this caller starts the task that sends them.
    First(oneshot::Receiver<StoreResult<Released>>),
}

/// A command under way, as long as it is not dropped.
struct UnderWay(Arc<Releases>);

/// Who sends what is gathered. Dropped before that, with its runtime, it gives up what is gathered: its
/// callers hear of it, and nobody joins it any more.
struct Sending {
    releases: Arc<Releases>,
    taken: bool,
}

impl Releases {
    /// Releases `lock`.
    ///
    /// A drop before the first poll does nothing; later the release may take effect all the same.
    pub(super) async fn release(
        self: Arc<Self>,
        way: Way,
        lock: Lock,
        claim: Duration,
    ) -> StoreResult<Released> {
        let answer = match self.join(&lock, claim, way.takes_several_locks()) {
            Passage::Alone => {
                let _under_way = UnderWay(self);
                return one(&way, &lock, claim).await;
            }
            Passage::Gathered(answer) => answer,
            Passage::First(answer) => {
                drop(tokio::spawn(Sending { releases: self, taken: false }.send(way)));
                answer
            }
        };
        answer.await.unwrap_or_else(|_| Err(runtime_ended()))
    }

    fn join(&self, lock: &Lock, claim: Duration, may_gather: bool) -> Passage {
        let mut state = self.state();
        let State { under_way, gathered } = &mut *state;
        let count = gathered.locks.len();
        if may_gather && count == 0 && *under_way > 0 {
            return Passage::First(gathered.add(lock, claim));
        }
        if (1..LARGEST_BATCH).contains(&count) && gathered.claim == claim {
            return Passage::Gathered(gathered.add(lock, claim));
        }
        *under_way += 1;
        Passage::Alone
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Each change is whole at any time.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sending {
    async fn send(mut self, way: Way) {
        yield_now().await;
        let Gathered { locks, callers, claim } = self.take();
        let _under_way = UnderWay(Arc::clone(&self.releases));
        for (caller, answer) in callers.into_iter().zip(together(&way, locks, claim).await) {
            // One that left does not need it: what it owes is in the backlog.
            let _ = caller.send(answer);
        }
    }

    fn take(&mut self) -> Gathered {
        self.taken = true;
        let mut state = self.releases.state();
        state.under_way += 1;
        std::mem::take(&mut state.gathered)
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        // What was gathered since it was taken has a sender of its own.
        if !self.taken {
            let given_up = std::mem::take(&mut self.releases.state().gathered);
            // Not under the mutex: it wakes the callers.
            drop(given_up);
        }
    }
}

impl Gathered {
    fn add(&mut self, lock: &Lock, claim: Duration) -> oneshot::Receiver<StoreResult<Released>> {
        let (caller, answer) = oneshot::channel();
        self.locks.push(lock.clone());
        self.callers.push(caller);
        self.claim = claim;
        answer
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.state().under_way -= 1;
    }
}

/// Releases one lock by a command of its own, at the first poll.
pub(super) fn one(
    way: &Way,
    lock: &Lock,
    claim: Duration,
) -> impl Future<Output = StoreResult<Released>> + Send + use<> {
    let request = way.release(slice::from_ref(lock), claim);
    async move { request.await?.pop().ok_or_else(runtime_ended) }
}

/// Releases all of them in one command. Where the server refuses that for what one of them is, each
/// goes by itself.
async fn together(way: &Way, locks: Vec<Lock>, claim: Duration) -> Vec<StoreResult<Released>> {
    let refused = match way.release(&locks, claim).await {
        Ok(answers) => return answers.into_iter().map(Ok).collect(),
        Err(error) if error.kind == StoreErrorKind::Refused => error,
        Err(error) => return locks.iter().map(|_| Err(error.clone())).collect(),
    };
    let alone = locks.iter().map(|lock| Box::pin(one(way, lock, claim))).collect();
    let known = |answer| match answer {
        Ok(answer @ (Released::Freed | Released::FreedUntold | Released::Granted { .. })) => {
            Ok(answer)
        }
        // Perhaps it was the refused command that had released it.
        Ok(_) => Err(refused.clone()),
        Err(error) => Err(error),
    };
    all(alone).await.into_iter().map(known).collect()
}

fn runtime_ended() -> StoreError {
    StoreError::new(StoreErrorKind::Unavailable, "the release ended unanswered with its runtime")
}

/// Keeps the script under a fifth of a millisecond.
pub(super) const LARGEST_BATCH: usize = 64;
