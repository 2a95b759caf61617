//! The driver's loop, and the jobs that it sends out.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;

use tokio::task::JoinSet;

use super::link::Link;
use super::{Core, Place, Turn};
use crate::backend::{
    BoxFuture, Channel, Released, Renewal, Renewed, StoreError, StoreErrorKind, StoreResult,
};
use crate::backlog::{Errand, Release};
use crate::backoff::Chance;
use crate::clock::Timestamp;
use crate::join::all;
use crate::protocol::contender::Pace;
use crate::protocol::hold::{End, Granted};
use crate::telemetry;
use crate::wait::Command;
use crate::watchdog::Batch;

/// Runs the driver on a thread of its own.
pub(super) fn spawn_thread(core: Arc<Core>, place: Place) {
    let mut guard = Running { core, place, armed: true, began: false };
    // If there is no thread or no runtime to be had, the guard is dropped, which tells the waiters;
    // the next change of the state tries again.
    drop(thread::Builder::new().name("distlock-driver".to_owned()).spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        #[cfg(feature = "blocking")]
        guard.core.thread.set(Some(runtime.handle().clone()));
        runtime.block_on(guard.drive());
        std::io::Result::Ok(())
    }));
}

/// Runs the driver on the current runtime.
pub(super) async fn drive(core: Arc<Core>, place: Place) {
    Running { core, place, armed: true, began: false }.drive().await;
}

/// A driver; tells the core when it is gone, however it went.
struct Running {
    core: Arc<Core>,
    place: Place,
    armed: bool,
    /// Whether there was a thread or a task for it at all.
    began: bool,
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.armed {
            return;
        }
        let wakers = self.core.driver_died(self.place);
        // Code of the user's panicked in a job (a waker, a subscriber of traces): what is held must be
        // renewed all the same. Before the wakers, one of which it may have been.
        if self.began && self.place == Place::OwnThread {
            self.core.change(|_| ());
        }
        wakers.wake();
    }
}

impl Running {
    async fn drive(&mut self) {
        self.began = true;
        let core = &self.core;
        let link = Arc::new(Link::new());
        // Bounded: one job for each contender, release and batch of holds, and none of these gets
        // another one before this is answered.
        let mut under_way = JoinSet::new();
        loop {
            // Created before the look at the state, so that a change after it is not missed.
            let woken = core.wake.notified();
            let turn = core.turn(self.place, under_way.is_empty());
            if turn.done {
                // The core noted it under its mutex; another driver may be here by now.
                self.armed = false;
                return;
            }
            let sleep_until = turn.sleep_until;
            turn.ended.iter().for_each(|(lock, end)| telemetry::ended(lock, *end));
            for job in jobs(core, &link, turn) {
                match self.place {
                    Place::OwnThread => drop(under_way.spawn(job)),
                    // The store answers within the same poll, so nothing is ever half done on a
                    // runtime that stops being polled.
                    Place::Runtime(_) => job.await,
                }
            }
            let finished = tokio::select! {
                () = woken => None,
                () = sleep(core, sleep_until) => None,
                Some(finished) = under_way.join_next() => Some(finished),
            };
            let more = std::iter::from_fn(|| under_way.try_join_next());
            // A job that panicked left something unanswered: the guard has it all tried again.
            if finished.into_iter().chain(more).any(|result| result.is_err()) {
                return;
            }
        }
    }
}

async fn sleep(core: &Core, until: Timestamp) {
    if until == Timestamp::NEVER {
        std::future::pending::<()>().await;
    } else {
        tokio::time::sleep(until.since(core.now())).await;
    }
}

/// What a turn asks for, ready to be polled.
fn jobs(core: &Arc<Core>, link: &Arc<Link>, turn: Turn) -> Vec<BoxFuture<()>> {
    let mut jobs: Vec<BoxFuture<()>> = Vec::new();
    let both = || (Arc::clone(core), Arc::clone(link));
    for batch in turn.batches {
        let (core, link) = both();
        jobs.push(Box::pin(async move { renew(&core, &link, batch).await }));
    }
    for command in turn.commands {
        let (core, link) = both();
        jobs.push(Box::pin(async move { contend(&core, &link, command).await }));
    }
    for errand in turn.errands {
        let (core, link) = both();
        jobs.push(Box::pin(async move { release(&core, &link, errand).await }));
    }
    jobs
}

async fn renew(core: &Arc<Core>, link: &Arc<Link>, batch: Batch) {
    let began_at = core.now();
    let opened = tokio::time::timeout(batch.within, link.channel(core)).await;
    let channel = match opened.unwrap_or_else(|_| Err(late())) {
        Ok(channel) => channel,
        Err(error) => return renewed(core, &batch, Err(error), core.now()),
    };
    let within = batch.within.saturating_sub(core.now().since(began_at));
    // What one part of the store says must not wait for what another one leaves unsaid.
    let mut parts: BTreeMap<usize, Batch> = BTreeMap::new();
    for (id, renewal) in batch.ids.into_iter().zip(batch.renewals) {
        let part = parts.entry(channel.shard(&renewal.lock.key)).or_default();
        part.ids.push(id);
        part.renewals.push(renewal);
    }
    let parts = parts.into_values().map(|part| {
        let channel = &channel;
        Box::pin(async move {
            let sent_at = core.now();
            let request = tokio::time::timeout(within, channel.renew(&part.renewals));
            let outcome = request.await.unwrap_or_else(|_| {
                // There is no time to find out whether the store is slow or the connection dead.
                if let Some(renewal) = part.renewals.first() {
                    channel.retire(&renewal.lock.key);
                }
                Err(late())
            });
            renewed(core, &part, outcome, sent_at);
        })
    });
    all(parts.collect()).await;
}

/// The store answered renewals sent at `sent_at`, or did not.
fn renewed(
    core: &Arc<Core>,
    batch: &Batch,
    outcome: StoreResult<Vec<Renewed>>,
    sent_at: Timestamp,
) {
    match &outcome {
        Ok(replies) => {
            let left = replies.iter().filter(|reply| **reply == Renewed::Unanswered).count();
            if left > 0 {
                let text = "a part of the store did not answer";
                let error = StoreError::new(StoreErrorKind::Unavailable, text);
                telemetry::renewal_failed(left, &error);
            }
        }
        Err(error) => telemetry::renewal_failed(batch.ids.len(), error),
    }
    let ends = |reply: Renewed| !matches!(reply, Renewed::Renewed | Renewed::Unanswered);
    let now = core.now();
    core.change(|state| {
        for (index, id) in batch.ids.iter().enumerate() {
            // The store answers one for one.
            let reply = outcome.as_ref().map(|replies| replies[index]).map_err(|_| ());
            let Renewal { lock, lease } = &batch.renewals[index];
            state.watchdog.renewed(*id, reply, (sent_at, *lease), now);
            if reply.is_ok_and(ends) {
                state.waiting.hold_ended(lock);
            }
        }
    });
    for (renewal, reply) in batch.renewals.iter().zip(outcome.into_iter().flatten()) {
        if ends(reply) {
            telemetry::ended(&renewal.lock, End::Taken);
        }
    }
}

fn late() -> StoreError {
    let text = "the store did not answer a renewal in time";
    StoreError::new(StoreErrorKind::Unavailable, text)
}

async fn contend(core: &Arc<Core>, link: &Arc<Link>, command: Command) {
    match command {
        Command::Contend { lock, lease } => {
            let (sent_at, reply) =
                ask(core, link, |channel| channel.contend(&lock, lease, Pace::KEEP_PLACE)).await;
            let granted = Granted::new(sent_at, lease);
            core.change(|state| state.waiting.contended(&lock, reply, granted));
        }
        Command::Confirm { lock, lease } => {
            let renewal = [Renewal { lock: lock.clone(), lease }];
            let (sent_at, replies) = ask(core, link, |channel| channel.renew(&renewal)).await;
            // The store answers one for one.
            let reply = replies.map(|replies| replies[0]);
            let granted = Granted::new(sent_at, lease);
            core.change(|state| state.waiting.confirmed(&lock, reply, granted));
        }
        Command::GiveUp { lock, lease, traces } => {
            if let Some(release) = Release::of_traces(lock, lease, traces, core.now()) {
                core.change(|state| state.backlog.add(release));
            }
        }
    }
}

/// Sends a request on the link; with when it was sent.
async fn ask<T>(
    core: &Arc<Core>,
    link: &Arc<Link>,
    request: impl FnOnce(&dyn Channel) -> BoxFuture<StoreResult<T>>,
) -> (Timestamp, StoreResult<T>) {
    match link.channel(core).await {
        Ok(channel) => {
            let sent_at = core.now();
            (sent_at, request(&*channel).await)
        }
        Err(error) => (core.now(), Err(error)),
    }
}

async fn release(core: &Arc<Core>, link: &Arc<Link>, errand: Errand) {
    let Errand { id, lock, channel } = errand;
    let claim = core.tuning().claim;
    let answered = |reply: StoreResult<Released>| {
        let now = core.now();
        core.change(|state| state.backlog.answered(id, &reply, now, Chance::roll()));
        core.note_release(&lock.key, &reply);
        core.parted.notify_waiters();
    };
    let Some(channel) = channel else {
        let request = async { link.channel(core).await?.release(&lock, claim).await };
        return answered(request.await);
    };
    // By a command of its own: others of the moment would be sent when that runtime is polled.
    let mut in_order = channel.release_in_order(&lock, claim);
    if let Ok(reply) = tokio::time::timeout(IN_ORDER_WITHIN, &mut in_order).await {
        return answered(reply);
    }
    // The channel of a runtime that is not being polled never answers: on by the driver's own.
    let text = "the channel is blocked";
    answered(Err(StoreError::new(StoreErrorKind::Unavailable, text)));
    // If it is only slow, its answer proves what no other one can. A runtime that stands still does not
    // even find it late.
    let reply = tokio::time::timeout(channel.answers_within(), in_order).await;
    if let Ok(reply @ Ok(_)) = reply {
        core.change(|state| state.backlog.settle(id, core.now()));
        core.note_release(&lock.key, &reply);
    }
}

/// How long a caller's channel gets to undo what was sent on it, before the driver's own is used.
const IN_ORDER_WITHIN: std::time::Duration = std::time::Duration::from_millis(100);
