//! How a caller gets a hold: one direct try, and if the lock is not free, a turn in the local queue.
//!
//! Whatever the caller may have in the store is in a [`Sent`] or a [`Claim`] from before it is sent.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

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

/// Obtains a hold of `key` within `settings.wait`.
///
/// Awaits: the channel, the direct try, the turn in the queue, a renewal of a grant that came late.
/// A drop at any of them leaves the local queue at once, and the backlog releases what was granted.
pub(crate) async fn obtain(
    core: &Arc<Core>,
    key: &Arc<str>,
    settings: &Settings,
) -> Result<Arc<Hold>, LockError> {
    let begun_at = core.now();
    let outcome = within(core, key, settings, begun_at).await;
    outcome.map_err(|(refusal, report)| {
        refusal.error(core.instance(), key, core.now(), core.now().since(begun_at), &report)
    })
}

async fn within(
    core: &Arc<Core>,
    key: &Arc<str>,
    settings: &Settings,
    begun_at: Timestamp,
) -> Result<Arc<Hold>, (Refusal, crate::wait::Report)> {
    let report = || core.change(|state| state.waiting.report(key, begun_at));
    if tokio::runtime::Handle::try_current().is_err() {
        return Err((Refusal::NoRuntime, report()));
    }
    let mut caller = Caller::enter(core, key, settings).map_err(|refusal| (refusal, report()))?;
    let outcome = caller.seek(settings, begun_at).await;
    // While the caller is still in the queue, there is something to report.
    outcome.map_err(|refusal| (refusal, report()))
}

/// A caller that stands in the local queue of its key; dropping it leaves.
#[derive(Debug)]
struct Caller<'a> {
    core: &'a Arc<Core>,
    key: &'a Arc<str>,
    place: Place,
    /// Where the direct try got no answer.
    silent: Option<Arc<dyn Channel>>,
}

#[derive(Clone, Copy, Debug)]
enum Place {
    Gone,
    Trying(Ticket),
    Waiting(Ticket),
}

impl<'a> Caller<'a> {
    fn enter(core: &'a Arc<Core>, key: &'a Arc<str>, settings: &Settings) -> Result<Self, Refusal> {
        let may_wait = !settings.wait.is_zero();
        let entry = core.change(|state| {
            if state.is_shut_down() {
                return Err(Refusal::ShutDown);
            }
            Ok(state.waiting.enter(key, settings.lease, may_wait, settings.max_waiters))
        })?;
        let place = match entry {
            Entry::Busy => return Err(Refusal::Held(None)),
            Entry::Full => return Err(Refusal::QueueFull),
            Entry::Try(ticket) => Place::Trying(ticket),
            Entry::Wait(ticket) => Place::Waiting(ticket),
        };
        Ok(Self { core, key, place, silent: None })
    }

    async fn seek(
        &mut self,
        settings: &Settings,
        begun_at: Timestamp,
    ) -> Result<Arc<Hold>, Refusal> {
        let mut claim = match self.place {
            Place::Trying(ticket) => self.try_in_time(ticket, settings).await?,
            Place::Gone | Place::Waiting(_) => None,
        };
        if !claim.as_ref().is_some_and(|claim| claim.is_settled(settings)) {
            let spent = self.core.now().since(begun_at);
            // A single try is bounded by the store's own time-outs.
            let wait = Some(settings.wait).filter(|wait| !wait.is_zero());
            let left = wait.map(|wait| wait.saturating_sub(spent));
            bounded(left, pin!(self.go_on(&mut claim, settings))).await?;
        }
        // There is one: else that was an error.
        claim.ok_or(Refusal::TimedOut)?.begin(settings)
    }

    /// The usual try needs no timer of its own: the store answers within less than `wait`, or says that
    /// it does not.
    async fn try_in_time(
        &mut self,
        ticket: Ticket,
        settings: &Settings,
    ) -> Result<Option<Claim>, Refusal> {
        let open = self.core.open_channel();
        let wait = Some(settings.wait).filter(|wait| !wait.is_zero());
        let in_time = settings.max_waiters > 0
            && open.as_ref().is_some_and(|open| open.answers_within() < settings.wait);
        let limit = wait.filter(|_| !in_time);
        // Boxed, so that those who go on to wait, perhaps thousands, do not keep its space.
        bounded(limit, Box::pin(self.try_directly(ticket, settings, open)).as_mut()).await
    }

    /// Makes a settled claim of `claim`, which is none for a waiter.
    async fn go_on(
        &mut self,
        claim: &mut Option<Claim>,
        settings: &Settings,
    ) -> Result<(), Refusal> {
        if claim.is_none() {
            *claim = Some(self.wait().await?);
        }
        if let Some(claim) = claim.as_mut().filter(|claim| !claim.is_settled(settings)) {
            // Boxed for the waiters, as above.
            Box::pin(claim.confirm(settings)).await?;
        }
        Ok(())
    }

    /// Asks the store itself. `None` if the lock is not to be had at once and the caller has become
    /// a waiter.
    async fn try_directly(
        &mut self,
        ticket: Ticket,
        settings: &Settings,
        open: Option<Arc<dyn Channel>>,
    ) -> Result<Option<Claim>, Refusal> {
        let goes_on = !settings.wait.is_zero() && settings.max_waiters > 0;
        let lock = Lock { key: Arc::clone(self.key), owner: self.core.instance().new_owner() };
        let lease = settings.lease;
        let channel = match open {
            Some(channel) => Ok(channel),
            None => self.core.channel().await,
        };
        let refusal = match channel {
            Ok(channel) => {
                let mut sent = Sent::new(self.core, &lock, &channel, lease);
                let mut sent_at = self.core.now();
                let mut taken = self.take(&*channel, &lock, settings).await;
                if let Ok(Taken::HeldBy(Some(owner))) = &taken
                    && self.core.parts(owner, sent_at)
                {
                    let again = self.take_after(owner, sent_at, &*channel, &lock, settings);
                    (sent_at, taken) = Box::pin(again).await?;
                }
                match taken {
                    Ok(Taken::Granted(token)) => {
                        let granted = Granted::new(sent_at, lease);
                        return Ok(Some(self.granted(sent, granted, token)));
                    }
                    // By an earlier send of this very command: ownership without a start.
                    Ok(Taken::HeldBy(Some(owner))) if owner == lock.owner => {
                        let granted = Granted::new(Timestamp::NOW, lease);
                        return Ok(Some(self.granted(sent, granted, None)));
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
            let full = !settings.wait.is_zero() && matches!(refusal, Refusal::Held(_));
            return Err(if full { Refusal::QueueFull } else { refusal });
        }
        let holder = match refusal {
            Refusal::Held(holder) => holder,
            _ => None,
        };
        let uncertain_until = unknown.as_ref().map(|(until, _)| *until);
        let adopted = self.core.change(|state| {
            let owner = Arc::clone(&lock.owner);
            state.waiting.queue_up(self.key, ticket, lease, owner, (holder, unknown))
        });
        self.place = Place::Waiting(ticket);
        if let Some(until) = uncertain_until.filter(|_| !adopted) {
            let proof = self.silent.clone().map_or(Proof::FoundOne, Proof::AnswerOn);
            self.core.release_later(Release { lock, proof, until });
        }
        Ok(None)
    }

    /// Takes the lock once `owner`, who came to the store later with a release than this caller's first
    /// try, is out. With the time of the second try.
    async fn take_after(
        &self,
        owner: &str,
        since: Timestamp,
        channel: &dyn Channel,
        lock: &Lock,
        settings: &Settings,
    ) -> Result<(Timestamp, StoreResult<Taken>), Refusal> {
        let spent = self.core.now().since(since);
        let left = Some(settings.wait).filter(|wait| !wait.is_zero());
        let left = left.map(|wait| wait.saturating_sub(spent));
        let again = async {
            self.core.parted(owner, since).await;
            let sent_at = self.core.now();
            Ok((sent_at, self.take(channel, lock, settings).await))
        };
        bounded(left, pin!(again)).await
    }

    /// Takes the lock if it is free; with `fencing` draws the token in the same step.
    async fn take(
        &self,
        channel: &dyn Channel,
        lock: &Lock,
        settings: &Settings,
    ) -> StoreResult<Taken> {
        if settings.fencing {
            return Ok(match channel.draw(lock, Some(settings.lease)).await? {
                Drawn::Gone => Taken::HeldBy(None),
                Drawn::HeldBy(owner) => Taken::HeldBy(Some(owner)),
                Drawn::Token(token) => Taken::Granted(Some(token)),
            });
        }
        Ok(match channel.acquire(lock, settings.lease).await? {
            Acquired::Granted => Taken::Granted(None),
            Acquired::HeldBy(owner) => Taken::HeldBy(Some(owner)),
        })
    }

    /// Fails if what stands there is no lock: a text without TTL, which a waiter would be told of by
    /// the queue's script.
    async fn check_foreign(&self, channel: &dyn Channel) -> Result<(), Refusal> {
        match channel.inspect(self.key).await {
            Ok(Some(Holder { remaining: None, .. })) => {
                let text = "the key holds a text without TTL, which is no lock";
                Err(StoreError::new(StoreErrorKind::Foreign, text).into())
            }
            Err(error) if error.kind == StoreErrorKind::Foreign => Err(error.into()),
            // That it is held is known already.
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// From here on the claim stands for the caller, in the store and in the queue.
    fn granted(&mut self, sent: Sent<'_>, granted: Granted, token: Option<u64>) -> Claim {
        self.place = Place::Gone;
        Claim::of_try(sent, granted, token)
    }

    /// Waits for the turn. A drop leaves the queue; a grant taken before is in the claim.
    async fn wait(&mut self) -> Result<Claim, Refusal> {
        let Place::Waiting(ticket) = self.place else { return Err(Refusal::TimedOut) };
        let turn = poll_fn(|cx| {
            self.core.change(|state| state.waiting.poll(self.key, ticket, cx.waker()))
        });
        let outcome = turn.await;
        self.place = Place::Gone;
        let (lock, granted) = outcome?;
        if let Some(channel) = self.silent.take() {
            channel.retire(self.key);
        }
        Ok(Claim::of_queue(self.core, lock, granted))
    }
}

impl Drop for Caller<'_> {
    fn drop(&mut self) {
        match self.place {
            Place::Gone => {}
            Place::Trying(_) => self.core.change(|state| state.waiting.tried(self.key, None)),
            Place::Waiting(ticket) => {
                self.core.change(|state| state.waiting.leave(self.key, ticket));
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
