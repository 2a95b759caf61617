//! A lock taken by hand.

use std::fmt;
use std::future::Future;
use std::ops::Deref;
use std::pin::Pin;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;

use crate::checked::Checked;
use crate::entered::Entered;
use crate::error::LockError;
use crate::held::HeldLock;

/// A held lock; dropping it releases in the background.
///
/// Nothing stops code that goes on after the lock is lost: check [`is_lost`](HeldLock::is_lost), or
/// run the code by [`scope`](Self::scope), by [`run`](crate::LockRequest::run) or under the
/// attribute, which drop it.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::LockError> {
/// use distlock::{LockClient, LockKey};
///
/// let locks = LockClient::in_memory();
/// let guard = locks.lock(LockKey::literal("jobs:nightly")).acquire().await?;
/// // ... work, and look at `guard.is_lost()` before what must not happen twice ...
/// guard.release().await?;
/// # Ok(())
/// # }
/// ```
#[must_use = "a guard that is dropped at once releases at once"]
pub struct LockGuard {
    entered: Entered,
    held: HeldLock,
}

impl LockGuard {
    pub(crate) fn new(entered: Entered) -> Self {
        Self { held: entered.held(), entered }
    }

    /// Releases the lock and waits for the store's answer. If there is none, the release is repeated
    /// in the background. With [`Release::Background`](crate::Release::Background) it is sent, and not
    /// waited for.
    ///
    /// # Cancel safety
    ///
    /// A dropped call leaves the release to the background.
    ///
    /// # Errors
    ///
    /// `Lost { completed: true }`, only with `strict`: the lock had ended before, so what was done
    /// under it was perhaps not done alone.
    pub async fn release(self) -> Result<(), LockError> {
        self.entered.release().await
    }

    /// Runs `future` inside this lock: nested calls on the key enter, and if the lock is lost the
    /// future is dropped (unless the lock was taken with [`OnLost::Signal`](crate::OnLost::Signal)).
    ///
    /// # Cancel safety
    ///
    /// Dropping the scope drops `future`; the lock stays with the guard.
    ///
    /// # Errors
    ///
    /// `Lost`, `HoldLimit` or `ShutDown`, as the lock ended; `future` is dropped by then.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::LockError> {
    /// use distlock::{LockClient, LockKey};
    ///
    /// let locks = LockClient::in_memory();
    /// let guard = locks.lock(LockKey::literal("stock:lock:7")).acquire().await?;
    /// let nested = guard.scope(locks.lock(LockKey::literal("stock:lock:7")).acquire()).await??;
    /// # drop(nested);
    /// # guard.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn scope<F: Future>(&self, future: F) -> GuardScope<'_, F> {
        GuardScope { body: Checked::new(future, &self.entered), guard: self }
    }
}

impl Deref for LockGuard {
    type Target = HeldLock;

    fn deref(&self) -> &HeldLock {
        &self.held
    }
}

impl fmt::Debug for LockGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LockGuard").field(&self.held).finish()
    }
}

pin_project! {
    /// The future of [`LockGuard::scope`].
    #[must_use = "futures do nothing unless polled"]
    pub struct GuardScope<'a, F> {
        #[pin]
        body: Checked<F>,
        guard: &'a LockGuard,
    }
}

impl<F: Future> Future for GuardScope<'_, F> {
    type Output = Result<F::Output, LockError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.project().body.poll(cx)
    }
}

impl<F> fmt::Debug for GuardScope<'_, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GuardScope").field("guard", self.guard).finish_non_exhaustive()
    }
}
