//! Getting inside: into a hold of the calling chain's own if there is one, else into a new one.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::sync::OwnedSemaphorePermit;

use crate::backend::BoxFuture;
use crate::driver::Core;
use crate::error::{LockError, LockErrorKind};
use crate::held::HeldLock;
use crate::hold::{Hold, Outcome};
use crate::lease::Over;
use crate::obtain::obtain;
use crate::options::Settings;
use crate::running::Running;
use crate::scope::{self, Frame};

/// One entry into a hold. The last one to go releases.
///
/// Fields drop in order: the gate opens for a sibling only when this entry is over.
pub struct Entered {
    frame: Arc<Frame>,
    hold: Arc<Hold>,
    permit: Option<OwnedSemaphorePermit>,
    settings: Settings,
}

impl Entered {
    fn new(hold: Arc<Hold>, permit: Option<OwnedSemaphorePermit>, settings: Settings) -> Self {
        Self { frame: Frame::enter(&hold), hold, permit, settings }
    }

    /// A look at the lock, for the body.
    #[must_use]
    pub fn held(&self) -> HeldLock {
        HeldLock::new(&self.hold)
    }

    /// Runs `body` under the lock, then releases.
    pub fn run<F: Future>(self, body: F) -> Running<F> {
        Running::new(self, body)
    }

    /// Releases if this is the last entry, and waits for the answer.
    pub(crate) async fn release(self) -> Result<(), LockError> {
        let Self { frame, hold, permit, settings } = self;
        let key = Arc::clone(hold.lease().key());
        // With another entry left the lock stays, and whoever leaves last releases.
        let outcome = match Arc::into_inner(hold) {
            Some(hold) => hold.release().await,
            None => Outcome::Released,
        };
        drop((frame, permit));
        match outcome {
            Outcome::Lost(over) if settings.strict => Err(over.error(&key, true)),
            Outcome::Lost(_) | Outcome::Released | Outcome::Unknown => Ok(()),
        }
    }

    pub(crate) fn frame(&self) -> &Arc<Frame> {
        &self.frame
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }

    pub(crate) fn over_error(&self, over: Over) -> LockError {
        over.error(self.hold.lease().key(), false)
    }
}

impl fmt::Debug for Entered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Entered").field(&self.held()).finish()
    }
}

/// The future of an [`Entered`]: ready at the first poll for a nested call that need not wait.
#[must_use = "futures do nothing unless polled"]
pub struct Acquire {
    state: State,
}

enum State {
    Refused(LockError),
    Start { core: Arc<Core>, key: Arc<str>, settings: Settings },
    // Boxed, so that a locked function's own future stays small.
    Seeking(BoxFuture<Result<Entered, LockError>>),
    Done,
}

impl Acquire {
    pub(crate) fn new(core: Arc<Core>, key: Arc<str>, settings: Settings) -> Self {
        Self { state: State::Start { core, key, settings } }
    }

    /// Never even tried.
    pub(crate) fn refused(error: LockError) -> Self {
        Self { state: State::Refused(error) }
    }
}

impl Future for Acquire {
    type Output = Result<Entered, LockError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            match std::mem::replace(&mut self.state, State::Done) {
                State::Refused(error) => return Poll::Ready(Err(error)),
                State::Start { core, key, settings } => {
                    match scope::current().and_then(|frame| frame.find(&core, &key)) {
                        None => {
                            self.state = State::Seeking(Box::pin(async move {
                                let hold = obtain(&core, &key, &settings).await?;
                                Ok(Entered::new(hold, None, settings))
                            }));
                        }
                        Some(frame) => match enter_nested(&frame, settings) {
                            Ok(None) => {
                                self.state = State::Seeking(Box::pin(async move {
                                    wait_for_sibling(&frame, settings).await
                                }));
                            }
                            Ok(Some(entered)) => return Poll::Ready(Ok(entered)),
                            Err(error) => return Poll::Ready(Err(error)),
                        },
                    }
                }
                State::Seeking(mut seeking) => {
                    let outcome = seeking.as_mut().poll(cx);
                    if outcome.is_pending() {
                        self.state = State::Seeking(seeking);
                    }
                    return outcome;
                }
                // Polled again after it was ready.
                State::Done => return Poll::Pending,
            }
        }
    }
}

impl fmt::Debug for Acquire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Acquire").finish_non_exhaustive()
    }
}

/// Enters the hold that the calling chain is inside of, at `frame`; `None` if a sibling is in.
fn enter_nested(frame: &Arc<Frame>, settings: Settings) -> Result<Option<Entered>, LockError> {
    let key = frame.lease().key();
    if !settings.reentrant {
        let text = "the calling chain holds the lock already, and this call is not reentrant";
        return Err(LockError::new(LockErrorKind::Reentrant, text).with_key(key));
    }
    let Ok(permit) = Arc::clone(frame.gate()).try_acquire_owned() else { return Ok(None) };
    enter_with(frame, permit, settings).map(Some)
}

fn enter_with(
    frame: &Frame,
    permit: OwnedSemaphorePermit,
    settings: Settings,
) -> Result<Entered, LockError> {
    let lease = frame.lease();
    if let Some(over) = lease.over() {
        return Err(over.error(lease.key(), false));
    }
    // A frame outlives its hold only in a scope that somebody kept.
    let hold = frame.hold().ok_or_else(|| Over::Released.error(lease.key(), false))?;
    Ok(Entered::new(hold, Some(permit), settings))
}

/// Waits until no sibling is inside. A drop gives up the place at the gate.
async fn wait_for_sibling(frame: &Arc<Frame>, settings: Settings) -> Result<Entered, LockError> {
    let gate = Arc::clone(frame.gate()).acquire_owned();
    // The gate is never closed.
    match tokio::time::timeout(settings.wait, gate).await {
        Ok(Ok(permit)) => enter_with(frame, permit, settings),
        Ok(Err(_)) | Err(_) => {
            let text = "another call inside the same hold had the lock all the time";
            let error = LockError::new(LockErrorKind::Timeout, text);
            Err(error.with_key(frame.lease().key()).with_waited(settings.wait))
        }
    }
}
