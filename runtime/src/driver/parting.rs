//! Releases that nobody waits for, on their way by the channels of their callers.
//!
//! Such a release is first polled before anybody can hear that its hold has ended: so on its channel
//! it comes before any later acquire. From then on the backlog has it, and sends it again by the
//! driver's own channel unless an answer comes soon: the caller's runtime may be blocked, or not be
//! polled any more, or end.
//!
//! The answer is taken where it arrives, within the call that would wake a task for it: a task costs
//! the caller's next call a good part of a round trip, for a second thread wakes up to share the work.
//! Whatever is more than one answer goes on in a task all the same.

use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use tokio::runtime::Handle;

use super::Core;
use crate::backend::{BoxFuture, Released, StoreError, StoreErrorKind, StoreResult};
use crate::backlog::{self, Release, ReleaseId};
use crate::clock::Timestamp;
use crate::lease::{Lease, Over};
use crate::protocol::hold::End;
use crate::telemetry;

impl Core {
    /// Sends the release of a hold that was valid until now, and leaves its answer to the background.
    pub(crate) fn release_unawaited(self: &Arc<Self>, release: Release, lease: &Arc<Lease>) {
        let (Some(channel), Ok(here)) = (self.backend.channel(), Handle::try_current()) else {
            return self.release_later(release);
        };
        let mut request = channel.release_in_order(&release.lock, self.tuning.claim);
        let sent_at = self.now();
        let ear = Arc::new(Ear { here, stage: Mutex::new(Stage::Sending) });
        match request.as_mut().poll(&mut Context::from_waker(&Waker::from(Arc::clone(&ear)))) {
            Poll::Ready(reply) => {
                self.note_parting(lease, &reply, true);
                if reply.is_err() {
                    self.release_later(release);
                }
            }
            Poll::Pending => {
                let id = self.change(|state| state.backlog.add_sent(release, sent_at));
                let (core, lease) = (Arc::clone(self), Arc::clone(lease));
                ear.listen(Parting { core, lease, id, answered: false }, request);
            }
        }
    }

    /// Waits for the answer to the release of `owner` that is on its way, or until it was sent in vain,
    /// which the store's time-outs bound.
    pub(crate) async fn parted(&self, owner: &str, since: Timestamp) {
        loop {
            let answered = self.parted.notified();
            if self.lock().backlog.parting(owner, since) != backlog::Parting::OnItsWay {
                return;
            }
            answered.await;
        }
    }

    /// Whether `owner`, whose lock a request sent at `since` has met, gives it up in the background, or
    /// did so meanwhile: then it is worth asking again once it has [parted](Self::parted).
    pub(crate) fn parts(&self, owner: &str, since: Timestamp) -> bool {
        self.instance.made(owner)
            && self.lock().backlog.parting(owner, since) != backlog::Parting::None
    }

    fn note_parting(&self, lease: &Lease, reply: &StoreResult<Released>, is_first: bool) {
        self.note_release(lease.key(), reply);
        match reply {
            Err(error) => telemetry::release_unanswered(lease.lock(), error),
            Ok(reply) if is_first && found_gone(reply, lease, self.now()) => {
                telemetry::release_found_gone(lease.lock(), Over::Lost(End::Taken));
            }
            Ok(_) => {}
        }
    }
}

/// Whether this answer, to the release of a hold that was valid, says that it was not.
///
/// One that came by the deadline was given while the lease still ran; after it, the lease may just
/// have ended on the way, when the body was done.
pub(crate) fn found_gone(reply: &Released, lease: &Lease, now: Timestamp) -> bool {
    matches!(reply, Released::Foreign | Released::Gone | Released::Taken) && now < lease.deadline()
}

/// A release under way on its caller's channel. Dropped with its runtime, it leaves the rest to the
/// driver at once.
struct Parting {
    core: Arc<Core>,
    lease: Arc<Lease>,
    id: ReleaseId,
    answered: bool,
}

impl Parting {
    fn answered(&mut self, reply: &StoreResult<Released>) {
        self.answered = true;
        let now = self.core.now();
        let is_first = self.core.change(|state| state.backlog.answered_there(self.id, reply, now));
        self.core.note_parting(&self.lease, reply, is_first);
        self.core.parted.notify_waiters();
    }
}

impl Drop for Parting {
    fn drop(&mut self) {
        if !self.answered {
            let text = "the runtime that sent it has ended";
            let silence = Err(StoreError::new(StoreErrorKind::Unavailable, text));
            let now = self.core.now();
            self.core.change(|state| state.backlog.answered_there(self.id, &silence, now));
        }
    }
}

/// What a release's answer wakes. It has the request, whose waker it is: that circle ends with the
/// answer, or with the connection if none comes.
///
/// The answers to what was sent on a channel come in order. So as many of these are alive as there were
/// holds at one time, and one for each entry in the backlog.
///
/// It may be woken anywhere, from within the store's own code: no mutex of ours is held in a poll of a
/// request, nor is one needed by whoever wakes; and nothing here may run code of the user's.
struct Ear {
    /// Where the request was first polled, and its timers live.
    here: Handle,
    stage: Mutex<Stage>,
}

enum Stage {
    /// The request is polled for the first time.
    Sending,
    Listening(Parting, BoxFuture<StoreResult<Released>>),
    /// There was a word of it, and whoever heard that has the request.
    Heard,
}

impl Ear {
    /// Has the request answered when it wakes this, or now if it did so already.
    fn listen(&self, parting: Parting, request: BoxFuture<StoreResult<Released>>) {
        let mut stage = self.stage();
        if matches!(*stage, Stage::Sending) {
            *stage = Stage::Listening(parting, request);
        } else {
            drop(stage);
            self.hear(parting, request);
        }
    }

    fn hear(&self, mut parting: Parting, mut request: BoxFuture<StoreResult<Released>>) {
        let at_home = Handle::try_current().is_ok_and(|here| here.id() == self.here.id());
        let reply = if at_home {
            request.as_mut().poll(&mut Context::from_waker(Waker::noop()))
        } else {
            // The request may need the runtime's timers.
            Poll::Pending
        };
        match reply {
            Poll::Ready(reply) if is_as_expected(&reply) => parting.answered(&reply),
            // Is told of, to code of the user's.
            Poll::Ready(reply) => drop(self.here.spawn(async move { parting.answered(&reply) })),
            // Ends with the request, and so within the store's response time-out.
            Poll::Pending => drop(self.here.spawn(async move {
                let reply = request.await;
                parting.answered(&reply);
            })),
        }
    }

    fn stage(&self) -> MutexGuard<'_, Stage> {
        // Each change is one assignment.
        self.stage.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Wake for Ear {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let stage = mem::replace(&mut *self.stage(), Stage::Heard);
        if let Stage::Listening(parting, request) = stage {
            self.hear(parting, request);
        }
    }
}

fn is_as_expected(reply: &StoreResult<Released>) -> bool {
    matches!(reply, Ok(Released::Freed | Released::FreedUntold | Released::Granted { .. }))
}
