//! What the queue takes from outside of itself: time, luck, and names for owners.

use std::fmt;
use std::sync::Arc;

use crate::backoff::Chance;
use crate::clock::{Clock, Timestamp};
use crate::instance::Instance;

/// The world around the queue: a [`Process`], or what a model makes of one.
pub(crate) trait Outside: fmt::Debug {
    fn now(&self) -> Timestamp;

    fn roll(&self) -> Chance;

    /// An owner string that was never used before.
    fn new_owner(&mut self) -> Arc<str>;
}

/// The process that we run in.
#[derive(Clone, Debug)]
pub(crate) struct Process {
    pub(crate) clock: Clock,
    pub(crate) instance: Instance,
}

impl Outside for Process {
    fn now(&self) -> Timestamp {
        self.clock.now()
    }

    fn roll(&self) -> Chance {
        Chance::roll()
    }

    fn new_owner(&mut self) -> Arc<str> {
        self.instance.new_owner()
    }
}
