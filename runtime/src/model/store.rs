//! The store: the decisions of the memory store, which are those of the Redis scripts, on the
//! model's time.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use uuid::Uuid;

use super::KEY;
use super::bounds::CLAIM;
use super::line::{Ask, Reply, Request};
use super::surroundings::{self, News};
use crate::backend::memory::state::{State, Value};
use crate::backend::{Renewal, StoreResult};
use crate::clock::Timestamp;
use crate::protocol::contender::Pace;

#[derive(Clone)]
pub(super) struct Store {
    state: State,
    /// Who holds the lock and until when, and who queues for it and until when.
    pub(super) holder: Option<(Arc<str>, Timestamp)>,
    pub(super) places: Vec<(Arc<str>, Timestamp)>,
}

impl Store {
    pub(super) fn new() -> Self {
        let mut state = State::new(0);
        for process in 0..2 {
            state.listen(id(process), surroundings::listener(process));
        }
        Self { state, holder: None, places: Vec::new() }
    }

    /// Carries a request of `process` out: the answer, and what is said besides.
    pub(super) fn carry_out(
        &mut self,
        process: usize,
        request: &Request,
        now: Timestamp,
    ) -> (Reply, Vec<News>) {
        let Request { lock, ask, .. } = request;
        let state = &mut self.state;
        let reply = match *ask {
            Ask::Acquire(lease) => Reply::Acquired(answered(state.acquire(lock, lease, now))),
            Ask::Contend(lease) => {
                let keep = Pace::KEEP_PLACE;
                Reply::Contended(answered(state.contend(lock, lease, keep, id(process), now)))
            }
            Ask::Release => {
                let (released, messages) = state.release(lock, CLAIM, now);
                messages.into_iter().for_each(|message| message.deliver());
                Reply::Released(released)
            }
            Ask::Renew(lease) => {
                Reply::Renewed(state.renew(&Renewal { lock: lock.clone(), lease }, now))
            }
        };
        self.look(now);
        (reply, surroundings::take_heard())
    }

    /// Time goes on. Whether a lock lapsed.
    pub(super) fn go_on(&mut self, now: Timestamp) -> bool {
        let lapses = self.holder.as_ref().is_some_and(|(_, expires)| *expires <= now);
        self.look(now);
        lapses
    }

    fn look(&mut self, now: Timestamp) {
        self.holder = self.state.value(KEY, now).and_then(|(value, expires)| match value {
            Value::Text(owner) => Some((owner, expires?)),
            Value::OtherType => None,
        });
        self.places = self.state.places(KEY);
        self.places.retain(|(_, deadline)| *deadline > now);
    }
}

// What has expired, and when it is swept away, makes no difference to any answer.
impl Hash for Store {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        (&self.holder, &self.places).hash(hasher);
    }
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store")
            .field("holder", &self.holder)
            .field("places", &self.places)
            .finish_non_exhaustive()
    }
}

/// Nobody here puts anything else than a lock under the key.
fn answered<T>(result: StoreResult<T>) -> T {
    result.unwrap()
}

fn id(process: usize) -> Uuid {
    Uuid::from_u128(process as u128)
}
