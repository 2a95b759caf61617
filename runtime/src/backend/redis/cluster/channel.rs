//! A cluster as the lock sees it: what each request becomes, also while its slot is on its way to
//! another node.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use redis::Value;

use super::endings::Departure;
use super::generation::Generation;
use super::nodes::Nodes;
use super::renew;
use super::replicas;
use super::way::{Trouble, Way};
use crate::backend::redis::channel::{Hearing, RedisChannel, not_listening};
use crate::backend::redis::fence::FenceKey;
use crate::backend::redis::line::within;
use crate::backend::redis::reply;
use crate::backend::redis::request::{Request, Role};
use crate::backend::redis::slot::slot;
use crate::backend::{
    Acquired, BoxFuture, Channel, Contended, Drawn, Holder, Lock, Released, Renewal, Renewed,
    StoreError, StoreErrorKind, StoreResult,
};

#[derive(Clone, Debug)]
pub(super) struct ClusterChannel(Way);

impl ClusterChannel {
    pub(super) fn new(nodes: Arc<Nodes>, generation: Arc<Generation>) -> Self {
        Self(Way { nodes, generation })
    }
}

impl Way {
    /// Takes a free lock by one key alone.
    async fn acquire(
        &self,
        lock: &Lock,
        lease: Duration,
        departure: Departure<'_>,
    ) -> Result<Acquired, Trouble> {
        let slot = slot(lock.key.as_bytes());
        let request = Request::acquire(lock, lease, &*self.server(slot)?);
        let (reply, address) = self.ask(slot, &request, departure).await?;
        Ok(reply::acquired(reply, &address)?)
    }

    async fn contend(
        &self,
        lock: &Lock,
        lease: Duration,
        keep: Duration,
    ) -> Result<Contended, Trouble> {
        let slot = slot(lock.key.as_bytes());
        let departure = self.nodes.endings.depart(&lock.owner, Role::Takes).out_of_turn();
        let owner = self.owner(slot)?;
        let address = &self.generation.topology().primaries()[owner];
        let hear = async { Ok(self.nodes.hear(address, slot).await?) };
        let (hearing, ear) = self.in_time(hear).await?;
        let name = match &hearing {
            Hearing::Subscribed(name) => name,
            Hearing::Deaf | Hearing::NotListening => "",
        };
        let request = Request::contend(lock, lease, keep, name);
        match self.ask(slot, &request, departure).await {
            Ok((reply, address)) => {
                let contended = reply::contended(reply, &address)?;
                let hears =
                    |ear: &RedisChannel| ear.is_open() && ear.line().server().name == address;
                Ok(match contended {
                    // Whoever grants it does not know where to tell: asked again, that is put right.
                    Contended::Queued { holder, remaining, .. }
                        if !ear.is_none_or(|ear| hears(&ear)) =>
                    {
                        Contended::Held { holder, remaining }
                    }
                    contended => contended,
                })
            }
            Err(Trouble::Split(_)) => {
                self.in_time(self.contend_alone(lock, lease, departure)).await
            }
            Err(trouble) => Err(trouble),
        }
    }

    /// Contends without a place in the queue: as long as the slot is on its way to another node, no
    /// script can have the lock and its queue, unless all of it is there already.
    async fn contend_alone(
        &self,
        lock: &Lock,
        lease: Duration,
        departure: Departure<'_>,
    ) -> Result<Contended, Trouble> {
        let holder = match self.acquire(lock, lease, departure).await? {
            Acquired::Granted => return Ok(Contended::Granted),
            Acquired::HeldBy(owner) if owner == lock.owner => return Ok(Contended::Mine),
            Acquired::HeldBy(owner) => owner,
        };
        match self.inspect(&lock.key).await? {
            // It ended in between.
            None => Ok(Contended::Held { holder, remaining: Duration::ZERO }),
            Some(Holder { owner, remaining: Some(remaining) }) => {
                Ok(Contended::Held { holder: owner, remaining })
            }
            Some(Holder { remaining: None, .. }) => {
                let text = "the key holds a text without TTL, which is no lock";
                Err(StoreError::new(StoreErrorKind::Foreign, text).into())
            }
        }
    }

    async fn draw(&self, lock: &Lock, take: Option<Duration>) -> Result<Drawn, Trouble> {
        let request = Request::draw(lock, FenceKey::in_slot_of(&lock.key), take);
        let departure = self.nodes.endings.depart(&lock.owner, request.role());
        match self.ask(slot(lock.key.as_bytes()), &request, departure).await {
            Ok((reply, address)) => Ok(reply::drawn(reply, &address)?),
            Err(Trouble::Split(_)) => {
                let departure = departure.out_of_turn();
                self.in_time(self.draw_alone(lock, take, departure)).await
            }
            Err(trouble) => Err(trouble),
        }
    }

    /// Draws in steps, while no script can have the lock and its counter. What is ours after the draw
    /// was ours at the draw, for its owner takes it once.
    async fn draw_alone(
        &self,
        lock: &Lock,
        take: Option<Duration>,
        departure: Departure<'_>,
    ) -> Result<Drawn, Trouble> {
        if let Some(lease) = take
            && let Acquired::HeldBy(owner) = self.acquire(lock, lease, departure).await?
            && owner != lock.owner
        {
            return Ok(Drawn::HeldBy(owner));
        }
        let slot = slot(lock.key.as_bytes());
        let request = Request::draw_alone(FenceKey::Slot(slot));
        let (reply, address) = self.ask(slot, &request, departure).await?;
        let drawn = Drawn::Token(reply::marked(&reply, &address)?);
        Ok(match self.inspect(&lock.key).await? {
            None => Drawn::Gone,
            Some(holder) if holder.owner == lock.owner => drawn,
            Some(holder) => Drawn::HeldBy(holder.owner),
        })
    }

    async fn release(&self, lock: &Lock, claim: Duration) -> Result<Released, Trouble> {
        let slot = slot(lock.key.as_bytes());
        let request = Request::release(std::slice::from_ref(lock), claim);
        let departure = self.nodes.endings.depart(&lock.owner, request.role());
        match self.ask(slot, &request, departure).await {
            Ok((reply, address)) => Ok(released(reply, &address)?),
            Err(Trouble::Split(_)) => {
                let departure = departure.out_of_turn();
                let request = Request::release_alone(lock);
                let (reply, address) = self.ask(slot, &request, departure).await?;
                let released = released(reply, &address)?;
                if released == Released::Freed {
                    self.wake(&lock.key, claim).await;
                }
                Ok(released)
            }
            Err(trouble) => Err(trouble),
        }
    }

    /// Tells the next contender that the lock is free, if all of the queue is at one node; else it
    /// finds out by its timer, as it does if the message is lost.
    async fn wake(&self, key: &str, claim: Duration) {
        let request = Request::wake(key, claim);
        let departure = self.nodes.endings.depart("", request.role()).out_of_turn();
        let asked = self.ask(slot(key.as_bytes()), &request, departure);
        drop(within(WAKE_WITHIN, pin!(asked)).await);
    }

    async fn inspect(&self, key: &Arc<str>) -> Result<Option<Holder>, Trouble> {
        let request = Request::inspect(key);
        let departure = self.nodes.endings.depart("", request.role());
        let (reply, address) = self.ask(slot(key.as_bytes()), &request, departure).await?;
        Ok(reply::holder(reply, &address)?)
    }
}

impl Channel for ClusterChannel {
    fn is_open(&self) -> bool {
        self.0.generation.is_open()
    }

    fn answers_within(&self) -> Duration {
        // In three steps, where one is not enough.
        3 * self.0.limit() + WAKE_WITHIN
    }

    fn retire(&self, key: &str) {
        let generation = &self.0.generation;
        let owner = generation.topology().owner(slot(key.as_bytes()));
        if let Some(line) = owner.and_then(|owner| generation.line_at(owner)) {
            line.retire(key);
        }
        self.0.nodes.look_around_soon(None);
    }

    fn shard(&self, key: &str) -> usize {
        self.0.generation.topology().owner(slot(key.as_bytes())).unwrap_or(usize::MAX)
    }

    fn acquire(&self, lock: &Lock, lease: Duration) -> BoxFuture<StoreResult<Acquired>> {
        let (way, lock) = (self.0.clone(), lock.clone());
        Box::pin(async move {
            let departure = way.nodes.endings.depart(&lock.owner, Role::Takes);
            Ok(way.acquire(&lock, lease, departure).await?)
        })
    }

    fn contend(
        &self,
        lock: &Lock,
        lease: Duration,
        keep: Duration,
    ) -> BoxFuture<StoreResult<Contended>> {
        if !self.0.nodes.listen() {
            return Box::pin(async { Err(not_listening()) });
        }
        let (way, lock) = (self.0.clone(), lock.clone());
        Box::pin(async move { Ok(way.contend(&lock, lease, keep).await?) })
    }

    fn draw(&self, lock: &Lock, take: Option<Duration>) -> BoxFuture<StoreResult<Drawn>> {
        let (way, lock) = (self.0.clone(), lock.clone());
        Box::pin(async move { Ok(way.draw(&lock, take).await?) })
    }

    fn renew(&self, batch: &[Renewal]) -> BoxFuture<StoreResult<Vec<Renewed>>> {
        let (way, batch) = (self.0.clone(), batch.to_vec());
        Box::pin(async move { renew::renew(&way, &batch).await })
    }

    fn release(&self, lock: &Lock, claim: Duration) -> BoxFuture<StoreResult<Released>> {
        let (way, lock) = (self.0.clone(), lock.clone());
        Box::pin(async move { Ok(way.release(&lock, claim).await?) })
    }

    fn inspect(&self, key: &Arc<str>) -> BoxFuture<StoreResult<Option<Holder>>> {
        let (way, key) = (self.0.clone(), Arc::clone(key));
        Box::pin(async move { Ok(way.inspect(&key).await?) })
    }

    fn raise(&self, lock: &Lock, token: u64) -> BoxFuture<StoreResult<Drawn>> {
        let (way, request) =
            (self.0.clone(), Request::raise(lock, FenceKey::in_slot_of(&lock.key), token));
        let slot = slot(lock.key.as_bytes());
        Box::pin(async move {
            let departure = way.nodes.endings.depart("", request.role());
            let (reply, address) = way.ask(slot, &request, departure).await?;
            reply::drawn(reply, &address)
        })
    }

    fn wake(&self, key: &Arc<str>, claim: Duration) -> BoxFuture<StoreResult<bool>> {
        let (way, request) = (self.0.clone(), Request::wake(key, claim));
        let slot = slot(key.as_bytes());
        Box::pin(async move {
            let departure = way.nodes.endings.depart("", request.role());
            let (reply, address) = way.ask(slot, &request, departure).await?;
            reply::woken(reply, &address)
        })
    }

    fn renew_on_replicas(
        &self,
        batch: &[Renewal],
        replicas: u32,
        within: Duration,
    ) -> BoxFuture<StoreResult<(Vec<Renewed>, u32)>> {
        let (way, batch) = (self.0.clone(), batch.to_vec());
        Box::pin(async move {
            if batch.is_empty() {
                replicas::try_to_wait(&way).await?;
                return Ok((Vec::new(), 0));
            }
            let steps = replicas::renew_on_replicas(&way, &batch, replicas, within);
            Ok(way.in_time(steps).await?)
        })
    }

    fn delivers_events(&self) -> bool {
        self.0.nodes.hears()
    }
}

fn released(reply: Value, address: &str) -> StoreResult<Released> {
    let released = reply::released(reply, 1, address)?.pop();
    released.ok_or_else(|| {
        let text = format!("redis at {address} did not say what a release came to");
        StoreError::new(StoreErrorKind::Unavailable, text)
    })
}

/// What a release may take longer for the sake of who waits.
const WAKE_WITHIN: Duration = Duration::from_millis(100);
