//! Polling a body only while its lock is ours.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;

use crate::entered::Entered;
use crate::error::LockError;
use crate::options::OnLost;
use crate::scoped::Scoped;
use crate::watch::Watch;

pin_project! {
    /// A body inside its locks: each poll looks at the deadlines first, so that nothing of the body
    /// runs past the poll in which a lock was lost. Then the body is dropped, before this future says
    /// so.
    pub(crate) struct Checked<F> {
        #[pin]
        body: Scoped<F>,
        watch: Watch,
    }
}

impl<F> Checked<F> {
    pub(crate) fn new(body: F, entered: &Entered) -> Self {
        let watch = match entered.on_lost() {
            OnLost::Cancel => Watch::over(entered.leases()),
            OnLost::Signal => Watch::default(),
        };
        Self { body: Scoped::new(body, entered.frame().cloned()), watch }
    }
}

impl<F: Future> Future for Checked<F> {
    type Output = Result<F::Output, LockError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        if let Some(error) = this.watch.poll_over(cx) {
            this.body.clear();
            return Poll::Ready(Err(error));
        }
        this.body.poll(cx).map(Ok)
    }
}
