//! Polling a body only while its lock is ours.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;
use tokio::sync::futures::OwnedNotified;

use crate::lease::Over;
use crate::options::OnLost;
use crate::scope::{self, Frame};

pin_project! {
    /// A body inside a frame: each poll looks at the deadline first, so that nothing of the body runs
    /// past the poll in which the lock was lost. Then the body is dropped, before this future says so.
    pub(crate) struct Checked<F> {
        // None once it has ended or was dropped.
        #[pin]
        body: Option<F>,
        #[pin]
        ended: OwnedNotified,
        frame: Arc<Frame>,
        on_lost: OnLost,
    }
}

impl<F: Future> Checked<F> {
    pub(crate) fn new(body: F, frame: Arc<Frame>, on_lost: OnLost) -> Self {
        Self { ended: frame.lease().ended(), body: Some(body), frame, on_lost }
    }
}

impl<F: Future> Future for Checked<F> {
    type Output = Result<F::Output, Over>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        if *this.on_lost == OnLost::Cancel {
            if let Some(over) = this.frame.lease().over() {
                this.body.set(None);
                return Poll::Ready(Err(over));
            }
            // Registers for the wake-up. If the end comes in between, the next poll sees it.
            if this.ended.as_mut().poll(cx).is_ready() {
                cx.waker().wake_by_ref();
            }
        }
        let Some(body) = this.body.as_mut().as_pin_mut() else {
            // Polled again after it was ready.
            return Poll::Pending;
        };
        let output = ready!(scope::inside(Some(Arc::clone(this.frame)), || body.poll(cx)));
        // The body's captures go before anybody hears of its end, and so before the release.
        this.body.set(None);
        Poll::Ready(Ok(output))
    }
}
