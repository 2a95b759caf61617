//! What a model checker needs of the queue: to tell states apart, and to look inside.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use super::Waiting;
use super::queue::Queue;

impl<O> Waiting<O> {
    pub(crate) fn outside(&self) -> &O {
        &self.ground.outside
    }

    pub(crate) fn outside_mut(&mut self) -> &mut O {
        &mut self.ground.outside
    }

    /// The owners under which this process contends for `key`, has it on offer, or holds it.
    pub(crate) fn owners(&self, key: &str) -> Vec<Arc<str>> {
        self.keys.get(key).map(Queue::owners).unwrap_or_default()
    }

    /// Whether the queue of `key` knows that `owner` holds it.
    pub(crate) fn knows_hold(&self, key: &str, owner: &str) -> bool {
        self.keys.get(key).is_some_and(|queue| queue.turn_of(owner).is_some())
    }
}

impl<O: Hash> Hash for Waiting<O> {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        let ground = &self.ground;
        (&ground.outside, &ground.due, self.next_ticket, &ground.owed).hash(hasher);
        let mut keys: Vec<_> = self.keys.iter().collect();
        keys.sort_unstable_by_key(|(key, _)| *key);
        keys.hash(hasher);
    }
}

impl Queue {
    fn owners(&self) -> Vec<Arc<str>> {
        let contender = self.contender.iter().map(|contender| contender.owner());
        let offer = self.offer.iter().map(|offer| &offer.owner);
        contender.chain(offer).chain(self.held_by()).cloned().collect()
    }
}
