//! Carrying a chain's holds into work that runs beside it.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;

use crate::error::LockError;
use crate::hold::Hold;
use crate::lease::Over;
use crate::scope::{self, Frame};
use crate::scoped::Scoped;
use crate::watch::Watch;

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
        Instrumented { body: Scoped::new(future, self.frame.clone()), scope: self, joined: None }
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

    fn join(&self) -> Result<Joined, LockError> {
        // A hold that is gone cannot be joined.
        let holds = self.frames().map(|frame| {
            frame.hold().ok_or_else(|| Over::Released.error(frame.lease().key(), false))
        });
        let holds = holds.collect::<Result<_, _>>()?;
        Ok(Joined { watch: Watch::over(self.frames().map(|frame| frame.lease())), _holds: holds })
    }
}

impl<F: Future> Future for Instrumented<F> {
    type Output = Result<F::Output, LockError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        if this.body.is_over() {
            // Polled again after it was ready.
            return Poll::Pending;
        }
        let joined = match this.joined {
            Some(joined) => Ok(joined),
            None => this.scope.join().map(|joined| this.joined.insert(joined)),
        };
        let over = joined.map(|joined| joined.watch.poll_over(cx));
        if let Some(error) = over.unwrap_or_else(Some) {
            this.body.clear();
            *this.joined = None;
            return Poll::Ready(Err(error));
        }
        let output = ready!(this.body.poll(cx));
        *this.joined = None;
        Poll::Ready(Ok(output))
    }
}

impl<F> fmt::Debug for Instrumented<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Instrumented").field("scope", &self.scope).finish_non_exhaustive()
    }
}
