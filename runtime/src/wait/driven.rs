//! What the store says to the queues of this process, and what its driver makes of it.

use std::sync::Arc;
use std::time::Duration;

use super::ground::Ground;
use super::line::Standing;
use super::outside::Outside;
use super::queue::Queue;
use super::{Command, Verdict, Waiting};
use crate::backend::{Contended, Lock, Renewed, StoreError, StoreResult};
use crate::backoff::Chance;
use crate::clock::Timestamp;
use crate::protocol::contender::{Contender, Step, Traces};
use crate::protocol::hold::Granted;
use crate::protocol::offer::{Offer, Turn};

impl<O: Outside> Waiting<O> {
    /// Whether the store announces grants. That is known once the driver's channel is open, which the
    /// first contender opens.
    pub(crate) fn set_announced(&mut self, announced: bool) {
        self.ground.pace.announced = announced;
        for contender in self.keys.values_mut().filter_map(|queue| queue.contender.as_mut()) {
            contender.set_announced(announced);
        }
    }

    /// The store says, in a message or an answer, that `owner` has the lock by claim.
    pub(crate) fn granted(&mut self, key: &str, owner: &str) {
        self.tell(key, owner, |contender, _| contender.announced());
    }

    /// The store says that the contender before `owner` has it for `claim`.
    pub(crate) fn next_in_line(&mut self, key: &str, owner: &str, claim: Duration) {
        self.tell(key, owner, |contender, now| contender.next_in_line(claim, now));
    }

    /// Messages may have been missed.
    pub(crate) fn interrupted(&mut self) {
        let now = self.ground.outside.now();
        for (key, queue) in &mut self.keys {
            if let Some(contender) = &mut queue.contender {
                contender.interrupted(now, self.ground.outside.roll());
                self.ground.look_at(key, queue, Timestamp::NOW);
            }
        }
    }

    /// The store answered a [`Command::Contend`].
    pub(crate) fn contended(
        &mut self,
        lock: &Lock,
        reply: StoreResult<Contended>,
        granted: Granted,
    ) {
        self.answered(lock, |contender, now, chance| {
            contender.contended(reply, granted, now, chance)
        });
    }

    /// The store answered a [`Command::Confirm`].
    pub(crate) fn confirmed(&mut self, lock: &Lock, reply: StoreResult<Renewed>, granted: Granted) {
        self.answered(lock, |contender, now, chance| {
            contender.confirmed(reply, granted, now, chance)
        });
    }

    /// What the contenders want done at `now`.
    pub(crate) fn step(&mut self, now: Timestamp, commands: &mut Vec<Command>) {
        commands.append(&mut self.ground.owed);
        while let Some(key) = self.ground.due.pop(now) {
            let Some(queue) = self.keys.get_mut(&key) else { continue };
            queue.due = Timestamp::NEVER;
            if self.ground.step(&key, queue, now, commands) == Look::Again
                && self.ground.settle(&key, queue).is_idle()
            {
                self.keys.remove(&key);
            }
        }
    }

    /// The driver died with its answers: nothing is under way any more.
    pub(crate) fn restart(&mut self) {
        let now = self.ground.outside.now();
        for (key, queue) in &mut self.keys {
            if let Some(contender) = &mut queue.contender {
                contender.abandoned(now);
                self.ground.look_at(key, queue, Timestamp::NOW);
            }
            // Who is polled now starts another driver.
            let wakers = queue.waiters.iter_mut().filter_map(|waiter| waiter.waker.take());
            self.ground.wakers.wake.extend(wakers);
        }
    }

    fn tell(&mut self, key: &str, owner: &str, what: impl FnOnce(&mut Contender, Timestamp)) {
        let Some((key, _)) = self.keys.get_key_value(key) else { return };
        let key = Arc::clone(key);
        self.change(&key, |queue, ground| {
            // Late news of an owner that was given up needs nothing: its release is under way.
            let contender = queue.contender.as_mut();
            if let Some(contender) = contender.filter(|contender| **contender.owner() == *owner) {
                what(contender, ground.outside.now());
            }
        });
    }

    fn answered(
        &mut self,
        lock: &Lock,
        tell: impl FnOnce(&mut Contender, Timestamp, Chance) -> Result<Option<Granted>, StoreError>,
    ) {
        self.change(&lock.key, |queue, ground| {
            let (now, chance) = (ground.outside.now(), ground.outside.roll());
            let contender = queue.contender.as_mut();
            let Some(contender) = contender.filter(|contender| *contender.owner() == lock.owner)
            else {
                return;
            };
            match tell(contender, now, chance) {
                Ok(None) => {}
                Ok(Some(granted)) => {
                    queue.contender = None;
                    ground.offer(lock, queue, granted, now);
                }
                Err(failure) => queue.refuse(Verdict::Store(failure), &mut ground.wakers),
            }
            ground.wakers.wake.extend(queue.offered_to());
        });
    }
}

/// Whether something changed in a queue by the driver's look at it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Look {
    Again,
    Done,
}

impl<O: Outside> Ground<O> {
    /// Offers a grant to the waiters.
    ///
    /// Of two grants the one that reaches further is true: an answer may be late. The other one is
    /// given back all the same, in case that it still stands in the store.
    fn offer(&mut self, lock: &Lock, queue: &mut Queue, granted: Granted, now: Timestamp) {
        let (owner, turn) = (Arc::clone(&lock.owner), Turn::begin(now));
        let mut spare: Option<Box<Offer>> =
            Some(Offer::new(owner, granted, turn, now, self.pace.claim).into());
        let known = queue.offer.as_ref();
        if known.is_none_or(|offer| offer.granted.deadline() <= granted.deadline()) {
            queue.note_owner(&lock.owner, now);
            std::mem::swap(&mut queue.offer, &mut spare);
        }
        self.owed.extend(spare.map(|spare| spare.give_back(&lock.key, now)));
    }

    /// What the driver does for `key` at `now`.
    fn step(
        &mut self,
        key: &Arc<str>,
        queue: &mut Queue,
        now: Timestamp,
        commands: &mut Vec<Command>,
    ) -> Look {
        let Some(mut until) = self.step_offer(key, queue, now, commands) else {
            return Look::Again;
        };
        let wanted = queue.wanted().map(|waiter| waiter.lease);
        if let Some(contender) = &mut queue.contender {
            let lock = Lock { key: Arc::clone(key), owner: Arc::clone(contender.owner()) };
            match contender.step(now, wanted) {
                Step::Contend(lease) => commands.push(Command::Contend { lock, lease }),
                Step::Confirm(lease) => commands.push(Command::Confirm { lock, lease }),
                Step::GiveUp(traces) => {
                    let lease = contender.lease();
                    queue.contender = None;
                    commands.push(Command::GiveUp { lock, lease, traces });
                    return Look::Again;
                }
                Step::Wait(contender_until) => until = until.min(contender_until),
            }
        }
        self.look_at(key, queue, until);
        Look::Done
    }

    /// Passes an offer on that was not taken in time. How long it stands; nothing if the lock was
    /// given back.
    fn step_offer(
        &mut self,
        key: &Arc<str>,
        queue: &mut Queue,
        now: Timestamp,
        commands: &mut Vec<Command>,
    ) -> Option<Timestamp> {
        let Some(offer) = &mut queue.offer else { return Some(Timestamp::NEVER) };
        if let Some(waiter) = queue.waiters.head() {
            if offer.stands(now) {
                return Some(offer.until());
            }
            waiter.standing = Standing::Asleep;
            // It may have been polled just after its time: then it comes again, and is awake.
            self.wakers.wake.extend(waiter.waker.take());
        }
        let renewed = offer.renew(now, self.pace.claim);
        let until = offer.until();
        if renewed && queue.waiters.head().is_some() {
            self.wakers.wake.extend(queue.offered_to());
            return Some(until);
        }
        commands.extend(queue.offer.take().map(|offer| offer.give_back(key, now)));
        None
    }
}

impl Offer {
    /// Nobody takes it.
    fn give_back(self, key: &Arc<str>, now: Timestamp) -> Command {
        let lock = Lock { key: Arc::clone(key), owner: self.owner };
        let traces = Traces::of(self.granted, now);
        Command::GiveUp { lock, lease: self.granted.lease, traces }
    }
}
