//! A body under its lock, from its first poll to the release.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;

use crate::backend::BoxFuture;
use crate::checked::Checked;
use crate::entered::Entered;
use crate::error::LockError;
use crate::scoped::Scoped;

pin_project! {
    /// A body, then the release: the output of both.
    ///
    /// Dropping it drops the body first and releases then: the stage stands before the entry.
    struct UnderLock<B: Future> {
        #[pin]
        stage: Stage<B>,
        entered: Option<Entered>,
    }
}

pin_project! {
    #[project = StageProj]
    #[project_replace = StageOwned]
    enum Stage<B: Future> {
        Body { #[pin] body: B },
        Releasing { output: B::Output, release: BoxFuture<Result<(), LockError>> },
        Done,
    }
}

impl<B: Future> Future for UnderLock<B> {
    type Output = (B::Output, Result<(), LockError>);

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        if let StageProj::Body { body } = this.stage.as_mut().project() {
            let output = ready!(body.poll(cx));
            this.stage.set(Stage::Done);
            // The entry is there as long as the body is.
            let Some(entered) = this.entered.take() else { return Poll::Pending };
            match entered.leave() {
                Ok(outcome) => return Poll::Ready((output, outcome)),
                Err(entered) => {
                    let release = Box::pin(entered.release());
                    this.stage.set(Stage::Releasing { output, release });
                }
            }
        }
        let StageProj::Releasing { release, .. } = this.stage.as_mut().project() else {
            // Polled again after it was ready.
            return Poll::Pending;
        };
        let released = ready!(release.as_mut().poll(cx));
        match this.stage.project_replace(Stage::Done) {
            StageOwned::Releasing { output, .. } => Poll::Ready((output, released)),
            StageOwned::Body { .. } | StageOwned::Done => Poll::Pending,
        }
    }
}

pin_project! {
    /// The future of a body that is dropped when its lock is lost.
    #[must_use = "futures do nothing unless polled"]
    pub struct Running<F: Future> {
        #[pin]
        inner: UnderLock<Checked<F>>,
    }
}

impl<F: Future> Running<F> {
    pub(crate) fn new(entered: Entered, body: F) -> Self {
        let body = Checked::new(body, &entered);
        Self { inner: UnderLock { stage: Stage::Body { body }, entered: Some(entered) } }
    }
}

impl<F: Future> Future for Running<F> {
    type Output = Result<F::Output, LockError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let (output, released) = ready!(self.project().inner.poll(cx));
        // A body that was stopped says so; what the release found comes second to that.
        Poll::Ready(output.and_then(|output| released.map(|()| output)))
    }
}

impl<F: Future> fmt::Debug for Running<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Running").field("entered", &self.inner.entered).finish_non_exhaustive()
    }
}

pin_project! {
    /// The future of a body that runs to its end whatever becomes of its lock.
    #[must_use = "futures do nothing unless polled"]
    pub struct RunToEnd<F: Future> {
        #[pin]
        inner: UnderLock<Scoped<F>>,
    }
}

impl<F: Future> RunToEnd<F> {
    pub(crate) fn new(entered: Entered, body: F) -> Self {
        let body = Scoped::new(body, entered.frame().cloned());
        Self { inner: UnderLock { stage: Stage::Body { body }, entered: Some(entered) } }
    }
}

impl<F: Future> Future for RunToEnd<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.project().inner.poll(cx).map(|(output, _)| output)
    }
}

impl<F: Future> fmt::Debug for RunToEnd<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunToEnd").field("entered", &self.inner.entered).finish_non_exhaustive()
    }
}
