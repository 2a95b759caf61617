//! A connection as the lock sees it: requests in, answers out.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Pipeline, RedisError, Value};
use tokio::time::{Instant, timeout_at};

use super::acquires::{Acquire, Took};
use super::batch::renew_by_slot;
use super::dial::Reader;
use super::fence::{FenceKey, Mark};
#[cfg(feature = "sentinel")]
use super::gather::LARGEST_BATCH;
use super::gather::{Gathered, Gathering, SENT_WITHIN};
use super::line::Line;
use super::pulse::READING_TIME;
use super::releases::{self, Release};
use super::reply;
use super::request::{Request, Role};
use super::server::Server;
use crate::backend::{
    Acquired, BoxFuture, Channel, Contended, Drawn, Holder, Lock, Released, Renewal, Renewed,
    StoreError, StoreErrorKind, StoreResult,
};

#[derive(Debug)]
pub(super) struct RedisChannel {
    way: Way,
    hearing: Hearing,
    acquires: Arc<Gathering<Acquire>>,
    releases: Arc<Gathering<Release>>,
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
        Self {
            way: Way { connection, reader, line },
            hearing,
            acquires: Arc::default(),
            releases: Arc::default(),
        }
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
            for locks in locks.chunks(LARGEST_BATCH) {
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

    #[cfg(test)]
    pub(super) fn way(&self) -> Way {
        self.way.clone()
    }

    #[cfg(feature = "cluster")]
    pub(super) fn connection(&self) -> MultiplexedConnection {
        self.way.connection.clone()
    }
}

impl Way {
    pub(super) fn server(&self) -> &Server {
        self.line.server()
    }

    pub(super) fn address(&self) -> &str {
        self.line.address()
    }

    /// Whether nothing is under way.
    pub(super) fn is_idle(&self) -> bool {
        self.line.is_idle()
    }

    /// What an error means that the server gave.
    pub(super) fn failed(&self, error: &RedisError) -> StoreError {
        self.line.failed(error)
    }

    /// Sends all of it at the first poll. One reply each, errors among them.
    pub(super) async fn ask_all(&self, pipeline: &Pipeline, role: Role) -> StoreResult<Vec<Value>> {
        let _at_work_until_the_answer = self.reader.clone();
        self.line.exchange_all(&mut self.connection.clone(), pipeline, role).await
    }

    pub(super) fn ask<T, R>(
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

    fn draw(
        &self,
        lock: &Lock,
        take: Option<Duration>,
    ) -> impl Future<Output = StoreResult<Drawn>> + Send + use<> {
        self.ask(Request::draw(lock, self.fence_of(lock), take), reply::drawn)
    }

    /// The rest of a request that must be answered by `late`.
    fn second_step<T: Send>(
        &self,
        rest: impl Future<Output = StoreResult<T>> + Send,
        late: Instant,
    ) -> impl Future<Output = StoreResult<T>> {
        // Rare, so its space is not in every future.
        let (rest, line) = (Box::pin(timeout_at(late, rest)), Arc::clone(&self.line));
        async move { rest.await.unwrap_or_else(|_| Err(line.silent())) }
    }

    fn fence_of(&self, lock: &Lock) -> FenceKey {
        if self.server().is_clustered() {
            FenceKey::in_slot_of(&lock.key)
        } else {
            FenceKey::Server
        }
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
        self.way.line.server().config.response_timeout + READING_TIME + SENT_WITHIN
    }

    fn retire(&self, _key: &str) {
        self.way.line.close("redis answered on another connection, but not on this one");
    }

    fn acquire(&self, lock: &Lock, lease: Duration) -> BoxFuture<StoreResult<Acquired>> {
        let (acquires, way) = (Arc::clone(&self.acquires), self.way.clone());
        let acquire = Acquire { lock: lock.clone(), lease, fenced: false };
        Box::pin(async move {
            let took = acquires.send(way.clone(), acquire).await?;
            // Only a transaction is given up.
            let took = took.ok_or_else(|| reply::unexpected(&Value::Nil, way.address()))?;
            Ok(took.acquired)
        })
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

    fn draw(&self, lock: &Lock, take: Option<Duration>) -> BoxFuture<StoreResult<Drawn>> {
        let (way, lock) = (self.way.clone(), lock.clone());
        let Some(lease) = take.filter(|_| Acquire::may_join(&way)) else {
            return Box::pin(way.draw(&lock, take));
        };
        let acquires = Arc::clone(&self.acquires);
        let acquire = Acquire { lock: lock.clone(), lease, fenced: true };
        let patience = self.answers_within();
        Box::pin(async move {
            let late = Instant::now() + patience;
            let took = match acquires.send(way.clone(), acquire).await {
                // That it takes one slot a script was found out this very moment.
                Err(_) if way.server().is_clustered() => None,
                took => took?,
            };
            let Some(Took { acquired, mark }) = took else {
                return way.second_step(way.draw(&lock, take), late).await;
            };
            match (acquired, mark) {
                (Acquired::HeldBy(owner), _) if owner != lock.owner => Ok(Drawn::HeldBy(owner)),
                (_, Some(Mark::Token(token))) => Ok(Drawn::Token(token)),
                (_, Some(Mark::Unready) | None) => {
                    way.second_step(way.draw(&lock, None), late).await
                }
            }
        })
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
        let release = Release { lock: lock.clone(), claim };
        self.noted(lock, claim, Arc::clone(&self.releases).send(self.way.clone(), release))
    }

    fn release_in_order(&self, lock: &Lock, claim: Duration) -> BoxFuture<StoreResult<Released>> {
        self.noted(lock, claim, releases::one(&self.way, lock, claim))
    }

    fn inspect(&self, key: &Arc<str>) -> BoxFuture<StoreResult<Option<Holder>>> {
        Box::pin(self.way.ask(Request::inspect(key), reply::holder))
    }

    fn raise(&self, lock: &Lock, token: u64) -> BoxFuture<StoreResult<Drawn>> {
        let request = Request::raise(lock, self.way.fence_of(lock), token);
        Box::pin(self.way.ask(request, reply::drawn))
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
