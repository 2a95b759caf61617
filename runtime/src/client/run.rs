//! A call that makes its body of the lock.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;

use crate::enter::Acquire;
use crate::error::LockError;
use crate::held::HeldLock;
use crate::running::{Failure, Running};

pin_project! {
    /// The future of [`LockRequest::run`](super::LockRequest::run).
    ///
    /// Written by hand: an async function would keep each of its parts beside the others, and very
    /// many calls may wait.
    #[project = RunProj]
    #[must_use = "futures do nothing unless polled"]
    pub(super) enum Run<F, B: Future> {
        /// The body is made of the lock when that is there; `None` once it was refused.
        Outside { acquire: Acquire, body: Option<F> },
        Inside { #[pin] running: Running<B> },
    }
}

impl<F, B: Future> Run<F, B> {
    pub(super) fn new(acquire: Acquire, body: F) -> Self {
        Self::Outside { acquire, body: Some(body) }
    }
}

impl<F, B> Future for Run<F, B>
where
    F: FnOnce(HeldLock) -> B,
    B: Future,
{
    type Output = Result<B::Output, LockError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let RunProj::Outside { acquire, body } = self.as_mut().project() {
            let outcome = ready!(Pin::new(acquire).poll(cx));
            // Polled again after it was ready.
            let Some(body) = body.take() else { return Poll::Pending };
            let entered = outcome?;
            // The body begins with what makes it, so nothing comes between the look at the deadline
            // and its first poll.
            let body = body(entered.held());
            self.set(Self::Inside { running: Running::at_once(entered, body) });
        }
        match self.project() {
            RunProj::Inside { running } => running.poll(cx).map_err(Failure::into_error),
            RunProj::Outside { .. } => Poll::Pending,
        }
    }
}
