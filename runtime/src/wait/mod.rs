//! The callers of this process that wait for a lock, per key in the order in which they came.
//!
//! A key stands in here while somebody of this process tries, holds or awaits it, and no longer. The
//! first caller tries the store directly; whoever comes while the key is busy queues here without a
//! command, and one contender asks the store for all of them. What callers do stands here, what the
//! store and the driver do in `driven`.

use std::collections::{HashMap, hash_map};
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use self::ground::Ground;
use self::line::Standing;
pub(crate) use self::outside::{Outside, Process};
use self::queue::Queue;
pub(crate) use self::wakers::Wakers;
use crate::backend::{Lock, StoreError};
use crate::clock::Timestamp;
use crate::protocol::contender::{Contender, Pace, Traces};
use crate::protocol::hold::Granted;
use crate::protocol::offer::{HandOff, Offer, Turn};

mod driven;
mod ground;
mod line;
mod outside;
mod queue;
#[cfg(test)]
mod snapshot;
#[cfg(test)]
mod tests;
mod wakers;

/// A caller's place in the local order: lower came earlier.
pub(crate) type Ticket = u64;

/// All keys that callers of this process try, hold or await.
#[derive(Clone, Debug)]
pub(crate) struct Waiting<O = Process> {
    keys: HashMap<Arc<str>, Queue>,
    ground: Ground<O>,
    next_ticket: Ticket,
}

/// Why a waiter gets no lock.
#[derive(Clone, Debug, Hash)]
pub(crate) enum Verdict {
    ShutDown,
    Store(StoreError),
}

/// What a new caller does.
#[derive(Debug)]
pub(crate) enum Entry {
    /// The key is busy in this process, and the caller does not wait.
    Busy,
    /// `max_waiters` are there already.
    Full,
    Try(Ticket),
    /// With the key as it stands here: one text for all who wait.
    Wait(Ticket, Arc<str>),
}

/// A command of a contender, for the driver to carry out.
#[derive(Clone, Debug, Hash)]
pub(crate) enum Command {
    Confirm {
        lock: Lock,
        lease: Duration,
    },
    Contend {
        lock: Lock,
        lease: Duration,
    },
    /// The contender's owner is given up: release what it may have.
    GiveUp {
        lock: Lock,
        lease: Duration,
        traces: Traces,
    },
}

/// What is known of a contended key, for an error.
#[derive(Debug, Default)]
pub(crate) struct Report {
    pub(crate) owner: Option<Arc<str>>,
    pub(crate) expected_end: Option<Timestamp>,
    pub(crate) trouble: Option<StoreError>,
    pub(crate) held_here: bool,
}

impl<O: Outside> Waiting<O> {
    pub(crate) fn new(outside: O, claim: Duration, hand_off: HandOff) -> Self {
        let pace = Pace { claim, announced: true };
        Self { keys: HashMap::new(), ground: Ground::new(outside, pace, hand_off), next_ticket: 0 }
    }

    /// A caller wants `key`. If it waits, it is woken by `waker` when it is to look.
    pub(crate) fn enter(
        &mut self,
        key: &Arc<str>,
        lease: Duration,
        may_wait: bool,
        max_waiters: usize,
        waker: &Waker,
    ) -> Entry {
        let ticket = self.next_ticket;
        let known;
        let place = match self.keys.entry(Arc::clone(key)) {
            hash_map::Entry::Occupied(place) => {
                known = Arc::clone(place.key());
                place.into_mut()
            }
            hash_map::Entry::Vacant(place) => {
                place.insert(Queue::tried());
                self.next_ticket += 1;
                return Entry::Try(ticket);
            }
        };
        if !may_wait {
            if place.is_busy() {
                return Entry::Busy;
            }
            // Who is here does not look any more, is about to leave, or tries, too: what that one will
            // find, a lock or a store that is down, nobody knows yet.
            place.trying += 1;
            self.next_ticket += 1;
            return Entry::Try(ticket);
        }
        if place.waiters.len() >= max_waiters {
            return Entry::Full;
        }
        self.next_ticket += 1;
        place.waiters.join(ticket, lease, Some(waker.clone()));
        // The lock may be on offer, with nobody else awake to take it.
        self.ground.wakers.wake.extend(place.offered_to());
        // It is not idle now.
        let _ = self.ground.settle(key, place);
        Entry::Wait(ticket, known)
    }

    /// The caller that tried directly, and perhaps found the lock with `holder`, goes on as a waiter;
    /// `unknown` if a command for its `owner` got no answer, and may have an effect until then.
    ///
    /// Whether the contender goes on with this owner. If not, one is under way for others already, and
    /// what the owner may have is for the caller to release.
    #[must_use]
    pub(crate) fn queue_up(
        &mut self,
        key: &Arc<str>,
        ticket: Ticket,
        lease: Duration,
        owner: Arc<str>,
        (holder, unknown): (Option<Arc<str>>, Option<(Timestamp, StoreError)>),
    ) -> bool {
        let adopted = self.change(key, |queue, ground| {
            queue.trying -= 1;
            if let Some(holder) = holder {
                queue.note_owner(&holder, ground.outside.now());
            }
            queue.waiters.join(ticket, lease, None);
            let adopted = queue.contender.as_deref().is_none_or(Contender::has_sent_nothing);
            if adopted {
                let pace = ground.pace;
                let contender = match unknown {
                    Some((until, trouble)) => Contender::after_unknown(owner, until, pace, trouble),
                    None => Contender::new(owner, Timestamp::NOW, pace),
                };
                queue.contender = Some(contender.into());
            }
            adopted
        });
        adopted.unwrap_or(false)
    }

    /// The direct try is over, with `granted` its owner's.
    pub(crate) fn tried(&mut self, key: &Arc<str>, granted: Option<Arc<str>>) {
        self.change(key, |queue, ground| {
            queue.trying -= 1;
            // One that gave the try time starts by what is known now.
            queue.contender.take_if(|contender| contender.has_sent_nothing());
            if let Some(owner) = granted {
                let now = ground.outside.now();
                queue.note_owner(&owner, now);
                queue.add_hold(owner, Turn::begin(now));
            }
        });
    }

    /// A waiter looks for its lock. Ready once, after which it is no waiter any more.
    pub(crate) fn poll(
        &mut self,
        key: &Arc<str>,
        ticket: Ticket,
        waker: &Waker,
    ) -> Poll<Result<(Lock, Granted), Verdict>> {
        // A waiter stands in the queue from `enter` to `leave` or to this function's answer.
        let Some(queue) = self.keys.get_mut(key) else { return Poll::Pending };
        let Some(waiter) = queue.waiters.get_mut(ticket) else { return Poll::Pending };
        let woke_up = match &waiter.standing {
            Standing::Refused(verdict) => {
                let verdict = (**verdict).clone();
                self.leave(key, ticket);
                return Poll::Ready(Err(verdict));
            }
            Standing::Asleep => true,
            Standing::Awake | Standing::Gone => false,
        };
        waiter.standing = Standing::Awake;
        let ground = &mut self.ground;
        let now = ground.outside.now();
        let is_next = queue.waiters.head().is_some_and(|head| head.ticket == ticket);
        if let Some(offer) = queue.offer.take_if(|offer| is_next && offer.stands(now)) {
            let Offer { owner, granted, turn, .. } = *offer;
            queue.note_owner(&owner, now);
            queue.add_hold(Arc::clone(&owner), turn);
            ground.wakers.spent.extend(queue.waiters.leave(ticket));
            // It is not idle now.
            let _ = ground.settle(key, queue);
            return Poll::Ready(Ok((Lock { key: Arc::clone(key), owner }, granted)));
        }
        if let Some(waiter) = queue.waiters.get_mut(ticket)
            && !waiter.waker.as_ref().is_some_and(|known| known.will_wake(waker))
        {
            ground.wakers.spent.extend(waiter.waker.replace(waker.clone()));
        }
        if woke_up {
            // It is not idle now.
            let _ = ground.settle(key, queue);
        }
        Poll::Pending
    }

    /// A waiter goes away.
    pub(crate) fn leave(&mut self, key: &Arc<str>, ticket: Ticket) {
        self.change(key, |queue, ground| {
            ground.wakers.spent.extend(queue.waiters.leave(ticket));
            ground.wakers.wake.extend(queue.offered_to());
        });
    }

    /// A hold of this process is released, or lost: then it is in nobody's way any more, even if the
    /// code that had it is still at work.
    pub(crate) fn hold_ended(&mut self, lock: &Lock) {
        self.change(&lock.key, |queue, ground| {
            if queue.remove_hold(&lock.owner) {
                queue.note_owner(&lock.owner, ground.outside.now());
            }
        });
    }

    /// A valid hold of this process ends: passes the lock on to the next waiter here, without a
    /// command, if there is one and the process's turn is not over. Then it must not be released:
    /// what the store has under this owner is the next one's.
    pub(crate) fn pass_on(&mut self, lock: &Lock, granted: Granted) -> bool {
        let Some(queue) = self.keys.get_mut(&lock.key) else { return false };
        // A TTL never gets shorter: who wants a shorter lease gets it from the store.
        let fits = queue.waiters.head().is_some_and(|heir| heir.lease >= granted.lease);
        if queue.offer.is_some() || !fits {
            return false;
        }
        let ground = &mut self.ground;
        let now = ground.outside.now();
        let turn = queue.turn_of(&lock.owner).and_then(|turn| turn.pass(now, ground.hand_off));
        let Some(turn) = turn else { return false };
        let owner = Arc::clone(&lock.owner);
        let offer = Offer::new(owner, granted, turn, now, ground.pace.claim);
        if !offer.stands(now) {
            return false;
        }
        queue.remove_hold(&lock.owner);
        queue.note_owner(&lock.owner, now);
        queue.offer = Some(offer.into());
        ground.wakers.wake.extend(queue.offered_to());
        // It is not idle now.
        let _ = ground.settle(&lock.key, queue);
        true
    }

    /// Nobody gets a lock any more.
    pub(crate) fn shut_down(&mut self) {
        for queue in self.keys.values_mut() {
            queue.refuse(Verdict::ShutDown, &mut self.ground.wakers);
        }
    }

    /// Whether nothing is under way in the store, or held there, for anybody.
    pub(crate) fn is_quiet(&self) -> bool {
        self.keys.values().all(Queue::is_quiet)
    }

    /// What is known of `key` to a caller that came at `since`.
    pub(crate) fn report(&self, key: &Arc<str>, since: Timestamp) -> Report {
        self.keys.get(key).map(|queue| queue.report(since)).unwrap_or_default()
    }

    pub(crate) fn next_due(&self) -> Timestamp {
        if self.ground.owed.is_empty() { self.ground.due.next() } else { Timestamp::NOW }
    }

    pub(crate) fn take_wakers(&mut self) -> Wakers {
        std::mem::take(&mut self.ground.wakers)
    }

    /// Changes what is known of `key`, if anything is. Then the driver looks at it, or it is forgotten.
    fn change<R>(
        &mut self,
        key: &Arc<str>,
        change: impl FnOnce(&mut Queue, &mut Ground<O>) -> R,
    ) -> Option<R> {
        let queue = self.keys.get_mut(key)?;
        let result = change(queue, &mut self.ground);
        if self.ground.settle(key, queue).is_idle() {
            self.keys.remove(key);
        }
        Some(result)
    }
}
