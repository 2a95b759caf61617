//! What a release has to say, kept until the store's mutex is free again.

use std::sync::Arc;
use std::time::Duration;

use crate::backend::Events;

pub(crate) struct Message {
    pub(crate) listener: Arc<dyn Events>,
    pub(crate) key: Arc<str>,
    pub(crate) owner: Arc<str>,
    pub(crate) news: News,
}

pub(crate) enum News {
    Granted,
    NextInLine { claim: Duration },
}

impl Message {
    pub(crate) fn deliver(self) {
        match self.news {
            News::Granted => self.listener.granted(&self.key, &self.owner),
            News::NextInLine { claim } => {
                self.listener.next_in_line(&self.key, &self.owner, claim);
            }
        }
    }
}
