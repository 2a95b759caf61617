//! Where a contender hears of grants: on the node that grants.
//!
//! With shard channels one for each slot in which this client contends, since a message stays on the
//! nodes of its slot; else one for each node. A subscription stays until its connection ends: which
//! it does when a slot that is listened to moves away, and when there are too many of them. Then all
//! who wait are told to look for themselves.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};

use redis::{PushKind, Value};
use tokio::sync::OnceCell;

use super::atlas::Voice;
use super::nodes::{Member, Nodes, Purpose};
use super::survey::first_success;
use super::topology::Address;
use crate::backend::redis::channel::{Hearing, RedisChannel};
use crate::backend::redis::error::{self, Redirect};
use crate::backend::redis::line::within;
use crate::backend::redis::slot::shard_channel;
use crate::backend::{BoxFuture, Channel, StoreError, StoreErrorKind, StoreResult};

/// The ears of one client at the nodes.
#[derive(Debug, Default)]
pub(super) struct Ears(Mutex<HashMap<Address, Arc<Ear>>>);

#[derive(Debug)]
struct Ear {
    line: Arc<RedisChannel>,
    /// By the channels' names.
    subscriptions: Mutex<HashMap<Arc<str>, Arc<OnceCell<()>>>>,
}

/// Why there is no subscription.
enum Deafness {
    /// The slot is served by this node.
    Elsewhere(Address),
    /// Not this way: the server or its rules know nothing of it.
    Refused,
    Trouble(StoreError),
}

impl Nodes {
    /// Finds out how contenders can be reached here. Of no consequence if no node is in reach: then
    /// whoever contends finds out.
    pub(super) async fn try_to_hear(self: &Arc<Self>) {
        let Some(topology) = self.atlas.topology() else { return };
        let primaries = topology.primaries().to_vec();
        let nodes = Arc::clone(self);
        let attempt = move |address: Address| {
            let (nodes, topology) = (Arc::clone(&nodes), Arc::clone(&topology));
            Box::pin(async move {
                let index = topology.primaries().iter().position(|primary| *primary == address);
                let slot = index.and_then(|index| topology.slot_of(index)).unwrap_or_default();
                nodes.hear(&address, slot).await
            }) as BoxFuture<_>
        };
        drop(first_success(primaries, attempt).await);
    }

    /// Whether a contender can be told of grants, as far as is known.
    pub(super) fn hears(&self) -> bool {
        self.listen() && self.atlas.voice() != Voice::None
    }

    /// Sees to it that this client hears of grants in `slot`, which the node at `address` serves; on
    /// which line it does, if at all.
    pub(super) async fn hear(
        self: &Arc<Self>,
        address: &Address,
        slot: u16,
    ) -> StoreResult<(Hearing, Option<Arc<RedisChannel>>)> {
        self.keep_watch();
        let mut address = address.clone();
        for _ in 0..ATTEMPTS {
            let voice = self.atlas.voice();
            let name: Arc<str> = match voice {
                Voice::Sharded => shard_channel(slot, self.atlas.name()).into(),
                // Of this node only, so that what others pass on is not heard twice.
                Voice::Ordinary => format!("{}:{address}", self.atlas.name()).into(),
                Voice::None => return Ok((Hearing::Deaf, None)),
            };
            match self.subscribe(&address, voice, &name).await {
                Ok(line) => {
                    self.atlas.note_heard();
                    return Ok((Hearing::Subscribed(name), Some(line)));
                }
                Err(Deafness::Elsewhere(other)) => {
                    self.look_around_soon(Some(other.clone()));
                    address = other;
                }
                Err(Deafness::Refused) => self.atlas.give_up(voice),
                Err(Deafness::Trouble(error)) => {
                    self.look_around_soon(None);
                    return Err(error);
                }
            }
        }
        let text = format!("no node of the cluster owns up to slot {slot}");
        Err(StoreError::new(StoreErrorKind::Unavailable, text))
    }

    async fn subscribe(
        self: &Arc<Self>,
        address: &Address,
        voice: Voice,
        name: &Arc<str>,
    ) -> Result<Arc<RedisChannel>, Deafness> {
        let member = Member { address: address.clone(), purpose: Purpose::Hearing };
        let line = self.line(&member).await.map_err(Deafness::Trouble)?;
        let ear = self.ears.at(address, line);
        let subscription = ear.subscription(name);
        // One sends, the others wait for it.
        subscription.get_or_try_init(|| ear.subscribe(address, voice, name)).await?;
        Ok(Arc::clone(&ear.line))
    }
}

impl Ears {
    fn at(&self, address: &Address, line: Arc<RedisChannel>) -> Arc<Ear> {
        // Each change is one insertion.
        let mut ears = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match ears.get(address) {
            Some(ear) if Arc::ptr_eq(&ear.line, &line) => Arc::clone(ear),
            _ => {
                ears.retain(|_, ear| ear.line.is_open());
                let ear = Arc::new(Ear { line, subscriptions: Mutex::default() });
                let before = ears.insert(address.clone(), Arc::clone(&ear));
                drop(ears);
                // Not under the mutex: the end of a connection comes back to the nodes.
                drop(before);
                ear
            }
        }
    }
}

impl Ear {
    fn subscription(&self, name: &Arc<str>) -> Arc<OnceCell<()>> {
        // Each change is one insertion.
        let mut subscriptions = self.subscriptions.lock().unwrap_or_else(PoisonError::into_inner);
        let too_many = subscriptions.len() >= MOST_SUBSCRIPTIONS;
        let subscription = Arc::clone(subscriptions.entry(Arc::clone(name)).or_default());
        drop(subscriptions);
        if too_many {
            self.line.line().close("it had too many subscriptions");
        }
        subscription
    }

    async fn subscribe(
        &self,
        address: &Address,
        voice: Voice,
        name: &Arc<str>,
    ) -> Result<(), Deafness> {
        let line = self.line.line();
        line.check().map_err(Deafness::Trouble)?;
        let (word, confirmed) = match voice {
            Voice::Sharded => ("SSUBSCRIBE", PushKind::SSubscribe),
            Voice::Ordinary | Voice::None => ("SUBSCRIBE", PushKind::Subscribe),
        };
        let mut command = redis::cmd(word);
        command.arg(&**name);
        let mut connection = self.line.connection();
        let limit = line.server().config.response_timeout;
        let Some(reply) = within(limit, pin!(connection.send_packed_command(&command))).await
        else {
            line.close("the server did not confirm a subscription in time");
            let text =
                format!("redis at {address} did not confirm a subscription within {limit:?}");
            return Err(Deafness::Trouble(StoreError::new(StoreErrorKind::Unavailable, text)));
        };
        let error = match reply.and_then(Value::extract_error) {
            Ok(Value::Push { kind, data }) => {
                let ours = |data: &Value| matches!(data, Value::BulkString(said) if **said == *name.as_bytes());
                if kind == confirmed && data.first().is_some_and(ours) {
                    // It may have ended since, and its subscriptions with it.
                    return line.check().map_err(Deafness::Trouble);
                }
                return Err(Deafness::Trouble(self.confused(address)));
            }
            Ok(_) => return Err(Deafness::Trouble(self.confused(address))),
            Err(error) => error,
        };
        if let Some(Redirect::Ask(other) | Redirect::Moved(other)) = error::redirect(&error) {
            return Err(match Address::of_redirection(&other, address) {
                Some(other) => Deafness::Elsewhere(other),
                None => Deafness::Trouble(line.failed(&error)),
            });
        }
        let explained = line.failed(&error);
        // An unknown command, or a missing right.
        if explained.kind == StoreErrorKind::Refused {
            return Err(Deafness::Refused);
        }
        Err(Deafness::Trouble(explained))
    }

    /// A message was taken for the confirmation: what is subscribed here is anyone's guess.
    fn confused(&self, address: &Address) -> StoreError {
        let text = format!("redis at {address} ended subscriptions while others were made");
        self.line.line().close(&text);
        StoreError::new(StoreErrorKind::Unavailable, text)
    }
}

/// Each of them bound to a slot in which this client contended: a few hundred bytes of the server's.
const MOST_SUBSCRIPTIONS: usize = 4096;
/// A moved slot, and both ways of hearing refused.
const ATTEMPTS: usize = 4;
