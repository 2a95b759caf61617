//! A caller, from its coming to its going, as `obtain` and `hold` carry it through.

use std::sync::Arc;

use super::bounds::LEASE;
use super::line::{Ask, Channel, Reply, Sender, Way};
use super::process::Process;
use super::{key, surroundings};
use crate::backend::{Acquired, Lock, Released, Renewed};
use crate::backlog::{Parting, Proof, Release};
use crate::clock::Timestamp;
use crate::options::Release as ReleaseMode;
use crate::protocol::hold::{Granted, Hold};
use crate::wait::{Entry, Ticket};

/// Where a caller is.
#[derive(Clone, Debug, Hash)]
pub(super) enum Caller {
    /// Not there yet.
    Away,
    /// Gone again, with or without having had the lock.
    Gone,
    Holding(Holding),
    /// Its body has ended, and the release was sent.
    Releasing {
        lock: Lock,
        granted: Granted,
        deadline: Timestamp,
        asked_at: Timestamp,
    },
    /// It has the lock, and renews it first.
    Settling {
        lock: Lock,
        granted: Granted,
    },
    /// It asks the store itself.
    Trying {
        ticket: Ticket,
        lock: Lock,
        sent_at: Timestamp,
        channel: Channel,
        /// Whom of its own process it met there, whose release is on its way.
        met: Option<Arc<str>>,
        tries: u8,
    },
    Waiting {
        ticket: Ticket,
        attention: Attention,
    },
}

/// Whether a waiting future is polled when it is woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Attention {
    Asleep,
    /// Never polled again, nor dropped.
    Stalled,
    Woken,
}

#[derive(Clone, Debug, Hash)]
pub(super) struct Holding {
    pub(super) lock: Lock,
    pub(super) hold: Hold,
    /// What it began with.
    granted: Granted,
    /// Whether the watchdog has it; not after it is lost.
    pub(super) watched: bool,
    lost: bool,
    pub(super) body_ends_by: Timestamp,
}

/// How a body ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// Its future is dropped, by the caller or at the loss of the lock.
    Dropped,
    Finished,
}

impl Caller {
    /// Whether it is to get the lock.
    pub(super) fn hopes(&self) -> bool {
        match self {
            Self::Trying { .. } | Self::Settling { .. } => true,
            Self::Waiting { attention, .. } => *attention != Attention::Stalled,
            Self::Away | Self::Gone | Self::Holding(_) | Self::Releasing { .. } => false,
        }
    }

    /// The owner under which it has the lock, or may have it.
    pub(super) fn lock(&self) -> Option<&Lock> {
        match self {
            Self::Away | Self::Gone | Self::Waiting { .. } => None,
            Self::Holding(Holding { lock, .. })
            | Self::Releasing { lock, .. }
            | Self::Settling { lock, .. }
            | Self::Trying { lock, .. } => Some(lock),
        }
    }
}

impl Holding {
    /// Whether its body may be polled.
    pub(super) fn is_valid(&self, now: Timestamp) -> bool {
        !self.lost && now < self.hold.deadline()
    }

    /// The watchdog found it lost.
    pub(super) fn lose(&mut self) {
        self.lost = true;
        self.watched = false;
    }
}

impl Process {
    /// A caller comes.
    pub(super) fn come(&mut self, at: usize) {
        match self.waiting.enter(&key(), LEASE, true, usize::MAX, surroundings::waker(at)) {
            Entry::Try(ticket) => {
                let owner = format!("{}/direct-{at}", self.index).into();
                let lock = Lock { key: key(), owner };
                let sent_at = self.now();
                let channel = self.line.channel;
                let (met, tries) = (None, 1);
                self.callers[at] =
                    Caller::Trying { ticket, lock: lock.clone(), sent_at, channel, met, tries };
                self.send(Way::Callers, Sender::Direct(at), lock, Ask::Acquire(LEASE));
            }
            Entry::Wait(ticket, _) => {
                self.callers[at] = Caller::Waiting { ticket, attention: Attention::Asleep };
            }
            Entry::Busy | Entry::Full => unreachable!("it waits, in a queue without bound"),
        }
    }

    /// A waiting caller is polled.
    pub(super) fn poll(&mut self, at: usize, ticket: Ticket) {
        match self.waiting.poll(&key(), ticket, surroundings::waker(at)) {
            std::task::Poll::Pending => {
                self.callers[at] = Caller::Waiting { ticket, attention: Attention::Asleep };
            }
            std::task::Poll::Ready(Ok((lock, granted))) => self.settle(at, lock, granted),
            std::task::Poll::Ready(Err(_)) => self.callers[at] = Caller::Gone,
        }
    }

    /// The store answered a direct try that was sent at `sent_at`, or did not.
    pub(super) fn tried(&mut self, at: usize, reply: Option<&Reply>) {
        let Caller::Trying { ticket, lock, sent_at, channel, tries, .. } = self.callers[at].clone()
        else {
            return;
        };
        if let Some(Reply::Acquired(Acquired::HeldBy(owner))) = reply
            && tries == 1
            && self.made(owner)
            && self.backlog.parting(owner, sent_at) != Parting::None
        {
            if let Caller::Trying { met, .. } = &mut self.callers[at] {
                *met = Some(owner.clone());
            }
            return self.try_again();
        }
        let granted = match reply {
            Some(Reply::Acquired(Acquired::Granted)) => Some(Granted::new(sent_at, LEASE)),
            Some(Reply::Acquired(Acquired::HeldBy(owner))) if *owner == lock.owner => {
                Some(Granted::new(Timestamp::NOW, LEASE))
            }
            _ => None,
        };
        if let Some(granted) = granted {
            self.waiting.tried(&key(), Some(lock.owner.clone()));
            return self.settle(at, lock, granted);
        }
        let holder = match reply {
            Some(Reply::Acquired(Acquired::HeldBy(owner))) => Some(owner.clone()),
            _ => None,
        };
        let until = self.now() + LEASE;
        let unknown = reply.is_none().then(|| (until, super::silence()));
        let owner = lock.owner.clone();
        let adopted = self.waiting.queue_up(&key(), ticket, LEASE, owner, (holder, unknown));
        if reply.is_none() && !adopted {
            self.give_up(&lock);
            self.backlog.add(Release { lock, proof: Proof::AnswerOn(channel), until });
        }
        self.poll(at, ticket);
    }

    /// Who met a lock of this process's, whose release is answered by now, asks the store once more.
    pub(super) fn try_again(&mut self) {
        let now = self.now();
        for at in 0..self.callers.len() {
            let Caller::Trying { lock, sent_at, met: met @ Some(_), tries, .. } =
                &mut self.callers[at]
            else {
                continue;
            };
            let parting = met.as_ref().map(|met| self.backlog.parting(met, *sent_at));
            if parting != Some(Parting::OnItsWay) {
                (*met, *sent_at, *tries) = (None, now, 2);
                let lock = lock.clone();
                self.send(Way::Callers, Sender::Direct(at), lock, Ask::Acquire(LEASE));
            }
        }
    }

    /// The store answered the renewal of a lock that came late.
    pub(super) fn settled(&mut self, at: usize, reply: Option<&Reply>, sent_at: Timestamp) {
        let Caller::Settling { lock, granted } = self.callers[at].clone() else { return };
        if reply != Some(&Reply::Renewed(Renewed::Renewed)) {
            return self.give_back(at, &lock, granted);
        }
        let granted = Granted { sent_at, lease: LEASE, ..granted };
        if granted.is_fresh(LEASE, self.now()) {
            self.begin(at, lock, granted);
        } else {
            self.give_back(at, &lock, granted);
        }
    }

    /// The body of a caller ends.
    pub(super) fn end(&mut self, at: usize, ending: Ending) {
        let Caller::Holding(holding) = self.callers[at].clone() else { return };
        let Holding { lock, hold, watched, granted, .. } = &holding;
        let valid = *watched && holding.is_valid(self.now());
        let deadline = hold.deadline();
        let granted = if *watched { hold.granted() } else { *granted };
        if valid && self.waiting.pass_on(lock, granted) {
            self.passed_on = true;
            self.callers[at] = Caller::Gone;
            return;
        }
        self.give_up(lock);
        let (lock, asked_at) = (lock.clone(), self.now());
        if valid && ending == Ending::Finished && self.release == ReleaseMode::Background {
            let release = Release::of_grant(lock.clone(), granted, asked_at);
            let until = release.until.max(deadline);
            let id = self.backlog.add_sent(Release { until, ..release }, asked_at);
            self.send(Way::Callers, Sender::Parting(id), lock.clone(), Ask::Release);
            self.waiting.hold_ended(&lock);
            self.callers[at] = Caller::Gone;
            return;
        }
        self.callers[at] = Caller::Releasing { lock: lock.clone(), granted, deadline, asked_at };
        match ending {
            Ending::Dropped => self.leave(at, None),
            Ending::Finished => {
                self.send(Way::Callers, Sender::Leaving(at), lock, Ask::Release);
            }
        }
    }

    /// What remained of a hold is dropped, with the answer to its release if there was one.
    pub(super) fn leave(&mut self, at: usize, reply: Option<&Reply>) {
        match std::mem::replace(&mut self.callers[at], Caller::Gone) {
            Caller::Releasing { lock, granted, deadline, asked_at } => {
                let settled = reply.is_some() && granted.uncertain_until <= asked_at;
                self.note_release(reply);
                self.waiting.hold_ended(&lock);
                if !settled {
                    let release = Release::of_grant(lock, granted, self.now());
                    let until = release.until.max(deadline);
                    self.backlog.add(Release { until, ..release });
                }
            }
            caller => self.callers[at] = caller,
        }
    }

    /// A caller is dropped, wherever it is.
    pub(super) fn drop_caller(&mut self, at: usize) {
        match self.callers[at].clone() {
            Caller::Away | Caller::Gone => {}
            Caller::Holding(_) => self.end(at, Ending::Dropped),
            Caller::Releasing { .. } => self.leave(at, None),
            Caller::Settling { lock, granted } => self.give_back(at, &lock, granted),
            Caller::Trying { lock, channel, .. } => {
                self.give_up(&lock);
                let until = self.now() + LEASE;
                self.backlog.add(Release { lock, proof: Proof::AnswerOn(channel), until });
                self.waiting.tried(&key(), None);
                self.callers[at] = Caller::Gone;
            }
            Caller::Waiting { ticket, .. } => {
                self.waiting.leave(&key(), ticket);
                self.callers[at] = Caller::Gone;
            }
        }
    }

    /// A release that granted the lock to our own contender tells it here, before the message does.
    pub(super) fn note_release(&mut self, reply: Option<&Reply>) {
        if let Some(Reply::Released(Released::Granted { owner })) = reply {
            self.waiting.granted(super::KEY, owner);
        }
    }

    /// Makes a lock that is ours a hold, or renews it first.
    fn settle(&mut self, at: usize, lock: Lock, granted: Granted) {
        if granted.is_fresh(LEASE, self.now()) {
            return self.begin(at, lock, granted);
        }
        self.callers[at] = Caller::Settling { lock: lock.clone(), granted };
        self.send(Way::Callers, Sender::Settling(at), lock, Ask::Renew(LEASE));
    }

    fn begin(&mut self, at: usize, lock: Lock, granted: Granted) {
        let now = self.now();
        self.note_hold(&lock);
        self.callers[at] = Caller::Holding(Holding {
            lock,
            hold: Hold::new(granted, now, None),
            granted,
            watched: true,
            lost: false,
            body_ends_by: now + self.body,
        });
    }

    /// Gives a lock back that never became a hold.
    fn give_back(&mut self, at: usize, lock: &Lock, granted: Granted) {
        self.give_up(lock);
        self.backlog.add(Release::of_grant(lock.clone(), granted, self.now()));
        self.waiting.hold_ended(lock);
        self.callers[at] = Caller::Gone;
    }
}
