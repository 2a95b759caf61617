//! The callers of this process that wait for a lock, per key in the order in which they came.
//!
//! A key stands in here while somebody of this process tries, holds or awaits it, and no longer. The
//! first caller tries the store directly; whoever comes while the key is busy queues here without a
//! command, and one contender asks the store for all of them.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use crate::backend::{Contended, Lock, Renewed, StoreError, StoreResult};
use crate::backoff::Chance;
use crate::clock::Timestamp;
use crate::instance::Instance;
use crate::protocol::contender::{Contender, Granted, Pace, Step, Traces};
use crate::schedule::Schedule;

/// A caller's place in the local order: lower came earlier.
pub(crate) type Ticket = u64;

/// All keys that callers of this process try, hold or await.
#[derive(Debug)]
pub(crate) struct Waiting {
    instance: Instance,
    pace: Pace,
    keys: HashMap<Arc<str>, Queue>,
    due: Schedule<Arc<str>>,
    next_ticket: Ticket,
    wakers: Wakers,
}

/// Wakers to call, and to drop, once the mutex around this is let go: both may run code of the
/// user's.
#[derive(Debug, Default)]
pub(crate) struct Wakers {
    wake: Vec<Waker>,
    spent: Vec<Waker>,
}

#[derive(Debug)]
struct Queue {
    /// Whether a caller tries the store directly; nobody else does meanwhile.
    trying: bool,
    /// The owners of this process's holds; a second one only while a lost one is still at work.
    holds: Vec<Arc<str>>,
    waiters: BTreeMap<Ticket, Waiter>,
    contender: Option<Contender>,
    due: Timestamp,
}

#[derive(Debug)]
struct Waiter {
    lease: Duration,
    waker: Option<Waker>,
    /// It did not take an offer in time: it gets none until it is polled again.
    asleep: bool,
    verdict: Option<Verdict>,
}

/// Why a waiter gets no lock.
#[derive(Clone, Debug)]
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
#[derive(Debug)]
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

impl Waiting {
    pub(crate) fn new(instance: Instance, claim: Duration) -> Self {
        Self {
            instance,
            pace: Pace { claim, announced: true },
            keys: HashMap::new(),
            due: Schedule::new(),
            next_ticket: 0,
            wakers: Wakers::default(),
        }
    }

    /// Whether the store announces grants.
    pub(crate) fn set_announced(&mut self, announced: bool) {
        self.pace.announced = announced;
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
            self.keys.insert(Arc::clone(key), Queue { trying: true, ..Queue::new() });
            return Entry::Try(ticket);
        };
        if !may_wait {
            return Entry::Busy;
        }
        if queue.waiters.len() >= max_waiters {
            return Entry::Full;
        }
        self.next_ticket += 1;
        queue.waiters.insert(ticket, Waiter::new(lease));
        self.touch(key);
        Entry::Wait(ticket)
    }

    /// The caller that tried directly goes on as a waiter; `unknown` if its command for `owner` got
    /// no answer.
    pub(crate) fn queue_up(
        &mut self,
        key: &Arc<str>,
        ticket: Ticket,
        lease: Duration,
        owner: Arc<str>,
        unknown: Option<StoreError>,
    ) {
        let Some(queue) = self.keys.get_mut(key) else { return };
        queue.trying = false;
        queue.waiters.insert(ticket, Waiter::new(lease));
        queue.contender = Some(match unknown {
            Some(trouble) => Contender::after_unknown(owner, lease, self.pace, trouble),
            None => Contender::new(owner, self.pace),
        });
        self.touch(key);
    }

    /// The direct try is over, with `granted` its owner's.
    pub(crate) fn tried(&mut self, key: &Arc<str>, granted: Option<Arc<str>>) {
        if let Some(queue) = self.keys.get_mut(key) {
            queue.trying = false;
            queue.holds.extend(granted);
        }
        self.touch(key);
    }

    /// A waiter looks for its lock. Ready once, after which it is no waiter any more.
    pub(crate) fn poll(
        &mut self,
        key: &Arc<str>,
        ticket: Ticket,
        waker: &Waker,
        now: Timestamp,
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
        if queue.first_awake() == Some(ticket)
            && let Some(contender) = &queue.contender
            && let Some(granted) = contender.take(now)
        {
            let owner = Arc::clone(contender.owner());
            queue.contender = None;
            queue.holds.push(Arc::clone(&owner));
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

    /// A hold of this process is over.
    pub(crate) fn hold_ended(&mut self, lock: &Lock) {
        if let Some(queue) = self.keys.get_mut(&lock.key) {
            queue.holds.retain(|owner| *owner != lock.owner);
        }
        self.touch(&lock.key);
    }

    /// The store says, in a message or an answer, that `owner` has the lock by claim.
    pub(crate) fn granted(&mut self, key: &str, owner: &str) {
        self.tell(key, owner, Contender::announced);
    }

    /// The store says that the contender before `owner` has it for `claim`.
    pub(crate) fn next_in_line(&mut self, key: &str, owner: &str, claim: Duration, now: Timestamp) {
        self.tell(key, owner, |contender| contender.next_in_line(claim, now));
    }

    /// Messages may have been missed.
    pub(crate) fn interrupted(&mut self, now: Timestamp) {
        for (key, queue) in &mut self.keys {
            if let Some(contender) = &mut queue.contender {
                contender.interrupted(now, Chance::roll());
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
        now: Timestamp,
    ) {
        self.answered(lock, |contender| contender.contended(reply, granted, now, Chance::roll()));
    }

    /// The store answered a [`Command::Confirm`].
    pub(crate) fn confirmed(
        &mut self,
        lock: &Lock,
        reply: StoreResult<Renewed>,
        granted: Granted,
        now: Timestamp,
    ) {
        self.answered(lock, |contender| contender.confirmed(reply, granted, now, Chance::roll()));
    }

    /// What the contenders want done at `now`.
    pub(crate) fn step(&mut self, now: Timestamp, commands: &mut Vec<Command>) {
        while let Some(key) = self.due.pop(now) {
            if let Some(queue) = self.keys.get_mut(&key) {
                queue.due = Timestamp::NEVER;
                self.step_key(&key, now, commands);
            }
        }
    }

    /// The driver died with its answers: nothing is under way any more.
    pub(crate) fn restart(&mut self) {
        for (key, queue) in &mut self.keys {
            if let Some(contender) = &mut queue.contender {
                contender.abandoned();
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

    /// What is known of `key`.
    pub(crate) fn report(&self, key: &Arc<str>) -> Report {
        let Some(queue) = self.keys.get(key) else { return Report::default() };
        let contender = queue.contender.as_ref();
        let holder = contender.and_then(Contender::holder);
        Report {
            owner: holder.map(|holder| &holder.owner).or_else(|| queue.holds.last()).cloned(),
            expected_end: holder.map(|holder| holder.expected_end),
            trouble: contender.and_then(Contender::trouble).cloned(),
            held_here: !queue.holds.is_empty(),
        }
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
        tell: impl FnOnce(&mut Contender) -> Result<(), StoreError>,
    ) {
        let Some(queue) = self.keys.get_mut(&lock.key) else { return };
        let Some(contender) = &mut queue.contender else { return };
        if contender.owner() != &lock.owner {
            return;
        }
        if let Err(failure) = tell(contender) {
            queue.refuse(&Verdict::Store(failure), &mut self.wakers);
        }
        self.wake_for_offer(&lock.key);
        self.touch(&lock.key);
    }

    /// Wakes the waiter to whom the lock is on offer, if it is.
    fn wake_for_offer(&mut self, key: &Arc<str>) {
        let Some(queue) = self.keys.get(key) else { return };
        if queue.contender.as_ref().is_some_and(Contender::is_offering)
            && let Some(ticket) = queue.first_awake()
            && let Some(waker) = &queue.waiters[&ticket].waker
        {
            self.wakers.wake.push(waker.clone());
        }
    }

    /// Something changed for `key`: the driver looks at it, or it is forgotten.
    fn touch(&mut self, key: &Arc<str>) {
        let Some(queue) = self.keys.get_mut(key) else { return };
        if queue.contender.is_none() && !queue.trying && queue.first_awake().is_some() {
            queue.contender = Some(Contender::new(self.instance.new_owner(), self.pace));
        }
        if queue.contender.is_some() {
            self.due.set(&mut queue.due, Arc::clone(key), Timestamp::NOW);
        } else if queue.is_idle() {
            self.due.set(&mut queue.due, Arc::clone(key), Timestamp::NEVER);
            self.keys.remove(key);
        }
    }

    fn step_key(&mut self, key: &Arc<str>, now: Timestamp, commands: &mut Vec<Command>) {
        loop {
            let Some(queue) = self.keys.get_mut(key) else { return };
            let head = queue.first_awake();
            let Some(contender) = &mut queue.contender else { return };
            let lock = Lock { key: Arc::clone(key), owner: Arc::clone(contender.owner()) };
            let lease = head.map(|ticket| queue.waiters[&ticket].lease);
            match contender.step(now, lease) {
                Step::Contend(lease) => commands.push(Command::Contend { lock, lease }),
                Step::Confirm(lease) => commands.push(Command::Confirm { lock, lease }),
                Step::GiveUp(traces) => {
                    let lease = contender.lease();
                    queue.contender = None;
                    self.touch(key);
                    commands.push(Command::GiveUp { lock, lease, traces });
                }
                Step::PassOn => {
                    if let Some(waiter) = head.and_then(|head| queue.waiters.get_mut(&head)) {
                        waiter.asleep = true;
                    }
                    contender.offer_again(now);
                    self.wake_for_offer(key);
                    continue;
                }
                Step::Wait(until) => self.due.set(&mut queue.due, Arc::clone(key), until),
            }
            return;
        }
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

impl Queue {
    const fn new() -> Self {
        Self {
            trying: false,
            holds: Vec::new(),
            waiters: BTreeMap::new(),
            contender: None,
            due: Timestamp::NEVER,
        }
    }

    fn is_idle(&self) -> bool {
        !self.trying && self.holds.is_empty() && self.waiters.is_empty() && self.contender.is_none()
    }

    fn first_awake(&self) -> Option<Ticket> {
        let is_awake = |waiter: &Waiter| !waiter.asleep && waiter.verdict.is_none();
        self.waiters.iter().find(|(_, waiter)| is_awake(waiter)).map(|(ticket, _)| *ticket)
    }

    fn refuse(&mut self, verdict: &Verdict, wakers: &mut Wakers) {
        for waiter in self.waiters.values_mut() {
            waiter.verdict = Some(verdict.clone());
            wakers.wake.extend(waiter.waker.clone());
        }
    }
}

impl Waiter {
    const fn new(lease: Duration) -> Self {
        Self { lease, waker: None, asleep: false, verdict: None }
    }
}
