//! How a caller gets a hold: one direct try, and if the lock is not free, a turn in the local queue.
//!
//! Whatever the caller may have in the store is in a [`Sent`] or a [`Claim`] from before it is sent.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Poll, Waker, ready};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::timeout;

use crate::backend::{
    Acquired, Channel, Drawn, Holder, Lock, StoreError, StoreErrorKind, StoreResult,
};
use crate::backlog::{Proof, Release};
use crate::claim::{Claim, Sent};
use crate::clock::Timestamp;
use crate::driver::Core;
use crate::error::LockError;
use crate::hold::Hold;
use crate::instance;
use crate::options::Settings;
use crate::protocol::hold::Granted;
use crate::refusal::Refusal;
use crate::wait::{Entry, Ticket};

/// A caller, which stands in the local queue of its key; dropping it leaves.
///
/// Thousands may wait. So there is one of these for each, in one piece, and what is needed only before
/// or after the wait is boxed.
#[derive(Debug)]
pub(crate) struct Caller {
    core: Arc<Core>,
    key: Arc<str>,
    settings: Settings,
    begun_at: Timestamp,
    place: Place,
    /// Where the direct try got no answer.
    silent: Option<Arc<dyn Channel>>,
}

#[derive(Clone, Copy, Debug)]
enum Place {
    Gone,
    Trying(Ticket),
    /// It came in this very poll, and is woken from now on.
    Joined(Ticket),
    Waiting(Ticket),
}

/// How a wait ends.
enum Reached {
    Hold(Hold),
    /// Something is missing before the hold.
    Claim(Claim),
}

impl Caller {
    pub(crate) fn new(core: Arc<Core>, key: Arc<str>, settings: Settings) -> Self {
        let begun_at = Timestamp::NOW;
        Self { core, key, settings, begun_at, place: Place::Gone, silent: None }
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Obtains a hold of the key within `settings.wait()`.
    ///
    /// Awaits: the channel, the direct try, the turn in the queue, a renewal of a grant that came late.
    /// If the caller is dropped at any of them, it leaves the local queue at once, and the backlog
    /// releases what was granted.
    pub(crate) async fn obtain(&mut self) -> Result<Arc<Hold>, LockError> {
        self.begun_at = self.core.now();
        // While the caller is still in the queue, there is something to report.
        self.seek().await.map_err(|refusal| self.error(refusal))
    }

    async fn seek(&mut self) -> Result<Arc<Hold>, Refusal> {
        if Handle::try_current().is_err() {
            return Err(Refusal::NoRuntime);
        }
        poll_fn(|cx| Poll::Ready(self.enter(cx.waker()))).await?;
        if let Place::Trying(ticket) = self.place
            && let Some(hold) = Box::pin(self.try_first(ticket)).await?
        {
            return Ok(hold);
        }
        // In one expression, and nothing of it is left at the next await: else it would be kept twice.
        let reached = timeout(self.left(), poll_fn(|cx| self.look(cx.waker()))).await;
        let settling = match reached.unwrap_or(Err(Refusal::TimedOut))? {
            Reached::Hold(hold) => return Ok(Arc::new(hold)),
            Reached::Claim(claim) => Box::pin(self.settle(claim)),
        };
        settling.await
    }

    fn enter(&mut self, waker: &Waker) -> Result<(), Refusal> {
        let (lease, max_waiters) = (self.settings.lease(), self.settings.max_waiters);
        let may_wait = !self.settings.wait().is_zero();
        let entry = self.core.change(|state| {
            if state.is_shut_down() {
                return Err(Refusal::ShutDown);
            }
            Ok(state.waiting.enter(&self.key, lease, may_wait, max_waiters, waker))
        })?;
        self.place = match entry {
            Entry::Busy => return Err(Refusal::Held(None)),
            Entry::Full => return Err(Refusal::QueueFull),
            Entry::Try(ticket) => Place::Trying(ticket),
            Entry::Wait(ticket, known) => {
                self.key = known;
                Place::Joined(ticket)
            }
        };
        Ok(())
    }

    /// What is left of `wait`.
    fn left(&self) -> Duration {
        self.settings.wait().saturating_sub(self.core.now().since(self.begun_at))
    }

    /// The same, if it is a bound: a single try is bounded by the store's own time-outs.
    fn limit(&self) -> Option<Duration> {
        (!self.settings.wait().is_zero()).then(|| self.left())
    }

    /// The error for a refusal.
    fn error(&self, refusal: Refusal) -> LockError {
        let (core, key) = (&self.core, &self.key);
        let report = core.change(|state| state.waiting.report(key, self.begun_at));
        let now = core.now();
        refusal.error(core.instance(), key, now, now.since(self.begun_at), &report)
    }

    /// `None` if the lock is not to be had at once and the caller has become a waiter.
    async fn try_first(&mut self, ticket: Ticket) -> Result<Option<Arc<Hold>>, Refusal> {
        let open = self.core.open_channel();
        // The usual try needs no timer of its own: the store answers within less than `wait`, or says
        // that it does not.
        let in_time = self.settings.max_waiters > 0
            && open.as_ref().is_some_and(|open| open.answers_within() < self.settings.wait());
        let limit = self.limit().filter(|_| !in_time);
        let tried = bounded(limit, pin!(self.try_directly(ticket, open))).await?;
        let Some(claim) = tried else { return Ok(None) };
        // From here on the claim stands for the caller, in the store and in the queue.
        self.place = Place::Gone;
        if claim.is_settled(&self.settings) {
            return claim.begin(&self.settings).map(Some);
        }
        self.settle(claim).await.map(Some)
    }

    /// Awaits what a claim is missing.
    async fn settle(&self, mut claim: Claim) -> Result<Arc<Hold>, Refusal> {
        bounded(self.limit(), pin!(claim.confirm(&self.settings))).await?;
        claim.begin(&self.settings)
    }

    /// Asks the store itself. `None` if the lock is not to be had at once and the caller has become
    /// a waiter.
    async fn try_directly(
        &mut self,
        ticket: Ticket,
        open: Option<Arc<dyn Channel>>,
    ) -> Result<Option<Claim>, Refusal> {
        let settings = self.settings;
        let goes_on = !settings.wait().is_zero() && settings.max_waiters > 0;
        let lock = Lock { key: Arc::clone(&self.key), owner: self.core.instance().new_owner() };
        let lease = settings.lease();
        let channel = match open {
            Some(channel) => Ok(channel),
            None => self.core.channel().await,
        };
        let refusal = match channel {
            Ok(channel) => {
                let mut sent = Sent::new(&self.core, &lock, &channel, lease);
                let mut sent_at = self.core.now();
                let mut taken = self.take(&*channel, &lock).await;
                if let Ok(Taken::HeldBy(Some(owner))) = &taken
                    && self.core.parts(owner, sent_at)
                {
                    let again = self.take_after(owner, sent_at, &*channel, &lock);
                    (sent_at, taken) = Box::pin(again).await?;
                }
                match taken {
                    Ok(Taken::Granted(token)) => {
                        let granted = Granted::new(sent_at, lease);
                        return Ok(Some(Claim::of_try(sent, granted, token)));
                    }
                    // By an earlier send of this very command: ownership without a start.
                    Ok(Taken::HeldBy(Some(owner))) if owner == lock.owner => {
                        let granted = Granted::new(Timestamp::NOW, lease);
                        return Ok(Some(Claim::of_try(sent, granted, None)));
                    }
                    Ok(Taken::HeldBy(owner)) => {
                        sent.settled = true;
                        let foreign =
                            owner.as_ref().is_some_and(|owner| !instance::is_owner(owner));
                        if !goes_on && foreign {
                            self.check_foreign(&*channel).await?;
                        }
                        Refusal::Held(owner)
                    }
                    Err(error) => {
                        self.silent = Some(Arc::clone(&channel));
                        sent.settled = match error.kind {
                            // If the caller goes on, it does so with this owner; then no release
                            // may be on its way.
                            StoreErrorKind::Unavailable => goes_on,
                            // A store that refused has done nothing, unless the grant was but the
                            // first of two steps.
                            StoreErrorKind::Foreign | StoreErrorKind::Refused => !settings.fencing,
                        };
                        Refusal::Store(error)
                    }
                }
            }
            Err(error) => Refusal::Store(error),
        };
        let unknown = match &refusal {
            Refusal::Store(error) if error.kind != StoreErrorKind::Unavailable => {
                return Err(refusal);
            }
            Refusal::Store(error) => Some((self.core.now() + lease, error.clone())),
            _ => None,
        };
        if !goes_on {
            let full = !settings.wait().is_zero() && matches!(refusal, Refusal::Held(_));
            return Err(if full { Refusal::QueueFull } else { refusal });
        }
        let holder = match refusal {
            Refusal::Held(holder) => holder,
            _ => None,
        };
        let uncertain_until = unknown.as_ref().map(|(until, _)| *until);
        let queued = self.core.change(|state| {
            // Those in the queue were told then; whoever came after them would wait for nothing.
            if state.is_shut_down() {
                return Err(Refusal::ShutDown);
            }
            let owner = Arc::clone(&lock.owner);
            Ok(state.waiting.queue_up(&self.key, ticket, lease, owner, (holder, unknown)))
        });
        if queued.is_ok() {
            self.place = Place::Waiting(ticket);
        }
        let adopted = matches!(queued, Ok(true));
        if let Some(until) = uncertain_until.filter(|_| !adopted) {
            let proof = self.silent.clone().map_or(Proof::FoundOne, Proof::AnswerOn);
            self.core.release_later(Release { lock, proof, until });
        }
        queued.map(|_| None)
    }

    /// Takes the lock once `owner`, who came to the store later with a release than this caller's first
    /// try, is out. With the time of the second try.
    async fn take_after(
        &self,
        owner: &str,
        since: Timestamp,
        channel: &dyn Channel,
        lock: &Lock,
    ) -> Result<(Timestamp, StoreResult<Taken>), Refusal> {
        let again = async {
            self.core.parted(owner, since).await;
            let sent_at = self.core.now();
            Ok((sent_at, self.take(channel, lock).await))
        };
        bounded(self.limit(), pin!(again)).await
    }

    /// Takes the lock if it is free; with `fencing` draws the token in the same step.
    async fn take(&self, channel: &dyn Channel, lock: &Lock) -> StoreResult<Taken> {
        let settings = &self.settings;
        if settings.fencing {
            return Ok(match channel.draw(lock, Some(settings.lease())).await? {
                Drawn::Gone => Taken::HeldBy(None),
                Drawn::HeldBy(owner) => Taken::HeldBy(Some(owner)),
                Drawn::Token(token) => Taken::Granted(Some(token)),
            });
        }
        Ok(match channel.acquire(lock, settings.lease()).await? {
            Acquired::Granted => Taken::Granted(None),
            Acquired::HeldBy(owner) => Taken::HeldBy(Some(owner)),
        })
    }

    /// Fails if what stands there is no lock: a text without TTL, which a waiter would be told of by
    /// the queue's script.
    async fn check_foreign(&self, channel: &dyn Channel) -> Result<(), Refusal> {
        match channel.inspect(&self.key).await {
            Ok(Some(Holder { remaining: None, .. })) => {
                let text = "the key holds a text without TTL, which is no lock";
                Err(StoreError::new(StoreErrorKind::Foreign, text).into())
            }
            Err(error) if error.kind == StoreErrorKind::Foreign => Err(error.into()),
            // That it is held is known already.
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// Looks for the turn. A grant taken in it is in the hold, or in the claim.
    fn look(&mut self, waker: &Waker) -> Poll<Result<Reached, Refusal>> {
        let ticket = match self.place {
            Place::Waiting(ticket) => ticket,
            Place::Joined(ticket) => {
                self.place = Place::Waiting(ticket);
                return Poll::Pending;
            }
            Place::Gone | Place::Trying(_) => return Poll::Ready(Err(Refusal::TimedOut)),
        };
        let (core, settings) = (&self.core, &self.settings);
        // One step, for the sake of those who come one after the other: what is taken begins.
        let reached = core.change(|state| {
            let (lock, granted) = match ready!(state.waiting.poll(&self.key, ticket, waker)) {
                Ok(taken) => taken,
                Err(verdict) => return Poll::Ready(Err(verdict.into())),
            };
            // After a shut-down there is a verdict for each waiter.
            if !settings.fencing && granted.is_fresh(settings.lease(), core.now()) {
                let hold = Hold::begin(core, state, lock, (granted, None), settings.max_hold());
                return Poll::Ready(Ok(Reached::Hold(hold)));
            }
            Poll::Ready(Ok(Reached::Claim(Claim::of_queue(core, lock, granted))))
        });
        if reached.is_ready() {
            self.place = Place::Gone;
            if let (Poll::Ready(Ok(_)), Some(channel)) = (&reached, self.silent.take()) {
                channel.retire(&self.key);
            }
        }
        reached
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        match self.place {
            Place::Gone => {}
            Place::Trying(_) => self.core.change(|state| state.waiting.tried(&self.key, None)),
            Place::Joined(ticket) | Place::Waiting(ticket) => {
                self.core.change(|state| state.waiting.leave(&self.key, ticket));
            }
        }
    }
}

/// What a direct try found.
enum Taken {
    /// Free; with the token if one was drawn.
    Granted(Option<u64>),
    HeldBy(Option<Arc<str>>),
}

/// What comes of `future` within `limit`, if there is one.
async fn bounded<T>(
    limit: Option<Duration>,
    future: Pin<&mut impl Future<Output = Result<T, Refusal>>>,
) -> Result<T, Refusal> {
    match limit {
        None => future.await,
        Some(limit) => timeout(limit, future).await.unwrap_or(Err(Refusal::TimedOut)),
    }
}
