//! The callers of this process that wait for a lock, per key in the order in which they came.
//!
//! A key stands in here while somebody of this process tries, holds or awaits it, and no longer. The
//! first caller tries the store directly; whoever comes while the key is busy queues here without a
//! command, and one contender asks the store for all of them.

use std::collections::HashMap;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

pub(crate) use self::outside::{Outside, Process};
use self::queue::{Queue, Waiter};
use crate::backend::{Contended, Lock, Renewed, StoreError, StoreResult};
use crate::backoff::Chance;
use crate::clock::Timestamp;
use crate::protocol::contender::{Contender, Pace, Step, Traces};
use crate::protocol::hold::Granted;
use crate::protocol::offer::{HandOff, Offer, Turn};
use crate::schedule::Schedule;

mod outside;
mod queue;
#[cfg(test)]
mod snapshot;
#[cfg(test)]
mod tests;

/// A caller's place in the local order: lower came earlier.
pub(crate) type Ticket = u64;

/// All keys that callers of this process try, hold or await.
#[derive(Clone, Debug)]
pub(crate) struct Waiting<O = Process> {
    outside: O,
    pace: Pace,
    hand_off: HandOff,
    keys: HashMap<Arc<str>, Queue>,
    due: Schedule<Arc<str>>,
    next_ticket: Ticket,
    /// What is to be given back at the next step.
    owed: Vec<Command>,
    wakers: Wakers,
}

/// Wakers to call, and to drop, once the mutex around this is let go: both may run code of the
/// user's.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wakers {
    wake: Vec<Waker>,
    spent: Vec<Waker>,
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
    Wait(Ticket),
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
        Self {
            outside,
            pace: Pace { claim, announced: true },
            hand_off,
            keys: HashMap::new(),
            due: Schedule::new(),
            next_ticket: 0,
            owed: Vec::new(),
            wakers: Wakers::default(),
        }
    }

    /// Whether the store announces grants. That is known once the driver's channel is open, which the
    /// first contender opens.
    pub(crate) fn set_announced(&mut self, announced: bool) {
        self.pace.announced = announced;
        for contender in self.keys.values_mut().filter_map(|queue| queue.contender.as_mut()) {
            contender.set_announced(announced);
        }
    }

    /// A caller wants `key`.
    pub(crate) fn enter(
        &mut self,
        key: &Arc<str>,
        lease: Duration,
        may_wait: bool,
        max_waiters: usize,
    ) -> Entry {
        let ticket = self.next_ticket;
        let Some(queue) = self.keys.get_mut(key) else {
            self.next_ticket += 1;
            self.keys.insert(Arc::clone(key), Queue::tried());
            return Entry::Try(ticket);
        };
        if !may_wait {
            if queue.is_busy() {
                return Entry::Busy;
            }
            // Who is here does not look any more, is about to leave, or tries, too: what that one will
            // find, a lock or a store that is down, nobody knows yet.
            queue.trying += 1;
            self.next_ticket += 1;
            return Entry::Try(ticket);
        }
        if queue.waiters.len() >= max_waiters {
            return Entry::Full;
        }
        self.next_ticket += 1;
        queue.waiters.insert(ticket, Waiter::new(lease));
        self.touch(key);
        Entry::Wait(ticket)
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
        let Some(queue) = self.keys.get_mut(key) else { return false };
        queue.trying -= 1;
        if let Some(holder) = holder {
            queue.note_owner(&holder, self.outside.now());
        }
        queue.waiters.insert(ticket, Waiter::new(lease));
        let adopted = queue.contender.as_ref().is_none_or(Contender::has_sent_nothing);
        if adopted {
            let pace = self.pace;
            queue.contender = Some(match unknown {
                Some((until, trouble)) => Contender::after_unknown(owner, until, pace, trouble),
                None => Contender::new(owner, Timestamp::NOW, pace),
            });
        }
        self.touch(key);
        adopted
    }

    /// The direct try is over, with `granted` its owner's.
    pub(crate) fn tried(&mut self, key: &Arc<str>, granted: Option<Arc<str>>) {
        if let Some(queue) = self.keys.get_mut(key) {
            queue.trying -= 1;
            // One that gave the try time starts by what is known now.
            queue.contender.take_if(|contender| contender.has_sent_nothing());
            if let Some(owner) = granted {
                let now = self.outside.now();
                queue.note_owner(&owner, now);
                queue.add_hold(owner, Turn::begin(now));
            }
        }
        self.touch(key);
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
        if let Some(verdict) = queue.waiters.get_mut(&ticket).and_then(|w| w.verdict.take()) {
            self.leave(key, ticket);
            return Poll::Ready(Err(verdict));
        }
        let Some(waiter) = queue.waiters.get_mut(&ticket) else { return Poll::Pending };
        let woke_up = std::mem::take(&mut waiter.asleep);
        if !waiter.waker.as_ref().is_some_and(|known| known.will_wake(waker)) {
            self.wakers.spent.extend(waiter.waker.replace(waker.clone()));
        }
        let now = self.outside.now();
        if queue.awake().next() == Some(ticket)
            && let Some(Offer { owner, granted, turn, .. }) =
                queue.offer.take_if(|offer| offer.stands(now))
        {
            queue.note_owner(&owner, now);
            queue.add_hold(Arc::clone(&owner), turn);
            self.wakers.spend(queue.waiters.remove(&ticket));
            self.touch(key);
            return Poll::Ready(Ok((Lock { key: Arc::clone(key), owner }, granted)));
        }
        if woke_up {
            self.touch(key);
        }
        Poll::Pending
    }

    /// A waiter goes away.
    pub(crate) fn leave(&mut self, key: &Arc<str>, ticket: Ticket) {
        if let Some(queue) = self.keys.get_mut(key) {
            self.wakers.spend(queue.waiters.remove(&ticket));
        }
        self.wake_for_offer(key);
        self.touch(key);
    }

    /// A hold of this process is released, or lost: then it is in nobody's way any more, even if the
    /// code that had it is still at work.
    pub(crate) fn hold_ended(&mut self, lock: &Lock) {
        if let Some(queue) = self.keys.get_mut(&lock.key)
            && queue.remove_hold(&lock.owner).is_some()
        {
            queue.note_owner(&lock.owner, self.outside.now());
        }
        self.touch(&lock.key);
    }

    /// A valid hold of this process ends: passes the lock on to the next waiter here, without a
    /// command, if there is one and the process's turn is not over. Then it must not be released:
    /// what the store has under this owner is the next one's.
    pub(crate) fn pass_on(&mut self, lock: &Lock, granted: Granted) -> bool {
        let now = self.outside.now();
        let Some(queue) = self.keys.get_mut(&lock.key) else { return false };
        let heir = queue.awake().next().and_then(|ticket| queue.waiters.get(&ticket));
        // A TTL never gets shorter: who wants a shorter lease gets it from the store.
        let fits = heir.is_some_and(|heir| heir.lease >= granted.lease);
        if queue.offer.is_some() || !fits {
            return false;
        }
        let turn = queue.turn_of(&lock.owner).and_then(|turn| turn.pass(now, self.hand_off));
        let Some(turn) = turn else { return false };
        let owner = Arc::clone(&lock.owner);
        let offer = Offer::new(owner, granted, turn, now, self.pace.claim);
        if !offer.stands(now) {
            return false;
        }
        queue.remove_hold(&lock.owner);
        queue.note_owner(&lock.owner, now);
        queue.offer = Some(offer);
        self.wake_for_offer(&lock.key);
        self.touch(&lock.key);
        true
    }

    /// The store says, in a message or an answer, that `owner` has the lock by claim.
    pub(crate) fn granted(&mut self, key: &str, owner: &str) {
        self.tell(key, owner, Contender::announced);
    }

    /// The store says that the contender before `owner` has it for `claim`.
    pub(crate) fn next_in_line(&mut self, key: &str, owner: &str, claim: Duration) {
        let now = self.outside.now();
        self.tell(key, owner, |contender| contender.next_in_line(claim, now));
    }

    /// Messages may have been missed.
    pub(crate) fn interrupted(&mut self) {
        let now = self.outside.now();
        for (key, queue) in &mut self.keys {
            if let Some(contender) = &mut queue.contender {
                contender.interrupted(now, self.outside.roll());
                self.due.set(&mut queue.due, Arc::clone(key), Timestamp::NOW);
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
        commands.append(&mut self.owed);
        while let Some(key) = self.due.pop(now) {
            if let Some(queue) = self.keys.get_mut(&key) {
                queue.due = Timestamp::NEVER;
                self.step_key(&key, now, commands);
            }
        }
    }

    /// The driver died with its answers: nothing is under way any more.
    pub(crate) fn restart(&mut self) {
        let now = self.outside.now();
        for (key, queue) in &mut self.keys {
            if let Some(contender) = &mut queue.contender {
                contender.abandoned(now);
                self.due.set(&mut queue.due, Arc::clone(key), Timestamp::NOW);
            }
            // Who is polled now starts another driver.
            self.wakers
                .wake
                .extend(queue.waiters.values().filter_map(|waiter| waiter.waker.clone()));
        }
    }

    /// Nobody gets a lock any more.
    pub(crate) fn shut_down(&mut self) {
        for queue in self.keys.values_mut() {
            queue.refuse(&Verdict::ShutDown, &mut self.wakers);
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
        self.due.next()
    }

    pub(crate) fn take_wakers(&mut self) -> Wakers {
        std::mem::take(&mut self.wakers)
    }

    fn tell(&mut self, key: &str, owner: &str, what: impl FnOnce(&mut Contender)) {
        let Some((key, _)) = self.keys.get_key_value(key) else { return };
        let key = Arc::clone(key);
        let contender = self.keys.get_mut(&key).and_then(|queue| queue.contender.as_mut());
        // Late news of an owner that was given up needs nothing: its release is under way.
        if let Some(contender) = contender.filter(|contender| **contender.owner() == *owner) {
            what(contender);
            self.touch(&key);
        }
    }

    fn answered(
        &mut self,
        lock: &Lock,
        tell: impl FnOnce(&mut Contender, Timestamp, Chance) -> Result<Option<Granted>, StoreError>,
    ) {
        let (now, chance) = (self.outside.now(), self.outside.roll());
        let Some(queue) = self.keys.get_mut(&lock.key) else { return };
        let contender = queue.contender.as_mut();
        let Some(contender) = contender.filter(|contender| *contender.owner() == lock.owner) else {
            return;
        };
        match tell(contender, now, chance) {
            Ok(None) => {}
            Ok(Some(granted)) => {
                queue.contender = None;
                let (owner, turn) = (Arc::clone(&lock.owner), Turn::begin(now));
                let mut spare = Some(Offer::new(owner, granted, turn, now, self.pace.claim));
                // Of two grants the one that reaches further is true: an answer may be late. The
                // other one is given back all the same, in case that it still stands in the store.
                if queue
                    .offer
                    .as_ref()
                    .is_none_or(|offer| offer.granted.deadline() <= granted.deadline())
                {
                    queue.note_owner(&lock.owner, now);
                    std::mem::swap(&mut queue.offer, &mut spare);
                }
                self.owed.extend(spare.map(|spare| spare.give_back(&lock.key, now)));
            }
            Err(failure) => queue.refuse(&Verdict::Store(failure), &mut self.wakers),
        }
        self.wake_for_offer(&lock.key);
        self.touch(&lock.key);
    }

    /// Wakes the waiter to whom the lock is on offer, if it is.
    fn wake_for_offer(&mut self, key: &Arc<str>) {
        let waker = self.keys.get(key).and_then(Queue::offered_to);
        self.wakers.wake.extend(waker);
    }

    /// Something changed for `key`: the driver looks at it, or it is forgotten.
    fn touch(&mut self, key: &Arc<str>) {
        let Some(queue) = self.keys.get_mut(key) else { return };
        if queue.contender.is_none() && queue.wanted().is_some() {
            let owner = self.outside.new_owner();
            let start_at = if queue.trying > 0 {
                // Its answer is near, unless nobody polls the caller any more.
                self.outside.now() + PATIENCE_WITH_A_TRY
            } else if queue.is_held() {
                // It is likely passed on before the store could answer.
                self.outside.now() + PATIENCE
            } else {
                Timestamp::NOW
            };
            queue.contender = Some(Contender::new(owner, start_at, self.pace));
        }
        if queue.contender.is_some() || queue.offer.is_some() {
            self.due.set(&mut queue.due, Arc::clone(key), Timestamp::NOW);
        } else if queue.is_idle() {
            self.due.set(&mut queue.due, Arc::clone(key), Timestamp::NEVER);
            self.keys.remove(key);
        }
    }

    fn step_key(&mut self, key: &Arc<str>, now: Timestamp, commands: &mut Vec<Command>) {
        let offer_until = self.step_offer(key, now, commands);
        let Some(queue) = self.keys.get_mut(key) else { return };
        let wanted = queue.wanted().map(|waiter| waiter.lease);
        let mut until = offer_until;
        if let Some(contender) = &mut queue.contender {
            let lock = Lock { key: Arc::clone(key), owner: Arc::clone(contender.owner()) };
            match contender.step(now, wanted) {
                Step::Contend(lease) => commands.push(Command::Contend { lock, lease }),
                Step::Confirm(lease) => commands.push(Command::Confirm { lock, lease }),
                Step::GiveUp(traces) => {
                    let lease = contender.lease();
                    queue.contender = None;
                    commands.push(Command::GiveUp { lock, lease, traces });
                    return self.touch(key);
                }
                Step::Wait(contender_until) => until = until.min(contender_until),
            }
        }
        self.due.set(&mut queue.due, Arc::clone(key), until);
    }

    /// Passes an offer on that was not taken in time, or gives the lock back. How long it stands.
    fn step_offer(
        &mut self,
        key: &Arc<str>,
        now: Timestamp,
        commands: &mut Vec<Command>,
    ) -> Timestamp {
        let Some(queue) = self.keys.get_mut(key) else { return Timestamp::NEVER };
        let head = queue.awake().next();
        let Some(offer) = &mut queue.offer else { return Timestamp::NEVER };
        if head.is_some() && offer.stands(now) {
            return offer.until();
        }
        if let Some(waiter) = head.and_then(|head| queue.waiters.get_mut(&head)) {
            waiter.asleep = true;
            // It may have been polled just after its time: then it comes again, and is awake.
            self.wakers.wake.extend(waiter.waker.clone());
        }
        let renewed = offer.renew(now, self.pace.claim);
        let until = offer.until();
        if renewed && queue.awake().next().is_some() {
            self.wake_for_offer(key);
            return until;
        }
        commands.extend(queue.offer.take().map(|offer| offer.give_back(key, now)));
        self.touch(key);
        Timestamp::NEVER
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

impl Wakers {
    /// Wakes and drops what was collected.
    pub(crate) fn wake(self) {
        self.wake.into_iter().for_each(Waker::wake);
    }

    fn spend(&mut self, waiter: Option<Waiter>) {
        self.spent.extend(waiter.and_then(|waiter| waiter.waker));
    }
}

/// How long a waiter counts on a hold of its own process before the contender asks the store for a
/// place.
const PATIENCE: Duration = Duration::from_millis(1);

/// The same while a caller of its own process tries: a round trip on a usual network.
const PATIENCE_WITH_A_TRY: Duration = Duration::from_millis(50);
