//! What a body sees of the lock it runs under.

use std::fmt;
use std::future::poll_fn;
use std::sync::{Arc, Weak};
use std::task::Poll;
use std::time::Duration;

use crate::backend::{Renewal, Renewed};
use crate::driver::Core;
use crate::error::LockError;
use crate::fencing::FencingToken;
use crate::hold::Hold;
use crate::lease::{Lease, Over};
use crate::options::LockOptions;
use crate::protocol::hold::End;
use crate::refusal;
use crate::watch::Watch;
use crate::watchdog::HoldId;

/// A look at a held lock: is it still ours, and for how long.
///
/// Cheap to clone and `'static`, so it can go into tasks and callbacks. It cannot release the lock
/// and does not keep it. A [`LockGuard`](crate::LockGuard) derefs to it; `run`, the attribute's
/// `guard = name` and the layer's extractor hand it out.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::LockError> {
/// use distlock::{LockClient, LockKey};
///
/// let locks = LockClient::in_memory();
/// let sold = locks
///     .lock(LockKey::literal("stock:lock:7"))
///     .run(|held| async move {
///         assert!(!held.is_lost());
///         println!("{} is ours for {:?} without a renewal", held.key(), held.remaining());
///         1
///     })
///     .await?;
/// # assert_eq!(sold, 1);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct HeldLock {
    first: View,
    /// With several keys, the others.
    more: Vec<View>,
}

/// A look at one hold.
#[derive(Clone)]
struct View {
    core: Weak<Core>,
    lease: Arc<Lease>,
    id: HoldId,
}

impl HeldLock {
    /// A look at `holds`, if there is one.
    pub(crate) fn at<'a>(holds: impl IntoIterator<Item = &'a Arc<Hold>>) -> Option<Self> {
        let mut holds = holds.into_iter();
        let mut held = Self { first: View::of(holds.next()?), more: Vec::new() };
        holds.for_each(|hold| held.more.push(View::of(hold)));
        Some(held)
    }

    /// Whether the lock (with several keys: one of them) can no longer be relied on: not confirmed by its local deadline, taken over,
    /// past `max_hold`, or released. Once true it stays true. Looks at the clock, so it is right
    /// even if the process was frozen until now.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.views().any(|view| view.lease.over().is_some())
    }

    /// Waits until the lock can no longer be relied on.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: nothing depends on this future.
    ///
    /// ```
    /// # async fn work() {}
    /// # async fn demo(held: distlock::HeldLock) {
    /// tokio::select! {
    ///     () = work() => println!("done in time"),
    ///     () = held.lost() => println!("stopped: somebody else may work now"),
    /// }
    /// # }
    /// ```
    pub async fn lost(&self) {
        let mut watch = Watch::default();
        poll_fn(|cx| {
            watch.arm(self.views().map(|view| &view.lease), cx);
            if self.is_lost() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    /// How long the lock is ours without another renewal, by our clock's conservative view. Zero
    /// once it is lost. The watchdog renews it, so this goes up again while the body runs.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.views().map(|view| view.lease.remaining()).min().unwrap_or_default()
    }

    /// Renews the lock now, to `lease` from now on instead of what it was taken with. Never reaches
    /// past `max_hold`.
    ///
    /// # Cancel safety
    ///
    /// A dropped call may or may not have set the TTL in the store; the lock stays ours either way,
    /// until the deadline known before.
    ///
    /// # Errors
    ///
    /// - `Lost`: the lock is not ours any more.
    /// - `Config`: `lease` is below 100 ms.
    /// - `Backend`: the store did not answer; the watchdog goes on trying.
    pub async fn extend(&self, lease: Duration) -> Result<(), LockError> {
        LockOptions::new().lease(lease).resolve()?;
        for view in self.views() {
            view.extend(lease).await?;
        }
        Ok(())
    }

    /// The fencing token of this hold, the same for all who are inside; drawn from the store when it is
    /// first asked for, unless the lock was taken with [`fencing`](crate::LockOptions::fencing). With
    /// several keys, that of [`key`](Self::key).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: at worst a number is skipped.
    ///
    /// # Errors
    ///
    /// - `Lost`, `HoldLimit`, `ShutDown`: the lock is not ours any more, and so gets no token.
    /// - `Backend`: the store did not answer.
    pub async fn fencing_token(&self) -> Result<FencingToken, LockError> {
        self.first.fencing_token().await.map(FencingToken::new)
    }

    /// The key, as it stands in the store; with several keys the first one in the order of bytes.
    #[must_use]
    pub fn key(&self) -> &str {
        self.first.lease.key()
    }

    /// Our owner string, `<instance>/<uuid>`: the value that stands under the key.
    #[must_use]
    pub fn owner(&self) -> &str {
        &self.first.lease.lock().owner
    }

    /// Fails if the lock is lost; for the `?` in front of a step that must not run without it.
    ///
    /// # Errors
    ///
    /// `Lost`, `HoldLimit` or `ShutDown`, as the lock ended.
    pub fn check(&self) -> Result<(), LockError> {
        match self.views().find_map(|view| Some((view, view.lease.over()?))) {
            None => Ok(()),
            Some((view, over)) => Err(over.error(view.lease.key(), false)),
        }
    }

    /// [`fencing_token`](Self::fencing_token), blocking the calling thread.
    ///
    /// # Errors
    ///
    /// As [`fencing_token`](Self::fencing_token).
    #[cfg(feature = "blocking")]
    pub fn blocking_fencing_token(&self) -> Result<FencingToken, LockError> {
        self.block_on(|held| async move { held.fencing_token().await })
    }

    /// [`extend`](Self::extend), blocking the calling thread.
    ///
    /// # Errors
    ///
    /// As [`extend`](Self::extend).
    #[cfg(feature = "blocking")]
    pub fn blocking_extend(&self, lease: Duration) -> Result<(), LockError> {
        self.block_on(move |held| async move { held.extend(lease).await })
    }

    #[cfg(feature = "blocking")]
    fn block_on<T, F>(&self, call: impl FnOnce(Self) -> F) -> Result<T, LockError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, LockError>> + Send + 'static,
    {
        let core = self.first.core.upgrade();
        let outcome = core.and_then(|core| core.block_on(call(self.clone())));
        outcome.unwrap_or_else(|| Err(Over::Released.error(self.first.lease.key(), false)))
    }

    fn views(&self) -> impl Iterator<Item = &View> {
        std::iter::once(&self.first).chain(&self.more)
    }
}

impl View {
    fn of(hold: &Hold) -> Self {
        let core = Arc::downgrade(hold.core());
        Self { core, lease: Arc::clone(hold.lease()), id: hold.id() }
    }

    async fn fencing_token(&self) -> Result<u64, LockError> {
        let key = self.lease.key();
        let still_ours = || match self.lease.over() {
            None => Ok(()),
            Some(over) => Err(over.error(key, false)),
        };
        still_ours()?;
        if let Some(token) = self.lease.token() {
            return Ok(token);
        }
        let core = self.core.upgrade().ok_or_else(|| Over::Released.error(key, false))?;
        let drawn = core.draw(self.lease.lock()).await;
        // A token that arrives after the hold is nobody's: the lock may have been passed on under
        // the same owner, and the next one's token may be lower.
        still_ours()?;
        let drawn = drawn.map_err(|error| refusal::store(error).with_key(key))?;
        Ok(self.lease.set_token(drawn))
    }

    async fn extend(&self, lease: Duration) -> Result<(), LockError> {
        let key = self.lease.key();
        if let Some(over) = self.lease.over() {
            return Err(over.error(key, false));
        }
        let core = self.core.upgrade().ok_or_else(|| Over::Released.error(key, false))?;
        let request = async {
            let channel = core.channel().await?;
            let sent_at = core.now();
            // Only now: connecting may have taken its time.
            let lease = lease.min(self.lease.limit().since(sent_at));
            let renewal = Renewal { lock: self.lease.lock().clone(), lease };
            Ok((sent_at, lease, channel.renew(&[renewal]).await?))
        };
        let (sent_at, lease, replies) =
            request.await.map_err(|error| refusal::store(error).with_key(key))?;
        if replies.first() == Some(&Renewed::Renewed) {
            core.change(|state| state.watchdog.extended(self.id, sent_at, lease));
            return Ok(());
        }
        self.lease.end(End::Taken);
        core.change(|state| {
            state.watchdog.remove(self.id);
            state.waiting.hold_ended(self.lease.lock());
        });
        Err(Over::Lost(End::Taken).error(key, false))
    }
}

impl fmt::Debug for HeldLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HeldLock")
            .field("key", &self.key())
            .field("owner", &self.owner())
            .field("remaining", &self.remaining())
            .finish()
    }
}
