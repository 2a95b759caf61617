//! What a lock asks of a store.
//!
//! A store keeps one value per key: the owner, with a TTL. It also keeps, per contended key, a
//! queue of contenders (one per waiting process), so that a release can grant the lock to the next
//! one inside the same step. It decides nothing about waiting: when to ask, and what to do with an
//! answer, is up to `protocol`.

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::clock::Clock;

#[cfg(test)]
pub(crate) mod contract;
pub(crate) mod memory;
pub(crate) mod quorum;
#[cfg(feature = "redis")]
pub(crate) mod redis;

/// A future that owns all that it needs.
pub(crate) type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// The answer of a store, or why there is none.
pub(crate) type StoreResult<T> = Result<T, StoreError>;

/// A store of locks.
pub(crate) trait Backend: fmt::Debug + Send + Sync {
    /// The clock by which holds on this store are judged.
    fn clock(&self) -> Clock;

    /// Where the client's driver runs.
    fn driver_home(&self) -> DriverHome;

    /// The channel of the calling runtime, if one is open.
    fn channel(&self) -> Option<Arc<dyn Channel>>;

    /// Opens the channel of the calling runtime, or joins an attempt under way. Takes no longer
    /// than the store's connect time-out.
    fn open(&self) -> BoxFuture<StoreResult<Arc<dyn Channel>>>;

    /// Opens a channel of its own that also delivers `events`, and on which
    /// [`contend`](Channel::contend) is possible. For the driver.
    fn open_listening(&self, events: Weak<dyn Events>) -> BoxFuture<StoreResult<Arc<dyn Channel>>>;
}

/// One ordered way to a store: requests take effect in the order in which they were first polled, but
/// that acquires and releases may wait for others of the same moment.
///
/// A channel never comes back once it is closed. Dropping a request's future does not undo the
/// request: it may or may not take effect, but if it does, then before any that is made after the drop.
/// (A release may also take effect later, with those that it waits for.) No request takes longer than
/// [`answers_within`](Self::answers_within) says.
pub(crate) trait Channel: fmt::Debug + Send + Sync {
    /// Whether requests have a chance: not after a disconnect, nor when the store fell silent.
    fn is_open(&self) -> bool;

    /// How long a request takes at most, an answer being that there is none.
    fn answers_within(&self) -> Duration;

    /// Closes the channel, or the part of it that serves `key`: the store answers elsewhere, so its
    /// silence here is the channel's own.
    fn retire(&self, key: &str);

    /// Which part of the store serves `key`, by a number. Parts fail apart: so what one request asks
    /// of several keys is best asked of one part.
    fn shard(&self, _key: &str) -> usize {
        0
    }

    /// Takes a free lock, or names its owner (perhaps this very one, from an earlier send).
    /// Leaves no trace if the lock is not free.
    fn acquire(&self, lock: &Lock, lease: Duration) -> BoxFuture<StoreResult<Acquired>>;

    /// Takes a free lock, or takes or refreshes this owner's place in the queue of contenders.
    /// Only on a listening channel.
    fn contend(
        &self,
        lock: &Lock,
        lease: Duration,
        keep: Duration,
    ) -> BoxFuture<StoreResult<Contended>>;

    /// Draws the next fencing token for `lock`, if its owner holds it. With `take`, a free lock is
    /// taken for that lease in the same step.
    fn draw(&self, lock: &Lock, take: Option<Duration>) -> BoxFuture<StoreResult<Drawn>>;

    /// Sets the TTLs of locks that their owners still hold, none to a shorter one. One answer each, in
    /// order, of which at least one is an answer; a bad key spoils no other one's.
    fn renew(&self, batch: &[Renewal]) -> BoxFuture<StoreResult<Vec<Renewed>>>;

    /// Ends this owner's hold if there is one, and its place in the queue: grants the lock to the
    /// next contender for `claim`, or frees it. A `claim` of zero frees it, and tells
    /// nobody but the caller.
    fn release(&self, lock: &Lock, claim: Duration) -> BoxFuture<StoreResult<Released>>;

    /// The same, before any later request on this channel. ([`release`](Self::release) may wait for
    /// others of the same moment.)
    fn release_in_order(&self, lock: &Lock, claim: Duration) -> BoxFuture<StoreResult<Released>> {
        self.release(lock, claim)
    }

    /// Who holds `key`, from the store itself.
    fn inspect(&self, key: &Arc<str>) -> BoxFuture<StoreResult<Option<Holder>>>;

    /// Raises the last fencing token of `lock` to `token` at least, if its owner holds it. For a
    /// quorum, which settles on one of several tokens.
    fn raise(&self, _lock: &Lock, _token: u64) -> BoxFuture<StoreResult<Drawn>> {
        Box::pin(async { Err(no_node()) })
    }

    /// Tells the contender at the head of the queue of `key` that the lock is free
    /// ([`Events::next_in_line`], after no time), and the one after it that it is its turn after
    /// `claim`. Whether anybody was told. For a quorum, which frees before it tells.
    fn wake(&self, _key: &Arc<str>, _claim: Duration) -> BoxFuture<StoreResult<bool>> {
        Box::pin(async { Err(no_node()) })
    }

    /// Renews locks of one [`shard`](Self::shard), then waits until `replicas` replicas have that and
    /// all that was written before, or `within` is over: how many have. Holds up whatever else is
    /// asked of that shard on this channel. Without locks it finds out whether the store lets it wait.
    fn renew_on_replicas(
        &self,
        _batch: &[Renewal],
        _replicas: u32,
        _within: Duration,
    ) -> BoxFuture<StoreResult<(Vec<Renewed>, u32)>> {
        let text = "this kind of store has no replicas to wait for";
        Box::pin(async move { Err(StoreError::new(StoreErrorKind::Refused, text)) })
    }

    /// Whether the store can deliver [`Events`] here. Where it cannot, contenders go by timer.
    fn delivers_events(&self) -> bool;
}

/// What a store says unasked. Called from the store's own code: must not block, nor call back into
/// the store.
pub(crate) trait Events: Send + Sync {
    /// `owner`, queued by this process, now owns `key` until its claim lease ends.
    fn granted(&self, key: &str, owner: &str);

    /// The lock went to the contender before `owner`; if that one is dead, `key` is free after
    /// `claim`. With a `claim` of zero nobody has it, and `owner` is the first to know.
    fn next_in_line(&self, key: &str, owner: &str, claim: Duration);

    /// Events may have been missed, and the store may have become another one: what waits and what is
    /// held must be verified.
    fn interrupted(&self);
}

/// Where a client's driver (renewals, contenders, background releases) runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DriverHome {
    /// On the runtime that first needs it: time is that runtime's.
    Caller,
    /// On a thread of its own, where no code of the user's can starve it.
    OwnThread,
}

/// One owner's claim to one key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Lock {
    pub(crate) key: Arc<str>,
    pub(crate) owner: Arc<str>,
}

/// Whose place in a queue a request of `owner` is about. A quorum asks its nodes by a new owner in each
/// round, `<owner>~<round>`, all of one contender.
pub(crate) fn contender_of(owner: &str) -> &str {
    match owner.rsplit_once('~') {
        Some((contender, round))
            if !round.is_empty() && round.bytes().all(|byte| byte.is_ascii_digit()) =>
        {
            contender
        }
        _ => owner,
    }
}

/// Who has a lock, and how long it lasts if nobody renews it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Holder {
    pub(crate) owner: Arc<str>,
    /// `None` for a value without TTL: no lock of anybody's.
    pub(crate) remaining: Option<Duration>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Acquired {
    /// It was free and is ours now.
    Granted,
    /// It is held: by another owner, or by this one already.
    HeldBy(Arc<str>),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Contended {
    /// It was free and is ours now, for the whole lease.
    Granted,
    /// Another owner has it, and the store cannot take places in the queue for the moment.
    #[cfg_attr(not(feature = "cluster"), allow(dead_code))]
    Held { holder: Arc<str>, remaining: Duration },
    /// This very owner has it: by an earlier send, or by a claim. Ownership, not validity.
    Mine,
    /// Queued behind `ahead` others.
    Queued { holder: Arc<str>, remaining: Duration, ahead: usize },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Drawn {
    /// Nobody holds it.
    Gone,
    /// Another owner holds it.
    HeldBy(Arc<str>),
    /// It is ours, and this is higher than every token of the key before.
    Token(u64),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Renewal {
    pub(crate) lock: Lock,
    pub(crate) lease: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::enum_variant_names, reason = "the answer has the name of the question")]
pub(crate) enum Renewed {
    /// The store refused this key for a reason of its own (another type stands there).
    Foreign,
    /// Nobody holds the key: the lease had ended.
    Gone,
    Renewed,
    /// Another owner holds it.
    Taken,
    /// The store said nothing of this key, as it did of others of the batch. Never the answer to all
    /// of a batch, which is an error then.
    Unanswered,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Released {
    Foreign,
    /// It was ours and is free now.
    Freed,
    /// The same, and others queue for it: after a release with a claim of zero, who must tell them.
    FreedUntold,
    /// It had ended before, or was never granted.
    Gone,
    /// It was ours and is now the next contender's.
    Granted {
        owner: Arc<str>,
    },
    /// Another owner holds it.
    Taken,
}

/// Why a store gave no answer.
#[derive(Clone, Debug, Hash)]
pub(crate) struct StoreError {
    pub(crate) kind: StoreErrorKind,
    pub(crate) message: Arc<str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum StoreErrorKind {
    /// What stands under the key is no lock.
    Foreign,
    /// Asking again does not help: wrong password, missing right.
    Refused,
    /// May pass: unreachable, silent, loading, read-only. The request may have taken effect.
    Unavailable,
}

impl StoreError {
    pub(crate) fn new(kind: StoreErrorKind, message: impl Into<Arc<str>>) -> Self {
        Self { kind, message: message.into() }
    }
}

fn no_node() -> StoreError {
    let text = "this kind of store cannot be a node of a quorum";
    StoreError::new(StoreErrorKind::Refused, text)
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for StoreError {}
