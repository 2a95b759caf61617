//! Looking after leases while something runs under them.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Context;

use tokio::sync::futures::OwnedNotified;

use crate::error::LockError;
use crate::lease::Lease;

/// The leases that a body runs under.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    watched: Vec<(Arc<Lease>, Pin<Box<OwnedNotified>>)>,
}

impl Watch {
    pub(crate) fn over<'a>(leases: impl IntoIterator<Item = &'a Arc<Lease>>) -> Self {
        let watched = leases.into_iter().map(|lease| (Arc::clone(lease), Box::pin(lease.ended())));
        Self { watched: watched.collect() }
    }

    /// How the first of them ended, if one did; else has the task woken when one does.
    pub(crate) fn poll_over(&mut self, cx: &mut Context<'_>) -> Option<LockError> {
        for (lease, ended) in &mut self.watched {
            if let Some(over) = lease.over() {
                return Some(over.error(lease.key(), false));
            }
            // If the end comes between the look and this, it is seen at the next poll.
            if ended.as_mut().poll(cx).is_ready() {
                cx.waker().wake_by_ref();
            }
        }
        None
    }
}
