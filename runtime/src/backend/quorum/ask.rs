//! What a round that takes a lock asks of one node.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use crate::backend::{Acquired, BoxFuture, Channel, Contended, Drawn, Lock, StoreResult};

/// What each node is asked.
#[derive(Clone, Copy)]
pub(super) enum Ask {
    Acquire,
    Contend { keep: Duration },
    Draw,
}

/// One node's answer.
pub(super) enum Answer {
    Granted(Option<u64>),
    HeldBy(Arc<str>),
    Mine,
    Queued { holder: Arc<str>, remaining: Duration, ahead: usize },
}

/// Asks; it is sent at the first poll.
pub(super) fn send(
    channel: &Arc<dyn Channel>,
    lock: &Lock,
    lease: Duration,
    ask: Ask,
) -> impl Future<Output = StoreResult<Answer>> + Send + use<> {
    enum Sent {
        Acquire(BoxFuture<StoreResult<Acquired>>),
        Contend(BoxFuture<StoreResult<Contended>>),
        Draw(BoxFuture<StoreResult<Drawn>>),
    }
    let sent = match ask {
        Ask::Acquire => Sent::Acquire(channel.acquire(lock, lease)),
        Ask::Contend { keep } => Sent::Contend(channel.contend(lock, lease, keep)),
        Ask::Draw => Sent::Draw(channel.draw(lock, Some(lease))),
    };
    async move {
        Ok(match sent {
            Sent::Acquire(request) => match request.await? {
                Acquired::Granted => Answer::Granted(None),
                Acquired::HeldBy(holder) => Answer::HeldBy(holder),
            },
            Sent::Contend(request) => match request.await? {
                Contended::Granted => Answer::Granted(None),
                Contended::Mine => Answer::Mine,
                Contended::Queued { holder, remaining, ahead } => {
                    Answer::Queued { holder, remaining, ahead }
                }
                // Without a place in that node's queue.
                Contended::Held { holder, .. } => Answer::HeldBy(holder),
            },
            Sent::Draw(request) => match request.await? {
                Drawn::Token(token) => Answer::Granted(Some(token)),
                Drawn::HeldBy(holder) => Answer::HeldBy(holder),
                // Free, and yet not taken: that is no answer to this question.
                Drawn::Gone => Answer::HeldBy("".into()),
            },
        })
    }
}
