//! A body under its lock, from the wait for the lock to its release.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;

use crate::backend::BoxFuture;
use crate::enter::Acquire;
use crate::entered::Entered;
use crate::error::LockError;
use crate::options::OnLost;
use crate::scope;
use crate::watch::{Watch, first_over};

pin_project! {
    /// The future of a locked call.
    ///
    /// It has the body from the start, so that what the body owns is stored once, and in one piece,
    /// since each type around a body brings nested calls nearer to the compiler's recursion limit.
    ///
    /// Dropping it drops the body first and releases then: `body` stands before `stage`.
    // Hidden: fields of a variant cannot be documented in here.
    #[doc(hidden)]
    #[project = RunningProj]
    #[project_replace = RunningOwned]
    #[must_use = "futures do nothing unless polled"]
    pub enum Running<F: Future> {
        /// The body is there, and perhaps waits for its lock.
        Live { #[pin] body: F, stage: Stage },
        /// The body is gone.
        Releasing { output: F::Output, release: BoxFuture<Result<(), LockError>> },
        /// There is nothing left to do.
        Done,
    }
}

/// How far a call is that has its body.
pub enum Stage {
    /// It waits for its lock.
    Outside(Acquire),
    /// It has its lock.
    Inside(Inside),
    /// The body has ended.
    Left,
}

/// What a running body needs.
pub struct Inside {
    entered: Entered,
    watch: Watch,
    /// Whether the lock was found to be valid in this very poll.
    checked: bool,
}

/// Why a call has no value of its body.
#[derive(Debug)]
// Exhaustive: the body has begun or it has not.
pub enum Failure {
    /// It has begun.
    Lost(LockError),
    /// It never began.
    Refused(LockError),
}

impl Failure {
    /// The error, whichever it is.
    #[must_use]
    pub fn into_error(self) -> LockError {
        match self {
            Self::Lost(error) | Self::Refused(error) => error,
        }
    }

    /// Ends a branch that is never taken: the lock is there, its loss is only signalled.
    ///
    /// # Panics
    ///
    /// Always.
    pub fn never(self) -> ! {
        unreachable!("a loss that is only signalled was reported: {}", self.into_error())
    }
}

impl<F: Future> Running<F> {
    /// Runs `body` as soon as the lock is there.
    pub(crate) fn after(acquire: Acquire, body: F) -> Self {
        Self::Live { body, stage: Stage::Outside(acquire) }
    }

    /// Runs `body`.
    pub(crate) fn inside(entered: Entered, body: F) -> Self {
        Self::Live { body, stage: Stage::Inside(Inside::new(entered)) }
    }

    /// Runs `body` from this very poll on, in which the lock was entered.
    pub(crate) fn at_once(entered: Entered, body: F) -> Self {
        let inside = Inside { checked: true, ..Inside::new(entered) };
        Self::Live { body, stage: Stage::Inside(inside) }
    }
}

impl Inside {
    fn new(entered: Entered) -> Self {
        Self { entered, watch: Watch::default(), checked: false }
    }

    fn cancels(&self) -> bool {
        self.entered.on_lost() == OnLost::Cancel
    }
}

impl<F: Future> Future for Running<F> {
    type Output = Result<F::Output, Failure>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let RunningProj::Live { body, stage } = self.as_mut().project() {
            if let Stage::Outside(acquire) = stage {
                match ready!(Pin::new(acquire).poll(cx)) {
                    Ok(entered) => {
                        *stage = Stage::Inside(Inside { checked: true, ..Inside::new(entered) });
                    }
                    Err(error) => {
                        self.set(Self::Done);
                        return Poll::Ready(Err(Failure::Refused(error)));
                    }
                }
            }
            let Stage::Inside(inside) = stage else { return Poll::Pending };
            // Nothing of the body runs past the poll in which its lock was lost.
            let checked = std::mem::take(&mut inside.checked);
            if inside.cancels()
                && !checked
                && let Some(error) = first_over(inside.entered.leases())
            {
                self.set(Self::Done);
                return Poll::Ready(Err(Failure::Lost(error)));
            }
            let frame = inside.entered.frame().cloned();
            let Poll::Ready(output) = scope::inside(frame, || body.poll(cx)) else {
                if inside.cancels() {
                    inside.watch.arm(inside.entered.leases(), cx);
                }
                return Poll::Pending;
            };
            let left = std::mem::replace(stage, Stage::Left);
            // The body's captures go before the release, and before anybody hears of its end.
            self.set(Self::Done);
            let Stage::Inside(Inside { entered, watch, .. }) = left else { return Poll::Pending };
            // First, so that the end of the hold does not wake this very task.
            drop(watch);
            match entered.leave() {
                Ok(outcome) => return Poll::Ready(judged(output, outcome)),
                Err(leaving) => {
                    let release = Box::pin(leaving.release());
                    self.set(Self::Releasing { output, release });
                }
            }
        }
        let RunningProj::Releasing { release, .. } = self.as_mut().project() else {
            // Polled again after it was ready.
            return Poll::Pending;
        };
        let outcome = ready!(release.as_mut().poll(cx));
        match self.project_replace(Self::Done) {
            RunningOwned::Releasing { output, .. } => Poll::Ready(judged(output, outcome)),
            RunningOwned::Live { .. } | RunningOwned::Done => Poll::Pending,
        }
    }
}

fn judged<T>(output: T, outcome: Result<(), LockError>) -> Result<T, Failure> {
    outcome.map(|()| output).map_err(Failure::Lost)
}

impl<F: Future> fmt::Debug for Running<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stage = match self {
            Self::Live { stage, .. } => stage as &dyn fmt::Debug,
            Self::Releasing { .. } => &"Releasing",
            Self::Done => &"Done",
        };
        f.debug_tuple("Running").field(stage).finish()
    }
}

impl fmt::Debug for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Outside(acquire) => acquire.fmt(f),
            Self::Inside(inside) => inside.fmt(f),
            Self::Left => f.write_str("Left"),
        }
    }
}

impl fmt::Debug for Inside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.entered.fmt(f)
    }
}
