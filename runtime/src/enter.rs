//! Getting inside: into holds of the calling chain's own where there are any, else into new ones.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use crate::backend::BoxFuture;
use crate::driver::Core;
use crate::entered::Entered;
use crate::error::{LockError, LockErrorKind};
use crate::held::HeldLock;
use crate::lease::Over;
use crate::obtain::obtain;
use crate::options::Settings;
use crate::running::Running;
use crate::scope::{self, Frame};
use crate::telemetry;

use tokio::sync::OwnedSemaphorePermit;

/// The future of an [`Entered`]: ready at the first poll for a nested call that need not wait.
#[must_use = "futures do nothing unless polled"]
pub struct Acquire {
    state: State,
    on_unavailable: OnUnavailable,
    slot: Option<Arc<OnceLock<HeldLock>>>,
    refusal: Option<Arc<Mutex<Option<LockError>>>>,
}

/// Where a body finds the lock that it was made before.
#[derive(Debug)]
pub struct HeldSlot(Arc<OnceLock<HeldLock>>);

impl HeldSlot {
    /// The lock that the body runs under.
    ///
    /// # Panics
    ///
    /// Never as the macros use it: in a body, and where it may run unlocked they ask
    /// [`held_if_locked`](Self::held_if_locked).
    #[must_use]
    pub fn held(self) -> HeldLock {
        self.held_if_locked().expect("a body that cannot run unlocked has a lock")
    }

    /// The lock that the body runs under, if there is one.
    #[must_use]
    pub fn held_if_locked(self) -> Option<HeldLock> {
        self.0.get().cloned()
    }
}

/// What becomes of a call whose store cannot be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnUnavailable {
    Error,
    /// It goes on without a lock: only where a user wrote so at the site.
    RunUnlocked,
}

enum State {
    Done,
    Refused(LockError),
    // Boxed, so that a locked function's own future stays small.
    Seeking(BoxFuture<Result<Entered, LockError>>),
    // Needs no lock.
    Skip,
    Start { core: Arc<Core>, key: String, settings: Settings },
}

/// Where a body that answers for a refusal itself finds the error.
#[derive(Debug)]
pub struct Refusal(Arc<Mutex<Option<LockError>>>);

impl Refusal {
    /// The error, if the lock was refused: then the body runs without it, only to answer.
    #[must_use]
    pub fn take(self) -> Option<LockError> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Acquire {
    /// Enters `key`.
    pub(crate) fn one(core: Arc<Core>, key: String, settings: Settings) -> Self {
        Self::in_state(State::Start { core, key, settings })
    }

    /// Enters all of `keys`, or none: in the order of their bytes, whatever order they come in, so
    /// that two callers never hold what the other one waits for.
    pub(crate) fn all(core: Arc<Core>, mut keys: Vec<String>, settings: Settings) -> Self {
        keys.sort_unstable();
        keys.dedup();
        Self::in_state(State::Seeking(Box::pin(enter_all(core, keys, settings))))
    }

    /// Never even tried.
    pub(crate) fn refused(error: LockError) -> Self {
        Self::in_state(State::Refused(error))
    }

    /// Enters nothing: the site says that this call needs no lock.
    pub fn unlocked() -> Self {
        Self::in_state(State::Skip)
    }

    /// Where the lock will be once it is there.
    pub fn slot(&mut self) -> HeldSlot {
        HeldSlot(Arc::clone(self.slot.get_or_insert_default()))
    }

    /// Has a refusal answered by the body, which must look here before it does anything else.
    pub fn refusal(&mut self) -> Refusal {
        Refusal(Arc::clone(self.refusal.get_or_insert_default()))
    }

    /// Runs `body` as soon as the lock is there, then releases.
    pub fn run<F: Future>(self, body: F) -> Running<F> {
        Running::after(self, body)
    }

    /// What is decided without asking the store, or waiting for a sibling.
    #[cfg(feature = "blocking")]
    pub(crate) fn decide_now(&mut self) -> Option<Result<Entered, LockError>> {
        let decided = match &self.state {
            State::Refused(_) | State::Skip => true,
            State::Start { core, key, .. } => {
                scope::current().is_some_and(|frame| frame.find(core, key).is_some())
            }
            State::Done | State::Seeking(_) => false,
        };
        let mut cx = Context::from_waker(std::task::Waker::noop());
        match decided.then(|| Pin::new(self).poll(&mut cx))? {
            Poll::Ready(outcome) => Some(outcome),
            Poll::Pending => None,
        }
    }

    pub(crate) fn on_unavailable(self, on_unavailable: OnUnavailable) -> Self {
        Self { on_unavailable, ..self }
    }

    fn in_state(state: State) -> Self {
        Self { state, on_unavailable: OnUnavailable::Error, slot: None, refusal: None }
    }

    fn poll_state(&mut self, cx: &mut Context<'_>) -> Poll<Result<Entered, LockError>> {
        loop {
            match std::mem::replace(&mut self.state, State::Done) {
                State::Refused(error) => return Poll::Ready(Err(error)),
                State::Skip => return Poll::Ready(Ok(Entered::unlocked())),
                State::Start { core, key, settings } => {
                    match scope::current().and_then(|frame| frame.find(&core, &key)) {
                        None => {
                            self.state = State::Seeking(Box::pin(async move {
                                let hold = obtain(&core, &key.into(), &settings).await?;
                                Ok(Entered::unlocked().with(settings).and(hold, None))
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

impl Future for Acquire {
    type Output = Result<Entered, LockError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let outcome = ready!(self.poll_state(cx));
        if let (Ok(entered), Some(slot)) = (&outcome, &self.slot)
            && let Some(held) = entered.held_if_locked()
        {
            // Empty until now: this future is ready only once.
            let _ = slot.set(held);
        }
        Poll::Ready(match (outcome, self.on_unavailable) {
            (Err(error), OnUnavailable::RunUnlocked) if error.kind() == LockErrorKind::Backend => {
                telemetry::runs_unlocked(&error);
                Ok(Entered::unlocked())
            }
            (Err(error), _) => match &self.refusal {
                None => Err(error),
                Some(refusal) => {
                    *refusal.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                    Ok(Entered::unlocked())
                }
            },
            (Ok(entered), _) => Ok(entered),
        })
    }
}

impl fmt::Debug for Acquire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Acquire").finish_non_exhaustive()
    }
}

/// Awaits: each lock in turn. A drop in between releases those that are held already.
async fn enter_all(
    core: Arc<Core>,
    keys: Vec<String>,
    settings: Settings,
) -> Result<Entered, LockError> {
    let begun_at = core.now();
    let mut entered = Entered::unlocked().with(settings);
    for key in keys {
        // One `wait` for all of them.
        let left = settings.wait.saturating_sub(core.now().since(begun_at));
        // Zero would be one try, which may take longer than what is left: nothing.
        let left = left.max(settings.wait.min(Duration::from_nanos(1)));
        let settings = Settings { wait: left, ..settings };
        let one = Acquire::one(Arc::clone(&core), key, settings).await?;
        entered = entered.join(one);
    }
    // The first ones were held while the last ones were waited for.
    match entered.over() {
        Some((lease, over)) => Err(over.error(lease.key(), false)),
        None => Ok(entered),
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
    Ok(Entered::unlocked().with(settings).and(hold, Some(permit)))
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
