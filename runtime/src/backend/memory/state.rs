//! What the memory store knows, and the decisions on it: plain code, given the time.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use uuid::Uuid;

use super::message::{Message, News};
use crate::backend::{
    Acquired, Contended, Drawn, Events, Holder, Lock, Released, Renewal, Renewed, StoreError,
    StoreErrorKind, StoreResult, contender_of,
};
use crate::clock::Timestamp;

#[derive(Clone, Default)]
pub(crate) struct State {
    values: HashMap<Arc<str>, Entry>,
    /// The contenders of each key in the order of their tickets.
    queues: HashMap<Arc<str>, Vec<Place>>,
    listeners: HashMap<Uuid, Weak<dyn Events>>,
    /// The last fencing token of any key.
    last_token: u64,
    /// The wall clock at the origin of the store's clock: tokens of a store that is made anew go on
    /// from those of the last one.
    epoch_micros: u64,
    /// How many more entries may come before the expired ones are looked for.
    until_sweep: usize,
}

#[derive(Clone)]
struct Entry {
    value: Value,
    expires: Option<Timestamp>,
}

#[derive(Clone)]
pub(crate) enum Value {
    OtherType,
    Text(Arc<str>),
}

#[derive(Clone)]
struct Place {
    owner: Arc<str>,
    deadline: Timestamp,
    listener: Uuid,
}

impl State {
    pub(crate) fn new(epoch_micros: u64) -> Self {
        Self { epoch_micros, ..Self::default() }
    }

    pub(crate) fn listen(&mut self, id: Uuid, events: Weak<dyn Events>) {
        self.listeners.retain(|_, listener| listener.strong_count() > 0);
        self.listeners.insert(id, events);
    }

    #[cfg(test)]
    pub(crate) fn listeners(&self) -> usize {
        self.listeners.len()
    }

    pub(crate) fn len(&self) -> usize {
        self.values.len()
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&mut self, now: Timestamp) -> bool {
        self.sweep(now);
        self.values.is_empty() && self.queues.is_empty()
    }

    /// The owners that queue for `key`, in order, and until when.
    #[cfg(test)]
    pub(crate) fn places(&self, key: &str) -> Vec<(Arc<str>, Timestamp)> {
        let places = self.queues.get(key).into_iter().flatten();
        places.map(|place| (Arc::clone(&place.owner), place.deadline)).collect()
    }

    pub(crate) fn remove(&mut self, key: &str) {
        self.values.remove(key);
    }

    /// What stands under `key` and when it expires.
    pub(crate) fn value(
        &mut self,
        key: &str,
        now: Timestamp,
    ) -> Option<(Value, Option<Timestamp>)> {
        let entry = self.values.get(key)?;
        if entry.expires.is_some_and(|expires| expires <= now) {
            self.values.remove(key);
            return None;
        }
        Some((entry.value.clone(), entry.expires))
    }

    pub(crate) fn insert(
        &mut self,
        key: &Arc<str>,
        value: Value,
        expires: Option<Timestamp>,
        now: Timestamp,
    ) {
        self.make_room(now);
        self.values.insert(Arc::clone(key), Entry { value, expires });
    }

    pub(crate) fn acquire(
        &mut self,
        lock: &Lock,
        lease: Duration,
        now: Timestamp,
    ) -> StoreResult<Acquired> {
        match self.value(&lock.key, now) {
            None => {
                self.hold(lock, now + lease, now);
                Ok(Acquired::Granted)
            }
            Some((Value::Text(holder), _)) => Ok(Acquired::HeldBy(holder)),
            Some((Value::OtherType, _)) => Err(foreign("a value that is no string")),
        }
    }

    pub(crate) fn contend(
        &mut self,
        lock: &Lock,
        lease: Duration,
        keep: Duration,
        listener: Uuid,
        now: Timestamp,
    ) -> StoreResult<Contended> {
        let (holder, expires) = match self.value(&lock.key, now) {
            None => {
                self.forget_place(lock);
                self.hold(lock, now + lease, now);
                return Ok(Contended::Granted);
            }
            Some((Value::Text(holder), _)) if holder == lock.owner => {
                self.forget_place(lock);
                return Ok(Contended::Mine);
            }
            Some((Value::Text(holder), Some(expires))) => (holder, expires),
            Some((Value::Text(_), None)) => return Err(foreign("a string without TTL")),
            Some((Value::OtherType, _)) => return Err(foreign("a value that is no string")),
        };
        let deadline = now + keep;
        let ahead = self.take_place(lock, deadline, listener, now);
        Ok(Contended::Queued { holder, remaining: expires.since(now), ahead })
    }

    pub(crate) fn draw(
        &mut self,
        lock: &Lock,
        take: Option<Duration>,
        now: Timestamp,
    ) -> StoreResult<Drawn> {
        match (self.value(&lock.key, now), take) {
            (None, None) => return Ok(Drawn::Gone),
            (None, Some(lease)) => self.hold(lock, now + lease, now),
            (Some((Value::Text(holder), _)), _) if holder == lock.owner => {}
            (Some((Value::Text(holder), _)), _) => return Ok(Drawn::HeldBy(holder)),
            (Some((Value::OtherType, _)), _) => return Err(foreign("a value that is no string")),
        }
        let clock = self.epoch_micros + now.as_nanos() / 1_000;
        self.last_token = clock.max(self.last_token + 1);
        Ok(Drawn::Token(self.last_token))
    }

    pub(crate) fn raise(&mut self, lock: &Lock, token: u64, now: Timestamp) -> StoreResult<Drawn> {
        match self.value(&lock.key, now) {
            None => return Ok(Drawn::Gone),
            Some((Value::Text(holder), _)) if holder == lock.owner => {}
            Some((Value::Text(holder), _)) => return Ok(Drawn::HeldBy(holder)),
            Some((Value::OtherType, _)) => return Err(foreign("a value that is no string")),
        }
        self.last_token = token.max(self.last_token);
        Ok(Drawn::Token(token))
    }

    /// What the contender at the head of the queue, and the one after it, are told of a free lock.
    pub(crate) fn wake(&self, key: &Arc<str>, claim: Duration, now: Timestamp) -> Vec<Message> {
        let listeners = &self.listeners;
        let places = self.queues.get(key).map(Vec::as_slice).unwrap_or_default();
        let live = places.iter().filter(|place| place.deadline > now);
        let reachable = live.filter_map(|place| {
            let listener = listeners.get(&place.listener)?.upgrade()?;
            Some((listener, Arc::clone(&place.owner)))
        });
        let message = |(claim, (listener, owner))| Message {
            listener,
            key: Arc::clone(key),
            owner,
            news: News::NextInLine { claim },
        };
        [Duration::ZERO, claim].into_iter().zip(reachable).map(message).collect()
    }

    pub(crate) fn renew(&mut self, renewal: &Renewal, now: Timestamp) -> Renewed {
        match self.value(&renewal.lock.key, now) {
            None => Renewed::Gone,
            Some((Value::Text(holder), expiry)) if holder == renewal.lock.owner => {
                // Never shorter, so that renewals may come in any order.
                let expiry = expiry.map_or(now, |expiry| expiry).max(now + renewal.lease);
                self.hold(&renewal.lock, expiry, now);
                Renewed::Renewed
            }
            Some((Value::Text(_), _)) => Renewed::Taken,
            Some((Value::OtherType, _)) => Renewed::Foreign,
        }
    }

    pub(crate) fn release(
        &mut self,
        lock: &Lock,
        claim: Duration,
        now: Timestamp,
    ) -> (Released, Vec<Message>) {
        self.forget_place(lock);
        let released = match self.value(&lock.key, now) {
            None => Released::Gone,
            Some((Value::Text(holder), _)) if holder == lock.owner && claim.is_zero() => {
                self.remove(&lock.key);
                match self.queues.contains_key(&lock.key) {
                    true => Released::FreedUntold,
                    false => Released::Freed,
                }
            }
            Some((Value::Text(holder), _)) if holder == lock.owner => {
                return self.hand_on(&lock.key, claim, now);
            }
            Some((Value::Text(_), Some(_))) => Released::Taken,
            Some((Value::Text(_), None) | (Value::OtherType, _)) => Released::Foreign,
        };
        (released, Vec::new())
    }

    pub(crate) fn inspect(&mut self, key: &str, now: Timestamp) -> StoreResult<Option<Holder>> {
        match self.value(key, now) {
            None => Ok(None),
            Some((Value::Text(owner), expires)) => {
                Ok(Some(Holder { owner, remaining: expires.map(|expires| expires.since(now)) }))
            }
            Some((Value::OtherType, _)) => Err(foreign("a value that is no string")),
        }
    }

    fn hold(&mut self, lock: &Lock, expires: Timestamp, now: Timestamp) {
        self.insert(&lock.key, Value::Text(Arc::clone(&lock.owner)), Some(expires), now);
    }

    /// Gives a lock that its owner gives up to the next contender, or frees it.
    fn hand_on(
        &mut self,
        key: &Arc<str>,
        claim: Duration,
        now: Timestamp,
    ) -> (Released, Vec<Message>) {
        let mut messages = Vec::new();
        let chosen = self.queues.get_mut(key).and_then(|places| {
            places.retain(|place| place.deadline > now);
            // A listener that is gone may come back: its place stays, and is the lock's if nobody
            // else can be told.
            let listener = |place: &Place| self.listeners.get(&place.listener);
            let reachable = places
                .iter()
                .position(|place| listener(place).is_some_and(|weak| weak.strong_count() > 0));
            let index = reachable.unwrap_or(0);
            let chosen = (index < places.len()).then(|| places.remove(index))?;
            // The listener travels with the message: its last owner must not die under the mutex.
            let message = |place: &Place, news| {
                Some(Message {
                    listener: listener(place)?.upgrade()?,
                    key: Arc::clone(key),
                    owner: Arc::clone(&place.owner),
                    news,
                })
            };
            messages.extend(message(&chosen, News::Granted));
            // The next one now stands where the chosen one stood.
            let next = places.get(index);
            messages.extend(next.and_then(|next| message(next, News::NextInLine { claim })));
            Some(chosen.owner)
        });
        self.forget_empty_queue(key);
        let Some(owner) = chosen else {
            self.remove(key);
            return (Released::Freed, messages);
        };
        let granted = Lock { key: Arc::clone(key), owner: Arc::clone(&owner) };
        self.hold(&granted, now + claim, now);
        (Released::Granted { owner }, messages)
    }

    /// Takes or refreshes a place, and counts those ahead of it.
    fn take_place(
        &mut self,
        lock: &Lock,
        deadline: Timestamp,
        listener: Uuid,
        now: Timestamp,
    ) -> usize {
        self.make_room(now);
        let contender = contender_of(&lock.owner);
        let places = self.queues.entry(Arc::clone(&lock.key)).or_default();
        if let Some(place) = places.iter_mut().find(|place| *place.owner == *contender) {
            place.deadline = deadline;
            place.listener = listener;
        } else {
            places.push(Place { owner: contender.into(), deadline, listener });
        }
        // Own place is alive by now, so that it is found below.
        places.retain(|place| place.deadline > now || *place.owner == *contender);
        places.iter().take_while(|place| *place.owner != *contender).count()
    }

    fn forget_place(&mut self, lock: &Lock) {
        if let Some(places) = self.queues.get_mut(&lock.key) {
            let contender = contender_of(&lock.owner);
            places.retain(|place| *place.owner != *contender);
            self.forget_empty_queue(&lock.key);
        }
    }

    fn forget_empty_queue(&mut self, key: &str) {
        if self.queues.get(key).is_some_and(Vec::is_empty) {
            self.queues.remove(key);
        }
    }

    /// Looks for what expired unseen once as many entries have come as had stayed the last time:
    /// the cost for each entry stays constant, and at most half of what is kept is dead.
    fn make_room(&mut self, now: Timestamp) {
        if let Some(rest) = self.until_sweep.checked_sub(1) {
            self.until_sweep = rest;
        } else {
            self.sweep(now);
        }
    }

    fn sweep(&mut self, now: Timestamp) {
        self.values.retain(|_, entry| entry.expires.is_none_or(|expires| expires > now));
        self.queues.retain(|_, places| {
            places.retain(|place| place.deadline > now);
            !places.is_empty()
        });
        let entries = self.values.len() + self.queues.len();
        self.until_sweep = entries.max(MIN_SWEEP);
        self.values.shrink_to(2 * self.until_sweep);
        self.queues.shrink_to(2 * self.until_sweep);
    }
}

fn foreign(what: &str) -> StoreError {
    StoreError::new(
        StoreErrorKind::Foreign,
        format!("under the key stands {what}: choose another key or remove it"),
    )
}

const MIN_SWEEP: usize = 64;
