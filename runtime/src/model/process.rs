//! A process: its callers, their queue, its driver, and its line to the store.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::bounds::{Bounds, CLAIM, HAND_OFF};
use super::caller::{Attention, Caller};
use super::line::{Answer, Ask, Channel, Line, Reply, Request, Sender, Way};
use super::rules::Breach;
use super::surroundings::{self, News, Script};
use super::{KEY, chance, silence};
use crate::backend::{Lock, Renewed};
use crate::backlog::{Backlog, Release};
use crate::clock::Timestamp;
use crate::options::Release as ReleaseMode;
use crate::protocol::hold::{Granted, Step};
use crate::wait::{Command, Waiting};

#[derive(Clone, Debug, Hash)]
pub(super) struct Process {
    pub(super) index: usize,
    pub(super) life: Life,
    pub(super) callers: Vec<Caller>,
    pub(super) waiting: Waiting<Script>,
    pub(super) backlog: Backlog<Channel>,
    pub(super) line: Line,
    pub(super) body: Duration,
    pub(super) release: ReleaseMode,
    /// Owners that must not be used any more: a release was sent for them, or is owed.
    given_up: BTreeSet<Arc<str>>,
    pub(super) breach: Option<Breach>,
    /// Whether a lock went from one waiter here to the next.
    pub(super) passed_on: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Life {
    Dead,
    /// Nothing of it runs, at the latest until then.
    Frozen(Timestamp),
    Running,
}

impl Process {
    pub(super) fn new(index: usize, bounds: &Bounds) -> Self {
        Self {
            index,
            life: Life::Running,
            callers: vec![Caller::Away; bounds.callers[index]],
            waiting: Waiting::new(Script::new(index), CLAIM, HAND_OFF),
            backlog: Backlog::new(),
            line: Line::default(),
            body: bounds.body,
            release: bounds.release,
            given_up: BTreeSet::new(),
            breach: None,
            passed_on: false,
        }
    }

    pub(super) fn is_running(&self) -> bool {
        self.life == Life::Running
    }

    pub(super) fn now(&self) -> Timestamp {
        self.waiting.outside().now
    }

    pub(super) fn set_now(&mut self, now: Timestamp) {
        self.waiting.outside_mut().now = now;
    }

    /// Dies with all that it knows.
    pub(super) fn die(&mut self, bounds: &Bounds) {
        let line = std::mem::take(&mut self.line);
        *self = Self::new(self.index, bounds);
        self.life = Life::Dead;
        self.callers.fill(Caller::Gone);
        // What was sent still takes effect.
        self.line = Line { answers: Vec::new(), news: Vec::new(), ..line };
    }

    /// One turn of the driver: sends what is due.
    pub(super) fn drive(&mut self) {
        let now = self.now();
        self.watch(now);
        let (mut commands, mut errands) = (Vec::new(), Vec::new());
        self.waiting.step(now, &mut commands);
        self.backlog.step(now, &mut errands);
        commands.into_iter().for_each(|command| self.carry_out(command));
        for errand in errands {
            let from = Sender::Backlog(errand.id);
            match errand.channel {
                None => self.send(Way::Driver, from, errand.lock, Ask::Release),
                Some(open) if open == self.line.channel => {
                    self.send(Way::Callers, from, errand.lock, Ask::Release);
                }
                Some(_) => self.backlog.answered(errand.id, &Err(silence()), now, chance()),
            }
        }
    }

    /// Takes the driver's turns that are due.
    pub(super) fn drive_now(&mut self) {
        while self.is_running() && self.next_due() <= self.now() {
            self.drive();
            self.note_woken();
        }
    }

    /// When the driver looks next.
    pub(super) fn next_due(&self) -> Timestamp {
        let watched = self.holdings().filter(|holding| holding.watched);
        let due = watched.map(|holding| match holding.hold.clone().step(self.now()) {
            Step::Wait(until) => until,
            Step::End(_) | Step::Renew(_) => Timestamp::NOW,
        });
        due.min()
            .unwrap_or(Timestamp::NEVER)
            .min(self.waiting.next_due())
            .min(self.backlog.next_due())
    }

    /// An answer arrives.
    pub(super) fn hear_answer(&mut self, answer: Answer) {
        let Answer { request: Request { from, lock, ask, sent_at, .. }, reply, .. } = answer;
        match from {
            Sender::Backlog(id) => {
                let released = match &reply {
                    Some(Reply::Released(released)) => Ok(released.clone()),
                    _ => Err(silence()),
                };
                self.backlog.answered(id, &released, self.now(), chance());
                self.note_release(reply.as_ref());
                self.try_again();
            }
            Sender::Contender => self.contender_answered(&lock, ask, sent_at, reply),
            Sender::Direct(caller) => self.tried(caller, reply.as_ref()),
            Sender::Parting(id) => {
                let released = match &reply {
                    Some(Reply::Released(released)) => Ok(released.clone()),
                    _ => Err(silence()),
                };
                self.backlog.answered_there(id, &released, self.now());
                self.note_release(reply.as_ref());
                self.try_again();
            }
            Sender::Leaving(caller) => self.leave(caller, reply.as_ref()),
            Sender::Settling(caller) => self.settled(caller, reply.as_ref(), sent_at),
            Sender::Watchdog(caller) => self.renewed(caller, ask, sent_at, reply.as_ref()),
        }
    }

    /// A message arrives.
    pub(super) fn hear_news(&mut self, news: &News) {
        match news.claim {
            None => self.waiting.granted(KEY, &news.owner),
            Some(claim) => self.waiting.next_in_line(KEY, &news.owner, claim),
        }
    }

    /// Notes who was woken by what was done just now.
    pub(super) fn note_woken(&mut self) {
        self.waiting.take_wakers().wake();
        for (caller, woken) in self.callers.iter_mut().zip(surroundings::take_woken()) {
            if let Caller::Waiting { attention: attention @ Attention::Asleep, .. } = caller
                && woken
            {
                *attention = Attention::Woken;
            }
        }
    }

    /// Sends a request.
    pub(super) fn send(&mut self, way: Way, from: Sender, lock: Lock, ask: Ask) {
        if ask != Ask::Release && self.given_up.contains(&lock.owner) {
            self.breach = Some(Breach::UsedAfterRelease);
        }
        let sent_at = self.now();
        let request = Request { from, lock, ask, sent_at, delay: None };
        self.line.ways[way as usize].push_back(request);
    }

    /// From now on the owner of `lock` must not be used.
    pub(super) fn give_up(&mut self, lock: &Lock) {
        self.given_up.insert(lock.owner.clone());
    }

    /// A hold begins.
    pub(super) fn note_hold(&mut self, lock: &Lock) {
        if self.given_up.contains(&lock.owner) {
            self.breach = Some(Breach::HeldAfterRelease);
        }
    }

    /// Whether somebody here will use the lock of `owner`, release it, or learn of it by an answer.
    pub(super) fn answers_for(&self, owner: &str) -> bool {
        let mut locks = self.callers.iter().filter_map(Caller::lock);
        locks.any(|lock| *lock.owner == *owner)
            || self.waiting.owners(KEY).iter().any(|known| **known == *owner)
            || self.backlog.owes(owner)
            || self.line.carries(owner)
    }

    pub(super) fn holdings(&self) -> impl Iterator<Item = &super::caller::Holding> {
        self.callers.iter().filter_map(|caller| match caller {
            Caller::Holding(holding) => Some(holding),
            _ => None,
        })
    }

    /// The watchdog's turn.
    fn watch(&mut self, now: Timestamp) {
        for at in 0..self.callers.len() {
            let Caller::Holding(holding) = &mut self.callers[at] else { continue };
            if !holding.watched {
                continue;
            }
            let lock = holding.lock.clone();
            match holding.hold.step(now) {
                Step::End(_) => {
                    holding.lose();
                    self.waiting.hold_ended(&lock);
                }
                Step::Renew(lease) => {
                    self.send(Way::Driver, Sender::Watchdog(at), lock, Ask::Renew(lease));
                }
                Step::Wait(_) => {}
            }
        }
    }

    /// The store answered a renewal of the watchdog, or did not.
    fn renewed(&mut self, caller: usize, ask: Ask, sent_at: Timestamp, reply: Option<&Reply>) {
        let (now, Ask::Renew(lease)) = (self.now(), ask) else { return };
        let Caller::Holding(holding) = &mut self.callers[caller] else { return };
        if !holding.watched {
            return;
        }
        match reply {
            Some(Reply::Renewed(Renewed::Renewed)) => holding.hold.renewed(sent_at, lease),
            Some(_) => {
                holding.lose();
                let lock = holding.lock.clone();
                self.waiting.hold_ended(&lock);
            }
            None => holding.hold.failed(now),
        }
    }

    fn contender_answered(
        &mut self,
        lock: &Lock,
        ask: Ask,
        sent_at: Timestamp,
        reply: Option<Reply>,
    ) {
        match (ask, reply) {
            (Ask::Contend(lease), Some(Reply::Contended(reply))) => {
                self.waiting.contended(lock, Ok(reply), Granted::new(sent_at, lease));
            }
            (Ask::Contend(lease), _) => {
                self.waiting.contended(lock, Err(silence()), Granted::new(sent_at, lease));
            }
            (Ask::Renew(lease), Some(Reply::Renewed(reply))) => {
                self.waiting.confirmed(lock, Ok(reply), Granted::new(sent_at, lease));
            }
            (Ask::Renew(lease), _) => {
                self.waiting.confirmed(lock, Err(silence()), Granted::new(sent_at, lease));
            }
            (Ask::Acquire(_) | Ask::Release, _) => unreachable!("a contender sends no such thing"),
        }
    }

    fn carry_out(&mut self, command: Command) {
        match command {
            Command::Confirm { lock, lease } => {
                self.send(Way::Driver, Sender::Contender, lock, Ask::Renew(lease));
            }
            Command::Contend { lock, lease } => {
                self.send(Way::Driver, Sender::Contender, lock, Ask::Contend(lease));
            }
            Command::GiveUp { lock, lease, traces } => {
                self.give_up(&lock);
                if let Some(release) = Release::of_traces(lock, lease, traces, self.now()) {
                    self.backlog.add(release);
                }
            }
        }
    }
}
