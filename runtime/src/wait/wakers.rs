//! Wakers that are collected under the mutex, to be called when it is let go.

use std::task::Waker;

/// Wakers to call, and to drop, once the mutex around the queues is let go: both may run code of the
/// user's.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wakers {
    pub(super) wake: Few,
    pub(super) spent: Few,
}

/// One as a rule, which takes no allocation.
#[derive(Clone, Debug, Default)]
pub(super) struct Few {
    first: Option<Waker>,
    more: Vec<Waker>,
}

impl Wakers {
    /// Wakes and drops what was collected.
    pub(crate) fn wake(self) {
        let Few { first, more } = self.wake;
        if let Some(first) = first {
            first.wake();
        }
        more.into_iter().for_each(Waker::wake);
    }
}

impl Extend<Waker> for Few {
    fn extend<I: IntoIterator<Item = Waker>>(&mut self, wakers: I) {
        for waker in wakers {
            if self.first.is_none() {
                self.first = Some(waker);
            } else {
                self.more.push(waker);
            }
        }
    }
}
