//! One key as this process sees it: who tries, holds and awaits it.

use std::sync::Arc;
use std::task::Waker;

use super::line::{Line, Standing, Waiter};
use super::{Report, Verdict, Wakers};
use crate::clock::Timestamp;
use crate::protocol::contender::Contender;
use crate::protocol::offer::{Offer, Turn};

/// A key that somebody of this process tries, holds or awaits.
#[derive(Clone, Debug, Hash)]
pub(super) struct Queue {
    /// How many callers try the store directly; a contender gives them some time.
    pub(super) trying: usize,
    /// This process's latest hold.
    hold: Option<Held>,
    pub(super) waiters: Line,
    /// The lock, between its grant and its taking. Boxed like the contender: most keys have none, and
    /// a process may hold very many.
    pub(super) offer: Option<Box<Offer>>,
    pub(super) contender: Option<Box<Contender>>,
    /// Who had the lock when that was last known here, and when: what a caller is told whose time runs
    /// out between two holds, or before the contender knows.
    seen: Option<(Arc<str>, Timestamp)>,
    pub(super) due: Timestamp,
}

#[derive(Clone, Debug, Hash)]
struct Held {
    owner: Arc<str>,
    turn: Turn,
    /// Another one, in the moment in which a loss is found out.
    earlier: Option<Box<Self>>,
}

impl Queue {
    /// A key that one caller tries.
    pub(super) const fn tried() -> Self {
        Self {
            trying: 1,
            hold: None,
            waiters: Line::new(),
            offer: None,
            contender: None,
            seen: None,
            due: Timestamp::NEVER,
        }
    }

    /// Notes that `owner` has the lock at `now`.
    pub(super) fn note_owner(&mut self, owner: &Arc<str>, now: Timestamp) {
        match &mut self.seen {
            Some((seen, at)) if Arc::ptr_eq(seen, owner) => *at = now,
            seen => *seen = Some((Arc::clone(owner), now)),
        }
    }

    pub(super) fn add_hold(&mut self, owner: Arc<str>, turn: Turn) {
        let earlier = self.hold.take().map(Box::new);
        self.hold = Some(Held { owner, turn, earlier });
    }

    /// Removes a hold. False if there is none of `owner`.
    pub(super) fn remove_hold(&mut self, owner: &str) -> bool {
        if let Some(held) = self.hold.take_if(|held| *held.owner == *owner) {
            self.hold = held.earlier.map(|earlier| *earlier);
            return true;
        }
        let mut next = self.hold.as_mut();
        while let Some(held) = next {
            if let Some(found) = held.earlier.take_if(|earlier| *earlier.owner == *owner) {
                held.earlier = found.earlier;
                return true;
            }
            next = held.earlier.as_deref_mut();
        }
        false
    }

    /// The turn of a hold.
    pub(super) fn turn_of(&self, owner: &str) -> Option<Turn> {
        self.holds().find(|held| *held.owner == *owner).map(|held| held.turn)
    }

    #[cfg(test)]
    pub(super) fn held_by(&self) -> impl Iterator<Item = &Arc<str>> {
        self.holds().map(|held| &held.owner)
    }

    pub(super) fn is_held(&self) -> bool {
        self.hold.is_some()
    }

    /// The latest first.
    fn holds(&self) -> impl Iterator<Item = &Held> {
        std::iter::successors(self.hold.as_ref(), |held| held.earlier.as_deref())
    }

    /// Whether nothing is in the store, or on its way there, for anybody here.
    pub(super) fn is_quiet(&self) -> bool {
        self.trying == 0 && !self.is_held() && self.offer.is_none() && self.contender.is_none()
    }

    pub(super) fn is_idle(&self) -> bool {
        self.is_quiet() && self.waiters.is_empty()
    }

    /// Whether somebody is at work on the key, and not merely about to leave or no longer polled.
    pub(super) fn is_busy(&self) -> bool {
        self.is_held() || self.offer.is_some() || self.waiters.awake().next().is_some()
    }

    /// The waiter for whom the contender contends: the first one without an offer.
    pub(super) fn wanted(&self) -> Option<&Waiter> {
        self.waiters.awake().nth(usize::from(self.offer.is_some()))
    }

    /// When the driver has something to do for the offer, or for the contender if it is `wanted`.
    pub(super) fn next_step(&self, wanted: bool) -> Timestamp {
        let contender = self.contender.as_ref();
        let contender = contender.map_or(Timestamp::NEVER, |it| it.next_step(wanted));
        let offer = self.offer.as_ref().map_or(Timestamp::NEVER, |offer| {
            if self.waiters.awake().next().is_some() { offer.until() } else { Timestamp::NOW }
        });
        contender.min(offer)
    }

    /// The waker of the waiter to whom the lock is on offer, if it is and does not know yet.
    pub(super) fn offered_to(&mut self) -> Option<Waker> {
        self.offer.as_ref()?;
        self.waiters.head()?.waker.take()
    }

    /// Refuses everybody who waits.
    pub(super) fn refuse(&mut self, verdict: Verdict, wakers: &mut Wakers) {
        let verdict = Arc::new(verdict);
        for waiter in self.waiters.iter_mut() {
            waiter.standing = Standing::Refused(Arc::clone(&verdict));
            wakers.wake.extend(waiter.waker.take());
        }
    }

    /// What is known to a caller that came at `since`.
    pub(super) fn report(&self, since: Timestamp) -> Report {
        let contender = self.contender.as_deref();
        let holder = contender.and_then(Contender::holder);
        let last = || self.seen.as_ref().filter(|(_, at)| *at >= since).map(|(owner, _)| owner);
        let ours = || self.holds().next().map(|held| &held.owner).or_else(last);
        Report {
            owner: holder.map(|holder| &holder.owner).or_else(ours).cloned(),
            expected_end: holder.map(|holder| holder.expected_end),
            trouble: contender.and_then(Contender::trouble).cloned(),
            held_here: self.is_held(),
        }
    }
}
