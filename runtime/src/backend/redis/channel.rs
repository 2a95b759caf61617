//! A connection as the lock sees it: requests in, answers out.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use redis::Value;
use redis::aio::MultiplexedConnection;

use super::batch::renew_by_slot;
use super::dial::Reader;
use super::line::{Line, READING_TIME};
use super::releases::{self, Releases};
use super::reply;
use super::request::Request;
use crate::backend::{
    Acquired, BoxFuture, Channel, Contended, Drawn, Holder, Lock, Released, Renewal, Renewed,
    StoreError, StoreErrorKind, StoreResult,
};

#[derive(Debug)]
pub(super) struct RedisChannel {
    way: Way,
    hearing: Hearing,
    releases: Arc<Releases>,
}

/// Where requests go.
#[derive(Clone, Debug)]
pub(super) struct Way {
    connection: MultiplexedConnection,
    reader: Option<Reader>,
    line: Arc<Line>,
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
        reader: Option<Reader>,
        line: Arc<Line>,
        hearing: Hearing,
    ) -> Self {
        Self { way: Way { connection, reader, line }, hearing, releases: Arc::default() }
    }

    /// Releases again what was released at an earlier master. Nobody waits for it: what fails ends with
    /// its lease.
    #[cfg(feature = "sentinel")]
    pub(super) fn recall(&self) {
        let (locks, claim) = self.line().server().recall.before(self.line().epoch());
        if locks.is_empty() {
            return;
        }
        let way = self.way.clone();
        tokio::spawn(async move {
            for locks in locks.chunks(releases::LARGEST_BATCH) {
                if way.release(locks, claim).await.is_err() {
                    // For the next connection, which may be to yet another master.
                    way.line.server().recall.put_back(locks, claim);
                }
            }
        });
    }

    /// The same release, remembered for the next master where there may be one.
    #[cfg_attr(not(feature = "sentinel"), expect(clippy::unused_self))]
    fn noted(
        &self,
        lock: &Lock,
        claim: Duration,
        releasing: impl Future<Output = StoreResult<Released>> + Send + 'static,
    ) -> BoxFuture<StoreResult<Released>> {
        #[cfg(feature = "sentinel")]
        if self.line().server().config.place.wants_master() {
            let (line, lock) = (Arc::clone(&self.way.line), lock.clone());
            return Box::pin(async move {
                let released = releasing.await?;
                let was_ours = matches!(released, Released::Freed | Released::Granted { .. });
                if was_ours && !line.server().recall.note(line.epoch(), lock, claim) {
                    return Err(replaced(line.address()));
                }
                Ok(released)
            });
        }
        let _ = (lock, claim);
        Box::pin(releasing)
    }

    #[cfg(feature = "sentinel")]
    pub(super) fn shared_line(&self) -> &Arc<Line> {
        &self.way.line
    }

    pub(super) fn line(&self) -> &Line {
        &self.way.line
    }

    #[cfg(feature = "cluster")]
    pub(super) fn connection(&self) -> MultiplexedConnection {
        self.way.connection.clone()
    }
}

impl Way {
    fn ask<T, R>(
        &self,
        request: Request,
        read: R,
    ) -> impl Future<Output = StoreResult<T>> + Send + use<T, R>
    where
        R: FnOnce(Value, &str) -> StoreResult<T> + Send,
    {
        let (mut connection, line) = (self.connection.clone(), Arc::clone(&self.line));
        let reader = self.reader.clone();
        async move {
            let _at_work_until_the_answer = reader;
            let reply = line.exchange(&mut connection, &request).await?;
            read(reply, line.address())
        }
    }

    fn renew(
        &self,
        batch: &[Renewal],
    ) -> impl Future<Output = StoreResult<Vec<Renewed>>> + Send + use<> {
        let count = batch.len();
        let read = move |reply: Value, address: &str| reply::renewed(&reply, count, address);
        self.ask(Request::renew(batch), read)
    }

    /// Whether one command may release several locks, as far as is known.
    pub(super) fn takes_several_locks(&self) -> bool {
        !self.line.server().is_clustered()
    }

    pub(super) fn release(
        &self,
        locks: &[Lock],
        claim: Duration,
    ) -> impl Future<Output = StoreResult<Vec<Released>>> + Send + use<> {
        let count = locks.len();
        let read = move |reply, address: &str| reply::released(reply, count, address);
        self.ask(Request::release(locks, claim), read)
    }
}

impl Channel for RedisChannel {
    fn is_open(&self) -> bool {
        self.way.line.is_open()
    }

    fn answers_within(&self) -> Duration {
        self.way.line.server().config.response_timeout + READING_TIME
    }

    fn retire(&self, _key: &str) {
        self.way.line.close("redis answered on another connection, but not on this one");
    }

    fn acquire(&self, lock: &Lock, lease: Duration) -> BoxFuture<StoreResult<Acquired>> {
        let request = Request::acquire(lock, lease, self.way.line.server());
        Box::pin(self.way.ask(request, reply::acquired))
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
        Box::pin(self.way.ask(Request::contend(lock, lease, keep, name), reply::contended))
    }

    fn draw(
        &self,
        lock: &Lock,
        take: Option<Duration>,
        keep: Duration,
    ) -> BoxFuture<StoreResult<Drawn>> {
        Box::pin(self.way.ask(Request::draw(lock, take, keep), reply::drawn))
    }

    fn renew(&self, batch: &[Renewal]) -> BoxFuture<StoreResult<Vec<Renewed>>> {
        if batch.is_empty() {
            return Box::pin(async { Ok(Vec::new()) });
        }
        let (way, batch) = (self.way.clone(), batch.to_vec());
        let whole = (!way.line.server().is_clustered()).then(|| way.renew(&batch));
        Box::pin(async move {
            if let Some(whole) = whole {
                let answer = whole.await;
                if answer.is_ok() || !way.line.server().is_clustered() {
                    return answer;
                }
                // That it takes one slot a script was found out this very moment.
            }
            renew_by_slot(&batch, |part| way.renew(part)).await
        })
    }

    fn release(&self, lock: &Lock, claim: Duration) -> BoxFuture<StoreResult<Released>> {
        let (releases, way) = (Arc::clone(&self.releases), self.way.clone());
        self.noted(lock, claim, releases.release(way, lock.clone(), claim))
    }

    fn release_in_order(&self, lock: &Lock, claim: Duration) -> BoxFuture<StoreResult<Released>> {
        self.noted(lock, claim, releases::one(&self.way, lock, claim))
    }

    fn inspect(&self, key: &Arc<str>) -> BoxFuture<StoreResult<Option<Holder>>> {
        Box::pin(self.way.ask(Request::inspect(key), reply::holder))
    }

    fn raise(&self, lock: &Lock, token: u64, keep: Duration) -> BoxFuture<StoreResult<Drawn>> {
        Box::pin(self.way.ask(Request::raise(lock, token, keep), reply::drawn))
    }

    fn wake(&self, key: &Arc<str>, claim: Duration) -> BoxFuture<StoreResult<bool>> {
        Box::pin(self.way.ask(Request::wake(key, claim), reply::woken))
    }

    fn renew_on_replicas(
        &self,
        batch: &[Renewal],
        replicas: u32,
        within: Duration,
    ) -> BoxFuture<StoreResult<(Vec<Renewed>, u32)>> {
        let (way, renewing) = (self.way.clone(), self.renew(batch));
        Box::pin(async move {
            // One after the other: a script that had to be sent again would come after the WAIT.
            let renewed = renewing.await?;
            let waiting = way.ask(Request::wait(replicas, within), reply::acknowledged);
            Ok((renewed, waiting.await?))
        })
    }

    fn delivers_events(&self) -> bool {
        matches!(self.hearing, Hearing::Subscribed(_))
    }
}

#[cfg(feature = "sentinel")]
fn replaced(address: &str) -> StoreError {
    let message = format!("redis at {address} released the lock, but had been replaced before");
    StoreError::new(StoreErrorKind::Unavailable, message)
}

pub(super) fn not_listening() -> StoreError {
    StoreError::new(
        StoreErrorKind::Refused,
        "a contender needs a listening channel: open one with open_listening",
    )
}
