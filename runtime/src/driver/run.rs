//! The driver's loop, and the jobs that it sends out.

use std::sync::Arc;
use std::thread;

use tokio::task::JoinSet;

use super::link::Link;
use super::{Core, Turn};
use crate::backend::{StoreError, StoreErrorKind};
use crate::backlog::{Errand, Proof, Release};
use crate::clock::Timestamp;
use crate::protocol::contender::{Granted, Pace, Traces};
use crate::wait::Command;
use crate::watchdog::Batch;

/// Runs the driver on a thread of its own.
pub(super) fn spawn_thread(core: Arc<Core>) {
    let guard = Running(Some(core));
    // If there is no thread or no runtime to be had, the guard is dropped, which tells the waiters;
    // the next change of the state tries again.
    drop(thread::Builder::new().name("distlock-driver".to_owned()).spawn(move || {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map(|runtime| runtime.block_on(drive_guarded(guard)))
    }));
}

/// Runs the driver on the current runtime.
pub(super) async fn drive(core: Arc<Core>) {
    drive_guarded(Running(Some(core))).await;
}

/// Tells the core that its driver is gone, unless the driver said so itself.
struct Running(Option<Arc<Core>>);

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(core) = &self.0 {
            core.driver_died();
        }
    }
}

async fn drive_guarded(mut guard: Running) {
    let Some(core) = guard.0.clone() else { return };
    let link = Arc::new(Link::new());
    // Bounded: one job for each contender, release and batch of holds, and none of these gets
    // another one before this is answered.
    let mut jobs = JoinSet::new();
    loop {
        let turn = core.turn(jobs.is_empty());
        if turn.done {
            // The core knows, under its mutex, that no driver runs; another one may by now.
            guard.0 = None;
            return;
        }
        let sleep_until = turn.sleep_until;
        spawn_jobs(&core, &link, &mut jobs, turn);
        let finished = tokio::select! {
            () = core.wake.notified() => None,
            () = sleep(&core, sleep_until) => None,
            Some(finished) = jobs.join_next() => Some(finished),
        };
        let mut finished = finished.into_iter().chain(std::iter::from_fn(|| jobs.try_join_next()));
        // A job that panicked left something unanswered: the guard has everything tried again.
        if finished.any(|result| result.is_err()) {
            return;
        }
    }
}

async fn sleep(core: &Core, until: Timestamp) {
    if until == Timestamp::NEVER {
        std::future::pending().await
    } else {
        tokio::time::sleep(until.since(core.now())).await;
    }
}

fn spawn_jobs(core: &Arc<Core>, link: &Arc<Link>, jobs: &mut JoinSet<()>, turn: Turn) {
    let both = || (Arc::clone(core), Arc::clone(link));
    for batch in turn.batches {
        let (core, link) = both();
        jobs.spawn(async move { renew(&core, &link, batch).await });
    }
    for command in turn.commands {
        let (core, link) = both();
        jobs.spawn(async move { contend(&core, &link, command).await });
    }
    for errand in turn.errands {
        let (core, link) = both();
        jobs.spawn(async move { release(&core, &link, errand).await });
    }
}

async fn renew(core: &Arc<Core>, link: &Link, batch: Batch) {
    let request = async {
        let channel = link.channel(core).await?;
        let sent_at = core.now();
        let replies = channel.renew(&batch.renewals).await?;
        Ok((sent_at, replies))
    };
    let outcome = tokio::time::timeout(batch.within, request).await.unwrap_or_else(|_| {
        let text = "the store did not answer a renewal in time";
        Err(StoreError::new(StoreErrorKind::Unavailable, text))
    });
    let now = core.now();
    core.change(|state| {
        for (index, id) in batch.ids.iter().enumerate() {
            let (sent_at, reply) = match &outcome {
                // The store answers one for one.
                Ok((sent_at, replies)) => (*sent_at, Ok(replies[index])),
                Err(error) => (now, Err(error.clone())),
            };
            let lease = batch.renewals[index].lease;
            state.watchdog.renewed(*id, reply, (sent_at, lease), now);
        }
    });
}

async fn contend(core: &Arc<Core>, link: &Link, command: Command) {
    match command {
        Command::Contend { lock, lease } => {
            let request = async {
                let channel = link.channel(core).await?;
                let sent_at = core.now();
                let reply = channel.contend(&lock, lease, Pace::KEEP_PLACE).await?;
                Ok((sent_at, reply))
            };
            let outcome = request.await;
            let now = core.now();
            let sent_at = outcome.as_ref().map_or(now, |(sent_at, _)| *sent_at);
            let reply = outcome.map(|(_, reply)| reply);
            let granted = Granted { sent_at, lease };
            core.change(|state| state.waiting.contended(&lock, reply, granted, now));
        }
        Command::Confirm { lock, lease } => {
            let renewal = crate::backend::Renewal { lock: lock.clone(), lease };
            let request = async {
                let channel = link.channel(core).await?;
                let sent_at = core.now();
                let replies = channel.renew(&[renewal]).await?;
                Ok((sent_at, replies[0]))
            };
            let outcome = request.await;
            let now = core.now();
            let sent_at = outcome.as_ref().map_or(now, |(sent_at, _)| *sent_at);
            let reply = outcome.map(|(_, reply)| reply);
            let granted = Granted { sent_at, lease };
            core.change(|state| state.waiting.confirmed(&lock, reply, granted, now));
        }
        Command::GiveUp { lock, lease, traces } => {
            let proof = match traces {
                Traces::None => return,
                Traces::Certain => Proof::AnyAnswer,
                Traces::Uncertain => Proof::FoundOne,
            };
            let until = core.now() + lease;
            core.change(|state| state.backlog.add(Release { lock, proof, until }));
        }
    }
}

async fn release(core: &Arc<Core>, link: &Link, errand: Errand) {
    let request = async {
        let channel = match &errand.channel {
            Some(channel) => Arc::clone(channel),
            None => link.channel(core).await?,
        };
        channel.release(&errand.lock, core.claim).await
    };
    // A channel of a runtime that is not being polled never answers.
    let reply = match &errand.channel {
        Some(_) => tokio::time::timeout(IN_ORDER_WITHIN, request).await.unwrap_or_else(|_| {
            Err(StoreError::new(StoreErrorKind::Unavailable, "the channel is blocked"))
        }),
        None => request.await,
    };
    let now = core.now();
    core.change(|state| state.backlog.answered(errand.id, &reply, now));
    core.note_release(&errand.lock.key, &reply);
}

/// How long a caller's channel gets to undo what was sent on it, before the driver's own is used.
const IN_ORDER_WITHIN: std::time::Duration = std::time::Duration::from_millis(100);
