//! Grants and renewals that count only once so many replicas have them.
//!
//! A failover to a replica that lags forgets a lock. Where every replica that may be promoted has
//! acknowledged it, that cannot be. `WAIT` tells how many have what was written before on the same
//! connection, and holds up all that comes after it there: so it has a connection of its own beside the
//! one for commands, and what comes meanwhile waits for the next `WAIT` together. In a cluster that is
//! one connection for each node, and each node's `WAIT` its own.
//!
//! What that connection writes is an owner-checked renewal of each lock: `WAIT` covers what its own
//! connection wrote, and so whatever came before that. Alone on a fresh connection it answers at once
//! that all have it, and proves nothing (measured with 7.0 and a frozen replica).

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::acknowledging::{Acknowledging, Group, Terms};
use crate::backend::{
    Acquired, Backend, BoxFuture, Channel, Contended, Drawn, DriverHome, Events, Holder, Lock,
    Released, Renewal, Renewed, StoreError, StoreErrorKind, StoreResult,
};
use crate::clock::Clock;

/// A store whose answers wait for its replicas.
#[derive(Debug)]
pub(crate) struct ReplicatedBackend {
    main: Arc<dyn Backend>,
    acknowledging: Arc<Acknowledging>,
}

impl ReplicatedBackend {
    /// The store behind `main`, of which `replicas` replicas must have what is confirmed. `acks` leads
    /// to the same store by connections of its own. Both have `response_timeout` for an answer.
    pub(crate) fn new(
        main: Arc<dyn Backend>,
        acks: Arc<dyn Backend>,
        replicas: u32,
        response_timeout: Duration,
    ) -> Self {
        // Who comes in the middle of a round waits for that one and its own: two of these, and all
        // the same less than one response time-out.
        let terms = Terms { replicas, within: response_timeout / 3 };
        Self { main, acknowledging: Arc::new(Acknowledging::new(acks, terms)) }
    }
}

impl Backend for ReplicatedBackend {
    fn clock(&self) -> Clock {
        self.main.clock()
    }

    fn driver_home(&self) -> DriverHome {
        self.main.driver_home()
    }

    fn channel(&self) -> Option<Arc<dyn Channel>> {
        let group = self.acknowledging.current()?;
        Some(Arc::new(ReplicatedChannel { main: self.main.channel()?, group }))
    }

    fn open(&self) -> BoxFuture<StoreResult<Arc<dyn Channel>>> {
        let (main, acknowledging) = (self.main.open(), Arc::clone(&self.acknowledging));
        Box::pin(async move {
            let (main, group) = tokio::try_join!(main, acknowledging.open())?;
            Ok(Arc::new(ReplicatedChannel { main, group }) as Arc<dyn Channel>)
        })
    }

    fn open_listening(&self, events: Weak<dyn Events>) -> BoxFuture<StoreResult<Arc<dyn Channel>>> {
        let main = self.main.open_listening(events);
        let acknowledging = Arc::clone(&self.acknowledging);
        Box::pin(async move {
            let (main, group) = tokio::try_join!(main, acknowledging.open())?;
            Ok(Arc::new(ReplicatedChannel { main, group }) as Arc<dyn Channel>)
        })
    }
}

struct ReplicatedChannel {
    main: Arc<dyn Channel>,
    group: Arc<Group>,
}

impl ReplicatedChannel {
    /// Answers `request` once the replicas have what it took, if it took the lock. If they do not, the
    /// outcome is unknown, as after a lost reply: the caller tries on with this owner, or releases.
    fn and_replicas<T: Send + 'static>(
        &self,
        request: BoxFuture<StoreResult<T>>,
        renewal: Renewal,
        took: impl FnOnce(&T) -> bool + Send + 'static,
    ) -> BoxFuture<StoreResult<T>> {
        let group = Arc::clone(&self.group);
        Box::pin(async move {
            let answer = request.await?;
            if took(&answer) {
                match group.acknowledge(vec![renewal]).await?.first() {
                    Some(Renewed::Renewed) => {}
                    _ => return Err(gone()),
                }
            }
            Ok(answer)
        })
    }
}

impl Channel for ReplicatedChannel {
    fn is_open(&self) -> bool {
        self.main.is_open() && self.group.channel.is_open()
    }

    /// A renewal and a WAIT of the round before, and the same of its own.
    fn answers_within(&self) -> Duration {
        self.main.answers_within() + 4 * self.group.channel.answers_within()
    }

    fn retire(&self, key: &str) {
        self.main.retire(key);
        self.group.channel.retire(key);
    }

    /// Renewals go where replicas are waited for.
    fn shard(&self, key: &str) -> usize {
        self.group.channel.shard(key)
    }

    fn acquire(&self, lock: &Lock, lease: Duration) -> BoxFuture<StoreResult<Acquired>> {
        let renewal = Renewal { lock: lock.clone(), lease };
        let took = |answer: &Acquired| *answer == Acquired::Granted;
        self.and_replicas(self.main.acquire(lock, lease), renewal, took)
    }

    fn contend(
        &self,
        lock: &Lock,
        lease: Duration,
        keep: Duration,
    ) -> BoxFuture<StoreResult<Contended>> {
        let renewal = Renewal { lock: lock.clone(), lease };
        let took = |answer: &Contended| *answer == Contended::Granted;
        self.and_replicas(self.main.contend(lock, lease, keep), renewal, took)
    }

    fn draw(&self, lock: &Lock, take: Option<Duration>) -> BoxFuture<StoreResult<Drawn>> {
        // A renewal never makes a TTL shorter. The token, too, must not be forgotten.
        let renewal = Renewal { lock: lock.clone(), lease: take.unwrap_or(Duration::ZERO) };
        let took = |answer: &Drawn| matches!(answer, Drawn::Token(_));
        self.and_replicas(self.main.draw(lock, take), renewal, took)
    }

    fn renew(&self, batch: &[Renewal]) -> BoxFuture<StoreResult<Vec<Renewed>>> {
        if batch.is_empty() {
            return Box::pin(async { Ok(Vec::new()) });
        }
        let (group, batch) = (Arc::clone(&self.group), batch.to_vec());
        Box::pin(async move { group.acknowledge(batch).await })
    }

    // Replicas that miss a release have the lock for the rest of its lease, which harms nobody.
    fn release(&self, lock: &Lock, claim: Duration) -> BoxFuture<StoreResult<Released>> {
        self.main.release(lock, claim)
    }

    fn release_in_order(&self, lock: &Lock, claim: Duration) -> BoxFuture<StoreResult<Released>> {
        self.main.release_in_order(lock, claim)
    }

    fn inspect(&self, key: &Arc<str>) -> BoxFuture<StoreResult<Option<Holder>>> {
        self.main.inspect(key)
    }

    fn raise(&self, lock: &Lock, token: u64) -> BoxFuture<StoreResult<Drawn>> {
        let renewal = Renewal { lock: lock.clone(), lease: Duration::ZERO };
        let took = |answer: &Drawn| matches!(answer, Drawn::Token(_));
        self.and_replicas(self.main.raise(lock, token), renewal, took)
    }

    fn wake(&self, key: &Arc<str>, claim: Duration) -> BoxFuture<StoreResult<bool>> {
        self.main.wake(key, claim)
    }

    fn delivers_events(&self) -> bool {
        self.main.delivers_events()
    }
}

fn gone() -> StoreError {
    let text = "the lock was granted, but was gone before its replicas had it";
    StoreError::new(StoreErrorKind::Unavailable, text)
}

impl fmt::Debug for ReplicatedChannel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReplicatedChannel")
            .field("main", &self.main)
            .field("group", &self.group)
            .finish()
    }
}
