//! Looking after leases while something runs under them.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Context;

use tokio::sync::futures::OwnedNotified;

use crate::error::LockError;
use crate::lease::Lease;

/// How the first of `leases` that is over ended.
pub(crate) fn first_over<'a>(
    leases: impl IntoIterator<Item = &'a Arc<Lease>>,
) -> Option<LockError> {
    leases.into_iter().find_map(|lease| Some(lease.over()?.error(lease.key(), false)))
}

/// Has a task woken when a lease ends. Costs nothing before it is armed: a body that is ready at its
/// first poll needs no waking.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    ended: Vec<Pin<Box<OwnedNotified>>>,
}

impl Watch {
    /// Has the task woken when one of `leases`, the same at each call, ends.
    pub(crate) fn arm<'a>(
        &mut self,
        leases: impl IntoIterator<Item = &'a Arc<Lease>>,
        cx: &mut Context<'_>,
    ) {
        if self.ended.is_empty() {
            for lease in leases {
                self.ended.push(Box::pin(lease.ended()));
                // One that ended before this wakes nobody any more.
                if lease.over().is_some() {
                    cx.waker().wake_by_ref();
                }
            }
        }
        for ended in &mut self.ended {
            if ended.as_mut().poll(cx).is_ready() {
                cx.waker().wake_by_ref();
            }
        }
    }
}
