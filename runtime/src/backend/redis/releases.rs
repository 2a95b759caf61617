//! Releases, of which one command takes several.

use std::future::Future;
use std::slice;
use std::time::Duration;

use redis::Value;

use super::channel::Way;
use super::gather::Gathered;
use super::reply;
use super::request::Request;
use crate::backend::{Lock, Released, StoreErrorKind, StoreResult};
use crate::join::all;

/// The end of one owner's hold. A caller that leaves meanwhile takes nothing with it, its lock is
/// released with the others.
#[derive(Debug)]
pub(super) struct Release {
    pub(super) lock: Lock,
    pub(super) claim: Duration,
}

impl Gathered for Release {
    type Answer = Released;

    const OUTLIVES_ITS_CALLER: bool = true;

    fn may_join(way: &Way) -> bool {
        !way.server().is_clustered()
    }

    fn fits(&self, other: &Self) -> bool {
        self.claim == other.claim
    }

    async fn alone(self, way: &Way) -> StoreResult<Released> {
        one(way, &self.lock, self.claim).await
    }

    /// In one script. Where the server refuses that for what one of them is, each goes by itself.
    async fn together(releases: Vec<Self>, way: Way) -> Vec<StoreResult<Released>> {
        // They fit together.
        let claim = releases.first().map_or(Duration::ZERO, |release| release.claim);
        let locks: Vec<_> = releases.into_iter().map(|release| release.lock).collect();
        let refused = match way.release(&locks, claim).await {
            Ok(answers) => return answers.into_iter().map(Ok).collect(),
            Err(error) if error.kind == StoreErrorKind::Refused => error,
            Err(error) => return locks.iter().map(|_| Err(error.clone())).collect(),
        };
        let alone = locks.iter().map(|lock| Box::pin(one(&way, lock, claim))).collect();
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
}

/// Releases one lock by a command of its own, at the first poll.
pub(super) fn one(
    way: &Way,
    lock: &Lock,
    claim: Duration,
) -> impl Future<Output = StoreResult<Released>> + Send + use<> {
    let request = Request::release(slice::from_ref(lock), claim);
    way.ask(request, |reply, address: &str| {
        let mut released = reply::released(reply, 1, address)?;
        // One answer for one lock.
        released.pop().ok_or_else(|| reply::unexpected(&Value::Nil, address))
    })
}
