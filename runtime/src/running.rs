//! A body under its lock, from its first poll to the release.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;

use crate::backend::BoxFuture;
use crate::checked::Checked;
use crate::enter::Entered;
use crate::error::LockError;

pin_project! {
    /// The future of a locked body.
    ///
    /// Dropping it drops the body first and releases then: the stage stands before the entry.
    #[must_use = "futures do nothing unless polled"]
    pub struct Running<F: Future> {
        #[pin]
        stage: Stage<F>,
        entered: Option<Entered>,
    }
}

pin_project! {
    #[project = StageProj]
    #[project_replace = StageOwned]
    enum Stage<F: Future> {
        Body { #[pin] body: Checked<F> },
        Releasing { output: F::Output, release: BoxFuture<Result<(), LockError>> },
        Done,
    }
}

impl<F: Future> Running<F> {
    pub(crate) fn new(entered: Entered, body: F) -> Self {
        let frame = Arc::clone(entered.frame());
        let body = Checked::new(body, frame, entered.settings().on_lost);
        Self { stage: Stage::Body { body }, entered: Some(entered) }
    }
}

impl<F: Future> Future for Running<F> {
    type Output = Result<F::Output, LockError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            match this.stage.as_mut().project() {
                StageProj::Body { body } => {
                    let outcome = ready!(body.poll(cx));
                    // The entry is there as long as the body is.
                    let Some(entered) = this.entered.take() else { return Poll::Pending };
                    match outcome {
                        Ok(output) => {
                            let release = Box::pin(entered.release());
                            this.stage.set(Stage::Releasing { output, release });
                        }
                        Err(over) => {
                            this.stage.set(Stage::Done);
                            // The body is gone; the release goes on in the background.
                            return Poll::Ready(Err(entered.over_error(over)));
                        }
                    }
                }
                StageProj::Releasing { release, .. } => {
                    let released = ready!(release.as_mut().poll(cx));
                    let StageOwned::Releasing { output, .. } =
                        this.stage.as_mut().project_replace(Stage::Done)
                    else {
                        return Poll::Pending;
                    };
                    return Poll::Ready(released.map(|()| output));
                }
                // Polled again after it was ready.
                StageProj::Done => return Poll::Pending,
            }
        }
    }
}

impl<F: Future> fmt::Debug for Running<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Running").field("entered", &self.entered).finish_non_exhaustive()
    }
}
