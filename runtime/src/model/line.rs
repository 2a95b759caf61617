//! What is under way between one process and the store.
//!
//! As on a connection, requests of one way take effect in their order. A message that is not marked
//! as late arrives before time goes on.

use std::collections::VecDeque;
use std::time::Duration;

use super::surroundings::News;
use crate::backend::{Acquired, Contended, Lock, Released, Renewed};
use crate::backlog::ReleaseId;
use crate::clock::Timestamp;

/// The messages of one process.
#[derive(Clone, Debug, Default, Hash)]
pub(super) struct Line {
    /// The requests of each [`Way`], first come first.
    pub(super) ways: [VecDeque<Request>; 2],
    /// The channel that is open for [`Way::Callers`].
    pub(super) channel: Channel,
    /// Requests that nobody waits for any more, and that take effect at any time.
    pub(super) strays: Vec<Request>,
    pub(super) answers: Vec<Answer>,
    pub(super) news: Vec<(News, Delay)>,
}

/// Which connection a request goes by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Way {
    Callers = 0,
    Driver = 1,
}

/// Tells a channel from the one that was opened when it was lost.
pub(super) type Channel = u8;

/// Until when a late message arrives; none for one that is in time.
pub(super) type Delay = Option<Timestamp>;

#[derive(Clone, Debug, Hash)]
pub(super) struct Request {
    pub(super) from: Sender,
    pub(super) lock: Lock,
    pub(super) ask: Ask,
    pub(super) sent_at: Timestamp,
    pub(super) delay: Delay,
}

#[derive(Clone, Debug, Hash)]
pub(super) struct Answer {
    pub(super) request: Request,
    /// What the store said; nothing if the sender gave up waiting for it.
    pub(super) reply: Option<Reply>,
    pub(super) delay: Delay,
}

/// Who sent a request, and gets the answer. Callers by their number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Sender {
    Backlog(ReleaseId),
    Contender,
    /// A caller's direct try.
    Direct(usize),
    /// A caller that leaves.
    Leaving(usize),
    /// A caller that left, and does not wait.
    Parting(ReleaseId),
    /// A caller that got the lock late, and renews it before its body begins.
    Settling(usize),
    /// The watchdog, for a caller that holds the lock.
    Watchdog(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Ask {
    Acquire(Duration),
    Contend(Duration),
    Release,
    Renew(Duration),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Reply {
    Acquired(Acquired),
    Contended(Contended),
    Released(Released),
    Renewed(Renewed),
}

impl Line {
    /// Whether anything must arrive before time goes on; of what goes to the process only if it
    /// `listens`.
    pub(super) fn is_urgent(&self, listens: bool) -> bool {
        let head = |way: &VecDeque<Request>| way.front().is_some_and(|head| head.delay.is_none());
        self.ways.iter().any(head)
            || listens && self.answers.iter().any(|answer| answer.delay.is_none())
            || listens && self.news.iter().any(|(_, delay)| delay.is_none())
    }

    /// Whether nothing is under way.
    pub(super) fn is_idle(&self) -> bool {
        self.ways.iter().all(VecDeque::is_empty)
            && self.strays.is_empty()
            && self.answers.is_empty()
            && self.news.is_empty()
    }

    /// The delays of what is late.
    pub(super) fn delays(&self, listens: bool) -> impl Iterator<Item = Timestamp> {
        let heads = self.ways.iter().filter_map(VecDeque::front).chain(&self.strays);
        let requests = heads.filter_map(|request| request.delay);
        let answers = self.answers.iter().filter_map(|answer| answer.delay);
        let news = self.news.iter().filter_map(|(_, delay)| *delay);
        requests.chain(answers.chain(news).filter(move |_| listens))
    }

    /// Whether a request of `owner` is under way, or the answer to one.
    pub(super) fn carries(&self, owner: &str) -> bool {
        let requests = self.ways.iter().flatten().chain(&self.strays);
        let answered = self.answers.iter().map(|answer| &answer.request);
        requests.chain(answered).any(|request| *request.lock.owner == *owner)
    }
}
