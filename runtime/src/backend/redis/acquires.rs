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
    /// `None` if the transaction was given up for what another one in it is: it did nothing.
    type Answer = Option<Took>;

    const OUTLIVES_ITS_CALLER: bool = false;

    /// Others are asked by scripts, one at a time.
    fn may_join(way: &Way) -> bool {
        !way.server().is_clustered() && way.server().surely_sets_and_gets()
    }

    fn fits(&self, other: &Self) -> bool {
        self.fenced == other.fenced
    }

    async fn alone(self, way: &Way) -> StoreResult<Option<Took>> {
        if self.fenced {
            let nothing = || StoreError::new(StoreErrorKind::Unavailable, "no answer to a draw");
            let took = Self::together(vec![self], way.clone()).await.pop();
            return took.ok_or_else(nothing)?;
        }
        let request = Request::acquire(&self.lock, self.lease, way.server());
        let acquired = way.ask(request, reply::acquired).await?;
        Ok(Some(Took { acquired, mark: None }))
    }

    async fn together(acquires: Vec<Self>, way: Way) -> Vec<StoreResult<Option<Took>>> {
        // They fit together.
        let fenced = acquires.iter().any(|acquire| acquire.fenced);
        let took = match way.ask_all(&pipeline(&acquires, fenced), Role::Takes).await {
            Ok(replies) if fenced => transacted(replies, acquires.len(), &way),
            Ok(replies) => Ok(read(replies, None, &way)),
            Err(error) => Err(error),
        };
        took.unwrap_or_else(|error| acquires.iter().map(|_| Err(error.clone())).collect())
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

/// The answers to the acquires of a transaction.
fn transacted(
    mut replies: Vec<Value>,
    count: usize,
    way: &Way,
) -> StoreResult<Vec<StoreResult<Option<Took>>>> {
    let mut executed = match replies.pop() {
        Some(Value::Array(executed)) => executed,
        refusal => return refused(&replies, refusal.unwrap_or(Value::Nil), way),
    };
    let mark = match executed.pop() {
        // One each, since a missing one would shift the others.
        _ if executed.len() != count => None,
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
        Some(mark) => Ok(read(executed, Some(mark), way)),
        None => Err(reply::unexpected(&Value::Array(executed), way.address())),
    }
}

/// The answers to the acquires of a transaction that ended in `refusal` and not in answers, by what its
/// commands were told before that. Fails where none of them is the cause by itself.
fn refused(
    told: &[Value],
    refusal: Value,
    way: &Way,
) -> StoreResult<Vec<StoreResult<Option<Took>>>> {
    let error_in = |reply: &Value| match reply {
        Value::ServerError(_) => understood(reply.clone(), way).err(),
        _ => None,
    };
    let [begun, acquires @ .., drawn] = told else {
        return Err(reply::unexpected(&refusal, way.address()));
    };
    if let Some(error) = error_in(begun).or_else(|| error_in(drawn)) {
        return Err(error);
    }
    let errors: Vec<_> = acquires.iter().map(error_in).collect();
    if errors.iter().all(Option::is_none) {
        let refusal = understood(refusal, way)?;
        return Err(reply::unexpected(&refusal, way.address()));
    }
    Ok(errors.into_iter().map(|error| error.map_or(Ok(None), Err)).collect())
}

fn read(replies: Vec<Value>, mark: Option<Mark>, way: &Way) -> Vec<StoreResult<Option<Took>>> {
    let read = |reply| {
        let acquired = reply::acquired(understood(reply, way)?, way.address())?;
        Ok(Some(Took { acquired, mark }))
    };
    replies.into_iter().map(read).collect()
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
