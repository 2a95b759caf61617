//! Polling a body only while its lock is ours.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;

use crate::entered::Entered;
use crate::error::LockError;
use crate::lease::Lease;
use crate::options::OnLost;
use crate::scoped::Scoped;
use crate::watch::{Watch, first_over};

pin_project! {
    /// A body inside its locks: each poll looks at the deadlines first, so that nothing of the body
    /// runs past the poll in which a lock was lost. Then the body is dropped, before this future says
    /// so.
    pub(crate) struct Checked<F> {
        #[pin]
        body: Scoped<F>,
        leases: Vec<Arc<Lease>>,
        watch: Watch,
    }
}

impl<F> Checked<F> {
    pub(crate) fn new(body: F, entered: &Entered) -> Self {
        let leases = match entered.on_lost() {
            OnLost::Cancel => entered.leases().cloned().collect(),
            OnLost::Signal => Vec::new(),
        };
        let body = Scoped::new(body, entered.frame().cloned());
        Self { body, leases, watch: Watch::default() }
    }
}

impl<F: Future> Future for Checked<F> {
    type Output = Result<F::Output, LockError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        if let Some(error) = first_over(this.leases.iter()) {
            this.body.clear();
            return Poll::Ready(Err(error));
        }
        let polled = this.body.as_mut().poll(cx);
        if polled.is_pending() {
            this.watch.arm(this.leases.iter(), cx);
        }
        polled.map(Ok)
    }
}
