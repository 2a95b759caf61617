//! What must not be overtaken: requests that were not sent when they were first polled.
//!
//! A request goes out in its turn unless it has to wait for a connection, or was sent on by a node
//! that does not serve its slot. What takes a lock must not go behind a request that may give the
//! same lock back: nobody would. So it is noted by owner how many such requests have departed; who
//! was late and finds that one has, is not sent.

use std::future::{Future, poll_fn};
use std::hash::{BuildHasher, RandomState};
use std::pin::pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use crate::backend::redis::request::Role;

/// Counts the departed requests that end holds and places, by owners: several may share a counter,
/// which at worst holds up a request that would have done no harm.
#[derive(Debug)]
pub(super) struct Endings {
    hasher: RandomState,
    counters: Vec<Mutex<u64>>,
}

/// A request's place among those of its owner, from its first poll.
#[derive(Clone, Copy, Debug)]
pub(super) struct Departure<'a> {
    counter: &'a Mutex<u64>,
    /// What the counter said, for a request that must not be overtaken.
    noted: Option<u64>,
    /// Nothing was awaited since.
    in_turn: bool,
}

impl Endings {
    pub(super) fn new() -> Self {
        let counters = std::iter::repeat_with(|| Mutex::new(0)).take(COUNTERS).collect();
        Self { hasher: RandomState::new(), counters }
    }

    pub(super) fn depart(&self, owner: &str, role: Role) -> Departure<'_> {
        let index = self.hasher.hash_one(owner) as usize % COUNTERS;
        let counter = &self.counters[index];
        let noted = match role {
            Role::Ends => {
                *count(counter) += 1;
                None
            }
            Role::Harmless => None,
            Role::Takes => Some(*count(counter)),
        };
        Departure { counter, noted, in_turn: true }
    }
}

impl Departure<'_> {
    /// From here on something is awaited before the request is sent.
    pub(super) fn out_of_turn(self) -> Self {
        Self { in_turn: false, ..self }
    }

    /// Sends a request by its first poll; not if it was overtaken.
    pub(super) async fn send<F: Future>(self, request: F) -> Option<F::Output> {
        if self.in_turn {
            return Some(request.await);
        }
        let mut request = pin!(request);
        // The mutex keeps those out until it is sent that would overtake it.
        let first_poll = poll_fn(|context| {
            let count = self.noted.map(|noted| (noted, count(self.counter)));
            let overtaken = count.as_ref().is_some_and(|(noted, count)| *noted != **count);
            Poll::Ready((!overtaken).then(|| request.as_mut().poll(context)))
        });
        match first_poll.await? {
            Poll::Ready(output) => Some(output),
            Poll::Pending => Some(request.await),
        }
    }
}

fn count(counter: &Mutex<u64>) -> MutexGuard<'_, u64> {
    // A number: whole at any time.
    counter.lock().unwrap_or_else(PoisonError::into_inner)
}

const COUNTERS: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_takes_a_lock_is_not_sent_behind_what_gives_it_back() {
        let endings = Endings::new();
        let first = endings.depart("ours", Role::Takes).out_of_turn();
        assert_eq!(first.send(async { 1 }).await, Some(1));
        endings.depart("ours", Role::Ends);
        assert_eq!(first.send(async { 1 }).await, None);
        let later = endings.depart("ours", Role::Takes).out_of_turn();
        assert_eq!(later.send(async { 1 }).await, Some(1));
    }

    #[tokio::test]
    async fn what_does_no_harm_may_come_late() {
        let endings = Endings::new();
        for role in [Role::Harmless, Role::Ends] {
            let late = endings.depart("ours", role).out_of_turn();
            endings.depart("ours", Role::Ends);
            assert_eq!(late.send(async { 1 }).await, Some(1), "{role:?}");
        }
    }
}
