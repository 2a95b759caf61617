//! A connection as the lock sees it: requests in, answers out.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use redis::Value;
use redis::aio::MultiplexedConnection;

use super::line::Line;
use super::reply;
use super::request::Request;
use crate::backend::{
    Acquired, BoxFuture, Channel, Contended, Holder, Lock, Released, Renewal, Renewed, StoreError,
    StoreErrorKind, StoreResult,
};

#[derive(Debug)]
pub(super) struct RedisChannel {
    connection: MultiplexedConnection,
    line: Arc<Line>,
    hearing: Hearing,
}

/// What a channel hears of grants.
#[derive(Clone, Debug)]
pub(super) enum Hearing {
    /// It listens, but the server does not let it subscribe.
    Deaf,
    /// It was not opened to listen.
    NotListening,
    /// Messages to this name.
    Subscribed(Arc<str>),
}

impl RedisChannel {
    pub(super) fn new(
        connection: MultiplexedConnection,
        line: Arc<Line>,
        hearing: Hearing,
    ) -> Self {
        Self { connection, line, hearing }
    }

    pub(super) fn line(&self) -> &Line {
        &self.line
    }

    fn ask<T>(
        &self,
        request: Request,
        read: impl FnOnce(Value, &str) -> StoreResult<T> + Send + 'static,
    ) -> impl Future<Output = StoreResult<T>> + Send + 'static {
        let (connection, line) = (self.connection.clone(), Arc::clone(&self.line));
        async move {
            let reply = line.exchange(connection, request).await?;
            read(reply, &line.server().address)
        }
    }
}

impl Channel for RedisChannel {
    fn is_open(&self) -> bool {
        self.line.is_open()
    }

    fn acquire(&self, lock: &Lock, lease: Duration) -> BoxFuture<StoreResult<Acquired>> {
        let request = Request::acquire(lock, lease, self.line.server());
        Box::pin(self.ask(request, reply::acquired))
    }

    fn contend(
        &self,
        lock: &Lock,
        lease: Duration,
        keep: Duration,
    ) -> BoxFuture<StoreResult<Contended>> {
        let name = match &self.hearing {
            Hearing::Deaf => "",
            Hearing::NotListening => return Box::pin(async { Err(not_listening()) }),
            Hearing::Subscribed(name) => name,
        };
        Box::pin(self.ask(Request::contend(lock, lease, keep, name), reply::contended))
    }

    fn renew(&self, batch: &[Renewal]) -> BoxFuture<StoreResult<Vec<Renewed>>> {
        let count = batch.len();
        if count == 0 {
            return Box::pin(async { Ok(Vec::new()) });
        }
        let read = move |reply, address: &str| reply::renewed(reply, count, address);
        Box::pin(self.ask(Request::renew(batch), read))
    }

    fn release(&self, lock: &Lock, claim: Duration) -> BoxFuture<StoreResult<Released>> {
        Box::pin(self.ask(Request::release(lock, claim), reply::released))
    }

    fn inspect(&self, key: &Arc<str>) -> BoxFuture<StoreResult<Option<Holder>>> {
        Box::pin(self.ask(Request::inspect(key), reply::holder))
    }

    fn delivers_events(&self) -> bool {
        matches!(self.hearing, Hearing::Subscribed(_))
    }
}

fn not_listening() -> StoreError {
    StoreError::new(
        StoreErrorKind::Refused,
        "a contender needs a listening channel: open one with open_listening",
    )
}
