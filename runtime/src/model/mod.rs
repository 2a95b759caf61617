//! The protocol, tried in every order: two processes, up to two callers in each, one lock.
//!
//! A model checker ([`stateright`]) takes every path through a small world in which everything that
//! can happen at a time may happen next, and looks for a state that breaks one of the [`rules`].
//! What decides in this world is the library's own code: the contender, the offer, the turn and the
//! hold (`protocol/`), the queue of a process ([`Waiting`](crate::wait::Waiting)), the
//! [`Backlog`](crate::backlog::Backlog), and the store's decisions
//! ([`State`](crate::backend::memory::state::State), the same as the Redis scripts).
//! What stands around it here is what is asynchronous there: [`caller`] for `obtain`, `hold`
//! and `driver/parting.rs`, [`process`] for the driver and the watchdog, [`line`](mod@line) for connections. Whoever changes
//! one of those files changes its counterpart here. Rules are looked at in every state; there is no
//! use of the checker's own "eventually", which overlooks paths that meet.
//!
//! To learn the protocol, begin with the steps in [`action`], then read what may go wrong in
//! [`fault`] and what holds nevertheless in [`rules`].
//!
//! # Time
//!
//! Time goes on only when nothing is due, and then to the next thing that is: a timer, the end of a
//! TTL or of a deadline, the last moment of a late message. So a path without faults takes no longer
//! than its bodies do, and latency is a fault like others. Every path ends, since callers come once;
//! so "eventually" is judged as "by then", in [`bounds`], on every path.
//!
//! # What it found, and what it would find
//!
//! Real faults, each now held by a unit test or by a rule here: a waiter that looked just after its
//! offer had ended was never told again (`wait`); the end of a hold that was passed on made the queue
//! forget the next one's (`hold`); the late answer to a contender displaced an offer that was newer,
//! which nobody released then (`wait`); a release of what an answered send had left was taken for that of
//! an unanswered one, which took effect later (`backlog`); the last release was sent before the end
//! of the lease, or not at all, or judged by when its answer came (`backlog`, `hold`, `obtain`).
//!
//! Mistakes made on purpose, and the rule that turned red:
//!
//! | mistake | broken rule |
//! |---|---|
//! | a grant counts from its answer instead of from its send | never two valid holds |
//! | renewal without a look at the owner | never two valid holds |
//! | release without a look at the owner | never two valid holds |
//! | a claim counts although its confirmation was refused | never two valid holds |
//! | a lock is passed on and released as well | never two valid holds; no hold under an owner that was given up |
//! | a renewal is sent after the end of its hold | no renewal, nor any other use of an owner, after its release |
//! | a contender or an offer is given up without a release | no lock in the store that nobody will free |
//! | a release is not repeated when no answer comes | no lock, no place that nobody will free |
//! | a contender forgets that a send was not answered | no lock, no place that nobody will free |
//! | a release is settled by what another send had left | no lock in the store that nobody will free |
//! | a contender does nothing with its grant | without a fault no lock lapses |
//! | an offer stands until it is taken, however long | without a fault no lock lapses; every waiter is served |
//! | a waiter is not woken when a lock is passed on to it | without a fault no lock stands idle |
//! | a queued contender relies on being told | every waiter is served in time |
//! | a waiter is passed over and not told | every waiter is served in time |
//! | a hold that was passed on takes the next one out of the queue | each hold is known to its queue |
//!
//! A lock that is passed on or taken after its deadline breaks no rule, as long as the body is not
//! polled then and whoever takes it renews it first: two more looks stand behind each.
//!
//! # What is not modelled
//!
//! Several keys; other programs' values; `max_hold`, `max_waiters`, `extend`, fencing tokens,
//! reentrancy and shut-down; callers that try once; leases of different length; a store that loses
//! data or does not announce grants; clocks that drift apart (the margin for it is tested in
//! `protocol/hold.rs`); the death of a driver alone; re-subscription, which only makes contenders
//! look earlier; a release that waits behind a blocked channel; dice (jitter is none). A request that nobody waits for takes effect within half a
//! lease: later, what it takes is left to lapse, as the promise says.

use std::sync::{Arc, LazyLock};

use self::bounds::Bounds;
use crate::backend::{StoreError, StoreErrorKind};
use crate::backoff::Chance;

mod action;
mod bounds;
mod caller;
mod fault;
mod line;
mod process;
mod rules;
mod runs;
mod store;
mod surroundings;
mod world;

/// What the checker explores: the world within bounds.
struct Explored(Bounds);

const KEY: &str = "stock:lock:7";

fn key() -> Arc<str> {
    static SHARED: LazyLock<Arc<str>> = LazyLock::new(|| KEY.into());
    Arc::clone(&SHARED)
}

/// The dice always fall the same way.
const fn chance() -> Chance {
    Chance::fixed(0.0)
}

/// What a sender knows who got no answer.
fn silence() -> StoreError {
    static TEXT: LazyLock<Arc<str>> = LazyLock::new(|| "no answer".into());
    StoreError::new(StoreErrorKind::Unavailable, Arc::clone(&TEXT))
}
