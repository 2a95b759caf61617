//! Carrying a chain's holds into work that runs beside it.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;
use tokio::sync::futures::OwnedNotified;

use crate::error::LockError;
use crate::hold::Hold;
use crate::lease::Over;
use crate::scope::{self, Frame};

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
        Instrumented { body: Some(future), scope: self, joined: None }
    }
}

/// What a child keeps of its holds while it runs.
struct Joined {
    holds: Vec<Arc<Hold>>,
    ended: Vec<Pin<Box<OwnedNotified>>>,
}

pin_project! {
    /// The future of [`LockScope::instrument`]: the output, or how a hold ended.
    #[must_use = "futures do nothing unless polled"]
    pub struct Instrumented<F> {
        // Before the holds, so that a drop ends the body first.
        #[pin]
        body: Option<F>,
        scope: LockScope,
        joined: Option<Joined>,
    }
}

impl LockScope {
    fn frames(&self) -> impl Iterator<Item = &Arc<Frame>> {
        self.frame.iter().flat_map(Frame::outwards)
    }

    /// How one of the holds ended, if one did.
    fn over(&self) -> Option<LockError> {
        self.frames().find_map(|frame| {
            let lease = frame.lease();
            lease.over().map(|over| over.error(lease.key(), false))
        })
    }

    fn join(&self) -> Result<Joined, LockError> {
        let holds = self.frames().map(|frame| {
            frame.hold().ok_or_else(|| Over::Released.error(frame.lease().key(), false))
        });
        Ok(Joined {
            holds: holds.collect::<Result<_, _>>()?,
            ended: self.frames().map(|frame| Box::pin(frame.lease().ended())).collect(),
        })
    }
}

impl<F: Future> Future for Instrumented<F> {
    type Output = Result<F::Output, LockError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        if this.body.is_none() {
            // Polled again after it was ready.
            return Poll::Pending;
        }
        let over = this.scope.over();
        let failure = match (over, &this.joined) {
            (None, None) => this.scope.join().map(|joined| *this.joined = Some(joined)).err(),
            (over, _) => over,
        };
        if let Some(error) = failure {
            this.body.set(None);
            *this.joined = None;
            return Poll::Ready(Err(error));
        }
        for ended in this.joined.iter_mut().flat_map(|joined| &mut joined.ended) {
            if ended.as_mut().poll(cx).is_ready() {
                cx.waker().wake_by_ref();
            }
        }
        let Some(body) = this.body.as_mut().as_pin_mut() else { return Poll::Pending };
        let polled = scope::inside(this.scope.frame.clone(), || body.poll(cx));
        polled.map(|output| {
            this.body.set(None);
            *this.joined = None;
            Ok(output)
        })
    }
}

impl<F> fmt::Debug for Instrumented<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Instrumented").field("scope", &self.scope).finish_non_exhaustive()
    }
}

impl fmt::Debug for Joined {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.holds).finish()
    }
}
