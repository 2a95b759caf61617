//! What a release has to say, kept until the store's mutex is free again.

use std::sync::Arc;
use std::time::Duration;

use crate::backend::Events;

pub(super) struct Message {
    pub(super) listener: Arc<dyn Events>,
    pub(super) key: Arc<str>,
    pub(super) owner: Arc<str>,
    pub(super) news: News,
}

pub(super) enum News {
    Granted,
    NextInLine { claim: Duration },
}

impl Message {
    pub(super) fn deliver(self) {
        match self.news {
            News::Granted => self.listener.granted(&self.key, &self.owner),
            News::NextInLine { claim } => {
                self.listener.next_in_line(&self.key, &self.owner, claim);
            }
        }
    }
}
