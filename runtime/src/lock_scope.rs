//! Carrying a chain's holds into work that runs beside it.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;

use crate::error::LockError;
use crate::hold::Hold;
use crate::lease::{Lease, Over};
use crate::options::OnLost;
use crate::scope::{self, Frame};
use crate::scoped::Scoped;
use crate::watch::{Watch, first_over};

/// The holds that the code that runs now is inside of.
///
/// A spawned task does not inherit them: it runs beside its parent, and two of them would be inside
/// one lock at once. Where that is wanted, [`instrument`](Self::instrument) says so.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::LockError> {
/// use distlock::{LockClient, LockKey, LockScope};
///
/// let locks = LockClient::in_memory();
/// locks
///     .lock(LockKey::literal("stock:lock:7"))
///     .run(|_| async {
///         let child = tokio::spawn(LockScope::current().instrument(async { 6 * 7 }));
///         assert_eq!(child.await.expect("no panic")?, 42);
///         Ok(())
///     })
///     .await?
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct LockScope {
    frame: Option<Arc<Frame>>,
}

impl LockScope {
    /// The scope of the code that runs now; empty outside of every lock.
    pub fn current() -> Self {
        Self { frame: scope::current() }
    }

    /// Makes `future` a child of this scope's holds from its first poll on: nested calls on their
    /// keys enter, each poll checks that they are still ours, and the holds last until the future
    /// ends or is dropped. It runs **beside** the parent body, not in turn with it.
    pub fn instrument<F: Future>(self, future: F) -> Instrumented<F> {
        self.instrument_as(OnLost::Cancel, future)
    }

    /// As [`instrument`](Self::instrument), and says whether the future is dropped at a loss.
    pub(crate) fn instrument_as<F: Future>(self, on_lost: OnLost, future: F) -> Instrumented<F> {
        let body = Scoped::new(future, self.frame.clone());
        Instrumented { body, scope: self, on_lost, joined: None }
    }
}

pin_project! {
    /// The future of [`LockScope::instrument`]: the output, or how a hold ended.
    #[must_use = "futures do nothing unless polled"]
    pub struct Instrumented<F> {
        // Before the holds, so that a drop ends the body first.
        #[pin]
        body: Scoped<F>,
        scope: LockScope,
        on_lost: OnLost,
        joined: Option<Joined>,
    }
}

/// What a child keeps of its holds while it runs.
#[derive(Debug)]
struct Joined {
    watch: Watch,
    /// Only kept: the holds last as long as this.
    _holds: Vec<Arc<Hold>>,
}

impl LockScope {
    fn frames(&self) -> impl Iterator<Item = &Arc<Frame>> {
        self.frame.iter().flat_map(Frame::outwards)
    }

    fn leases(&self) -> impl Iterator<Item = &Arc<Lease>> {
        self.frames().map(|frame| frame.lease())
    }

    fn join(&self) -> Result<Joined, LockError> {
        // A hold that is gone cannot be joined.
        let holds = self.frames().map(|frame| {
            frame.hold().ok_or_else(|| Over::Released.error(frame.lease().key(), false))
        });
        let holds = holds.collect::<Result<_, _>>()?;
        Ok(Joined { watch: Watch::default(), _holds: holds })
    }
}

impl<F: Future> Future for Instrumented<F> {
    type Output = Result<F::Output, LockError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        if this.body.is_over() {
            // Polled again after it was ready.
            return Poll::Pending;
        }
        let over = match this.on_lost {
            OnLost::Cancel => first_over(this.scope.leases()),
            OnLost::Signal => None,
        };
        let failure = match (over, &this.joined) {
            (None, None) => this.scope.join().map(|joined| *this.joined = Some(joined)).err(),
            (over, _) => over,
        };
        if let Some(error) = failure {
            this.body.clear();
            *this.joined = None;
            return Poll::Ready(Err(error));
        }
        let polled = this.body.as_mut().poll(cx);
        match (&polled, &mut this.joined) {
            (Poll::Pending, Some(joined)) if *this.on_lost == OnLost::Cancel => {
                joined.watch.arm(this.scope.leases(), cx);
            }
            (Poll::Pending, _) => {}
            (Poll::Ready(_), _) => *this.joined = None,
        }
        polled.map(Ok)
    }
}

impl<F> fmt::Debug for Instrumented<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Instrumented").field("scope", &self.scope).finish_non_exhaustive()
    }
}
