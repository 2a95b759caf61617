//! Polling a body inside a frame.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;

use crate::scope::{self, Frame};

pin_project! {
    /// A body that runs inside `frame`.
    pub(crate) struct Scoped<F> {
        // None once it has ended or was dropped.
        #[pin]
        body: Option<F>,
        frame: Option<Arc<Frame>>,
    }
}

impl<F> Scoped<F> {
    pub(crate) fn new(body: F, frame: Option<Arc<Frame>>) -> Self {
        Self { body: Some(body), frame }
    }

    /// Drops the body.
    pub(crate) fn clear(self: Pin<&mut Self>) {
        self.project().body.set(None);
    }

    pub(crate) fn is_over(&self) -> bool {
        self.body.is_none()
    }
}

impl<F: Future> Future for Scoped<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        let Some(body) = this.body.as_mut().as_pin_mut() else {
            // Polled again after it was ready.
            return Poll::Pending;
        };
        let output = ready!(scope::inside(this.frame.clone(), || body.poll(cx)));
        // The body's captures go before anybody hears of its end, and so before the release.
        this.body.set(None);
        Poll::Ready(output)
    }
}
