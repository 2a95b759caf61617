//! Acquires, of which one pipeline takes several, with the fencing tokens that go with them.
//!
//! Whoever wants a token takes the lock and draws in one transaction, so that nobody draws in between.
//! Those of the same moment share the transaction and its draw: tokens are compared key by key.

use std::time::Duration;

use redis::{Pipeline, RedisError, Value};

use super::channel::Way;
use super::error;
use super::fence::{self, FenceKey, Mark};
use super::gather::Gathered;
use super::reply;
use super::request::{Request, Role};
use crate::backend::{Acquired, Lock, StoreError, StoreErrorKind, StoreResult};

/// One owner's try to take a free lock.
#[derive(Debug)]
pub(super) struct Acquire {
    pub(super) lock: Lock,
    pub(super) lease: Duration,
    /// Whether to draw a fencing token as well.
    pub(super) fenced: bool,
}

/// What came of it.
#[derive(Debug)]
pub(super) struct Took {
    pub(super) acquired: Acquired,
    /// Drawn whoever has the lock.
    pub(super) mark: Option<Mark>,
}

impl Gathered for Acquire {
    type Answer = Took;

    const OUTLIVES_ITS_CALLER: bool = false;

    /// Others are asked by scripts, one at a time.
    fn may_join(way: &Way) -> bool {
        !way.server().is_clustered() && way.server().surely_sets_and_gets()
    }

    fn fits(&self, other: &Self) -> bool {
        self.fenced == other.fenced
    }

    async fn alone(self, way: &Way) -> StoreResult<Took> {
        if self.fenced {
            let nothing = || StoreError::new(StoreErrorKind::Unavailable, "no answer to a draw");
            let took = Self::together(vec![self], way.clone()).await.pop();
            return took.ok_or_else(nothing)?;
        }
        let request = Request::acquire(&self.lock, self.lease, way.server());
        let acquired = way.ask(request, reply::acquired).await?;
        Ok(Took { acquired, mark: None })
    }

    async fn together(acquires: Vec<Self>, way: Way) -> Vec<StoreResult<Took>> {
        // They fit together.
        let fenced = acquires.iter().any(|acquire| acquire.fenced);
        let read = |reply, mark| {
            let acquired = reply::acquired(understood(reply, &way)?, way.address())?;
            Ok(Took { acquired, mark })
        };
        let took = async {
            let replies = way.ask_all(&pipeline(&acquires, fenced), Role::Takes).await?;
            if fenced { executed(replies, &way) } else { Ok((replies, None)) }
        };
        match took.await {
            Ok((replies, mark)) => replies.into_iter().map(|reply| read(reply, mark)).collect(),
            Err(error) => acquires.iter().map(|_| Err(error.clone())).collect(),
        }
    }
}

fn pipeline(acquires: &[Acquire], fenced: bool) -> Pipeline {
    let mut pipeline = Pipeline::with_capacity(acquires.len() + 3);
    if fenced {
        pipeline.cmd("MULTI");
    }
    for Acquire { lock, lease, .. } in acquires {
        pipeline.add_command(Request::set(lock, *lease));
    }
    if fenced {
        pipeline.add_command(fence::draw(FenceKey::Server)).cmd("EXEC");
    }
    pipeline
}

/// The replies to the acquires of a transaction, and to its draw.
fn executed(mut replies: Vec<Value>, way: &Way) -> StoreResult<(Vec<Value>, Option<Mark>)> {
    let executed = match replies.pop() {
        Some(Value::Array(executed)) => executed,
        Some(refusal) => {
            // Of one of its commands, if that is what ended it.
            let errors = replies.into_iter().filter(|reply| matches!(reply, Value::ServerError(_)));
            let first = errors.chain([refusal]).next().unwrap_or(Value::Nil);
            return Err(match understood(first, way) {
                Ok(reply) => reply::unexpected(&reply, way.address()),
                Err(error) => error,
            });
        }
        None => return Err(reply::unexpected(&Value::Nil, way.address())),
    };
    replies = executed;
    let mark = match replies.pop() {
        Some(Value::BulkString(id)) => fence::mark(&id),
        Some(Value::Nil) => Some(Mark::Unready),
        // Not the lock's.
        Some(Value::ServerError(error)) if error.code() == "WRONGTYPE" => {
            return Err(error::no_token(way.address()));
        }
        Some(Value::ServerError(error)) => return Err(way.failed(&error.into())),
        _ => None,
    };
    match mark {
        Some(mark) => Ok((replies, Some(mark))),
        None => Err(reply::unexpected(&Value::Array(replies), way.address())),
    }
}

fn understood(reply: Value, way: &Way) -> StoreResult<Value> {
    let Value::ServerError(error) = reply else { return Ok(reply) };
    let error = RedisError::from(error);
    if error::is_syntax_error(&error) {
        // Something else than what greeted: the next ones are asked in other words.
        way.server().mark_old();
    }
    Err(way.failed(&error))
}
