//! The callers that wait for one key, in the order in which they came.
//!
//! Who leaves from the middle leaves a gap, so that nobody is moved for it: ten thousand may be
//! cancelled at once. Gaps at the front are closed, and all of them when they are more than the
//! callers.

use std::collections::VecDeque;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use super::{Ticket, Verdict};

/// Callers by ticket, lowest first. Boxed from the first one on: most keys have none, and a process
/// may hold very many.
#[derive(Clone, Debug)]
pub(super) struct Line(Option<Box<Places>>);

#[derive(Clone, Debug, Default)]
struct Places {
    waiters: VecDeque<Waiter>,
    gaps: usize,
}

/// A caller's place. There are very many of them at times, so it is kept small.
#[derive(Clone, Debug)]
pub(super) struct Waiter {
    pub(super) ticket: Ticket,
    pub(super) lease: Duration,
    /// How to wake it; none from then on until it is polled.
    pub(super) waker: Option<Waker>,
    pub(super) standing: Standing,
}

/// What becomes of a waiter when the lock is there.
#[derive(Clone, Debug, Hash)]
pub(super) enum Standing {
    Awake,
    /// It did not take an offer in time: it gets none until it is polled again.
    Asleep,
    Refused(Arc<Verdict>),
    /// It has left.
    Gone,
}

impl Line {
    pub(super) const fn new() -> Self {
        Self(None)
    }

    pub(super) fn len(&self) -> usize {
        self.0.as_ref().map_or(0, |places| places.len())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A caller joins, where its ticket says.
    pub(super) fn join(&mut self, ticket: Ticket, lease: Duration, waker: Option<Waker>) {
        let waiters = &mut self.0.get_or_insert_default().waiters;
        let at = match waiters.back() {
            // Who tried before it came here has an earlier one.
            Some(last) if last.ticket > ticket => {
                waiters.partition_point(|other| other.ticket < ticket)
            }
            _ => waiters.len(),
        };
        waiters.insert(at, Waiter { ticket, lease, waker, standing: Standing::Awake });
    }

    /// A caller leaves. How it would have been woken.
    pub(super) fn leave(&mut self, ticket: Ticket) -> Option<Waker> {
        let places = self.0.as_mut()?;
        let waiter = places.get_mut(ticket)?;
        waiter.standing = Standing::Gone;
        let waker = waiter.waker.take();
        places.gaps += 1;
        places.close_gaps();
        waker
    }

    pub(super) fn get_mut(&mut self, ticket: Ticket) -> Option<&mut Waiter> {
        self.0.as_mut()?.get_mut(ticket)
    }

    /// Those who would take an offer.
    pub(super) fn awake(&self) -> impl Iterator<Item = &Waiter> {
        self.present().filter(|waiter| waiter.is_awake())
    }

    /// The first of those who would take an offer.
    pub(super) fn head(&mut self) -> Option<&mut Waiter> {
        self.0.as_mut()?.waiters.iter_mut().find(|waiter| waiter.is_awake())
    }

    /// All who have not left.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Waiter> {
        let waiters = self.0.as_mut().map(|places| places.waiters.iter_mut());
        waiters.unwrap_or_default().filter(|waiter| !waiter.has_left())
    }

    fn present(&self) -> impl Iterator<Item = &Waiter> {
        let waiters = self.0.as_ref().map(|places| places.waiters.iter());
        waiters.unwrap_or_default().filter(|waiter| !waiter.has_left())
    }
}

impl Places {
    fn len(&self) -> usize {
        self.waiters.len() - self.gaps
    }

    fn get_mut(&mut self, ticket: Ticket) -> Option<&mut Waiter> {
        let at = match self.waiters.front() {
            Some(first) if first.ticket == ticket => 0,
            _ => self.waiters.binary_search_by_key(&ticket, |waiter| waiter.ticket).ok()?,
        };
        Some(&mut self.waiters[at]).filter(|waiter| !waiter.has_left())
    }

    fn close_gaps(&mut self) {
        while self.waiters.front().is_some_and(Waiter::has_left) {
            self.waiters.pop_front();
            self.gaps -= 1;
        }
        if self.gaps > self.len() {
            self.waiters.retain(|waiter| !waiter.has_left());
            self.gaps = 0;
        }
        // What a crowd took is given back as it goes.
        if self.waiters.capacity() > MANY && self.waiters.len() < self.waiters.capacity() / 4 {
            self.waiters.shrink_to(2 * self.waiters.len());
        }
    }
}

impl Waiter {
    fn is_awake(&self) -> bool {
        matches!(self.standing, Standing::Awake)
    }

    fn has_left(&self) -> bool {
        matches!(self.standing, Standing::Gone)
    }
}

// Gaps make no difference to what happens next.
impl Hash for Line {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.len().hash(hasher);
        self.present().for_each(|waiter| waiter.hash(hasher));
    }
}

// Whom a waiter wakes makes no difference either, whether it can does.
impl Hash for Waiter {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        (self.ticket, self.lease, self.waker.is_some(), &self.standing).hash(hasher);
    }
}

/// Fewer places are not worth the trouble.
const MANY: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn line(tickets: impl IntoIterator<Item = Ticket>) -> Line {
        let mut line = Line::new();
        tickets.into_iter().for_each(|ticket| line.join(ticket, Duration::ZERO, None));
        line
    }

    fn tickets(line: &Line) -> Vec<Ticket> {
        line.awake().map(|waiter| waiter.ticket).collect()
    }

    #[test]
    fn who_has_an_earlier_ticket_stands_further_ahead() {
        let line = line([1, 3, 4, 2, 0]);

        assert_eq!(tickets(&line), [0, 1, 2, 3, 4]);
    }

    #[test]
    fn who_leaves_is_gone_and_the_others_keep_their_order() {
        let mut line = line(0..6);

        for ticket in [3, 0, 1] {
            line.leave(ticket);
            line.leave(ticket);
        }

        assert_eq!((tickets(&line), line.len()), (vec![2, 4, 5], 3));
        assert!(line.get_mut(3).is_none() && line.get_mut(4).is_some());
    }

    #[test]
    fn crowd_that_has_left_takes_no_space() {
        let mut line = line(0..10_000);

        (0..10_000).filter(|ticket| ticket % 100 != 7).for_each(|ticket| drop(line.leave(ticket)));

        assert_eq!(line.len(), 100);
        let capacity = line.0.unwrap().waiters.capacity();
        assert!(capacity <= 1_000, "{capacity}");
    }
}
