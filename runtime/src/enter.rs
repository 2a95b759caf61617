//! Getting inside: into holds of the calling chain's own where there are any, else into new ones.

use std::borrow::Cow;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use crate::backend::BoxFuture;
use crate::driver::Core;
use crate::entered::Entered;
use crate::error::{LockError, LockErrorKind};
use crate::lease::Over;
use crate::obtain::Caller;
use crate::options::Settings;
use crate::running::Running;
use crate::scope::{self, Frame, Permit};
#[cfg(feature = "blocking")]
use crate::scoped::Scoped;
use crate::slot::{HeldSlot, Refusal, Slots};
use crate::telemetry;

/// The future of an [`Entered`]: ready at the first poll for a nested call that need not wait.
#[must_use = "futures do nothing unless polled"]
pub struct Acquire {
    seek: Seek,
    on_unavailable: OnUnavailable,
    slots: Slots,
}

/// What becomes of a call whose store cannot be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnUnavailable {
    Error,
    /// It goes on without a lock: only where a user wrote so at the site.
    RunUnlocked,
}

/// The way in, without what a call makes of it.
enum Seek {
    Done,
    Refused(LockError),
    // Boxed, so that a locked function's own future stays small.
    Seeking(BoxFuture<Result<Entered, LockError>>),
    // Needs no lock.
    Skip,
    StartAll { core: Arc<Core>, keys: Vec<Cow<'static, str>>, settings: Settings },
    StartOne { core: Arc<Core>, key: Cow<'static, str>, settings: Settings },
}

impl Acquire {
    /// Enters `key`.
    pub(crate) fn one(core: Arc<Core>, key: Cow<'static, str>, settings: Settings) -> Self {
        Self::by(Seek::StartOne { core, key, settings })
    }

    /// Enters all of `keys`, or none: in the order of their bytes, whatever order they come in, so
    /// that two callers never hold what the other one waits for.
    pub(crate) fn all(
        core: Arc<Core>,
        mut keys: Vec<Cow<'static, str>>,
        settings: Settings,
    ) -> Self {
        keys.sort_unstable();
        keys.dedup();
        Self::by(Seek::StartAll { core, keys, settings })
    }

    /// Never even tried.
    pub(crate) fn refused(error: LockError) -> Self {
        Self::by(Seek::Refused(error))
    }

    /// Enters nothing: the site says that this call needs no lock.
    pub fn unlocked() -> Self {
        Self::by(Seek::Skip)
    }

    /// Where the lock will be once it is there.
    pub fn slot(&mut self) -> HeldSlot {
        self.slots.held()
    }

    /// Has a refusal answered by the body, which must look here before it does anything else.
    pub fn refusal(&mut self) -> Refusal {
        self.slots.refusal()
    }

    /// Runs `body` as soon as the lock is there, then releases.
    pub fn run<F: Future>(self, body: F) -> Running<F> {
        Running::after(self, body)
    }

    pub(crate) fn on_unavailable(self, on_unavailable: OnUnavailable) -> Self {
        Self { on_unavailable, ..self }
    }

    fn by(seek: Seek) -> Self {
        Self { seek, on_unavailable: OnUnavailable::Error, slots: Slots::default() }
    }

    /// What the call makes of how the way in ended.
    fn settle(&self, outcome: Result<Entered, LockError>) -> Result<Entered, LockError> {
        match (outcome, self.on_unavailable) {
            (Err(error), OnUnavailable::RunUnlocked) if error.kind() == LockErrorKind::Backend => {
                telemetry::runs_unlocked(&error);
                Ok(Entered::unlocked())
            }
            (outcome, _) => self.slots.fill(outcome),
        }
    }
}

impl Future for Acquire {
    type Output = Result<Entered, LockError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let outcome = ready!(Pin::new(&mut self.seek).poll(cx));
        Poll::Ready(self.settle(outcome))
    }
}

impl fmt::Debug for Acquire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Acquire").finish_non_exhaustive()
    }
}

#[cfg(feature = "blocking")]
impl Acquire {
    /// Blocks until the lock is there. The waiting is done on the client's own thread, in the scope
    /// of the caller.
    pub(crate) fn enter_blocking(mut self) -> Result<Entered, LockError> {
        let core = self.seek.core().cloned();
        let outcome = match (self.seek.decide(), core) {
            (Some(outcome), _) => outcome,
            (None, None) => unreachable!("a way in that was begun before has no core"),
            (None, Some(core)) => {
                let seek = std::mem::replace(&mut self.seek, Seek::Done);
                core.block_on(Scoped::new(seek, scope::current())).unwrap_or_else(|| {
                    let text = "the client's thread could not be started, or ended: shut down, or \
                                the system has no threads left";
                    Err(LockError::new(LockErrorKind::ShutDown, text))
                })
            }
        };
        self.settle(outcome)
    }
}

impl Seek {
    /// Decides what can be decided without asking the store, or waiting for a sibling. Otherwise the
    /// way in is begun, and not polled yet: its timers belong to the runtime that polls it first.
    fn decide(&mut self) -> Option<Result<Entered, LockError>> {
        let seeking: BoxFuture<_> = match std::mem::replace(self, Self::Done) {
            Self::Refused(error) => return Some(Err(error)),
            Self::Skip => return Some(Ok(Entered::unlocked())),
            Self::StartAll { core, keys, settings } => Box::pin(enter_all(core, keys, settings)),
            Self::StartOne { core, key, settings } => match scope::find(&core, &key) {
                None => {
                    let mut caller = Caller::new(core, key.into(), settings);
                    Box::pin(async move {
                        let hold = caller.obtain().await?;
                        Ok(Entered::unlocked().with(caller.settings()).and(hold, None))
                    })
                }
                Some(frame) => match enter_nested(frame, &settings) {
                    Ok(decided) => return Some(decided),
                    Err(frame) => Box::pin(wait_for_sibling(frame, settings)),
                },
            },
            begun @ (Self::Done | Self::Seeking(_)) => {
                *self = begun;
                return None;
            }
        };
        *self = Self::Seeking(seeking);
        None
    }

    #[cfg(feature = "blocking")]
    fn core(&self) -> Option<&Arc<Core>> {
        match self {
            Self::StartAll { core, .. } | Self::StartOne { core, .. } => Some(core),
            Self::Done | Self::Refused(_) | Self::Seeking(_) | Self::Skip => None,
        }
    }
}

impl Future for Seek {
    type Output = Result<Entered, LockError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(outcome) = self.decide() {
            return Poll::Ready(outcome);
        }
        // Else polled again after it was ready.
        let Self::Seeking(seeking) = &mut *self else { return Poll::Pending };
        let outcome = ready!(seeking.as_mut().poll(cx));
        *self = Self::Done;
        Poll::Ready(outcome)
    }
}

/// Awaits: each lock in turn. A drop in between releases those that are held already.
async fn enter_all(
    core: Arc<Core>,
    keys: Vec<Cow<'static, str>>,
    settings: Settings,
) -> Result<Entered, LockError> {
    let begun_at = core.now();
    let mut entered = Entered::unlocked().with(&settings);
    for key in keys {
        // One `wait` for all of them.
        let left = settings.wait().saturating_sub(core.now().since(begun_at));
        // Zero would be one try, which may take longer than what is left: nothing.
        let left = left.max(settings.wait().min(Duration::from_nanos(1)));
        let mut settings = settings;
        settings.set_wait(left);
        let one = Acquire::one(Arc::clone(&core), key, settings).await?;
        entered = entered.join(one);
    }
    // The first ones were held while the last ones were waited for.
    match entered.over() {
        Some((lease, over)) => Err(over.error(lease.key(), false)),
        None => Ok(entered),
    }
}

/// Enters the hold that the calling chain is inside of, at `frame`; the frame again if a sibling is in.
fn enter_nested(
    frame: Arc<Frame>,
    settings: &Settings,
) -> Result<Result<Entered, LockError>, Arc<Frame>> {
    if !settings.reentrant {
        let text = "the calling chain holds the lock already, and this call is not reentrant";
        let error = LockError::new(LockErrorKind::Reentrant, text);
        return Ok(Err(error.with_key(frame.lease().key())));
    }
    frame.try_pass().map(|permit| enter_with(permit, settings))
}

fn enter_with(permit: Permit, settings: &Settings) -> Result<Entered, LockError> {
    let frame = permit.frame();
    let lease = frame.lease();
    if let Some(over) = lease.over() {
        return Err(over.error(lease.key(), false));
    }
    // A frame outlives its hold only in a scope that somebody kept.
    let hold = frame.hold().ok_or_else(|| Over::Released.error(lease.key(), false))?;
    Ok(Entered::unlocked().with(settings).and(hold, Some(permit)))
}

/// Waits until no sibling is inside. A drop gives up the place at the gate.
async fn wait_for_sibling(frame: Arc<Frame>, settings: Settings) -> Result<Entered, LockError> {
    let key = Arc::clone(frame.lease().key());
    match tokio::time::timeout(settings.wait(), frame.pass()).await {
        Ok(permit) => enter_with(permit, &settings),
        Err(_) => {
            let text = "another call inside the same hold had the lock all the time";
            let error = LockError::new(LockErrorKind::Timeout, text);
            Err(error.with_key(&key).with_waited(settings.wait()))
        }
    }
}
