//! One connection's life: whether it is of use still, and the talk over it.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::task::Poll;
use std::time::Duration;

use redis::aio::{AsyncPushSender, MultiplexedConnection, SendError};
use redis::{Cmd, PushInfo, PushKind, RedisError, RedisResult, Value};
use tokio::runtime;
use tokio::task::unconstrained;
use tokio::time::timeout;

use super::error;
use super::news;
use super::place::Found;
use super::request::{Request, Role};
use super::runtimes::Runtimes;
use super::server::Server;
use crate::backend::{Events, StoreError, StoreErrorKind, StoreResult};
use crate::clock::{Clock, Timestamp};

/// What a connection's channel and its reading task know of each other.
pub(super) struct Line {
    server: Arc<Server>,
    /// Where it leads, for messages.
    address: Arc<str>,
    /// How many times the server had moved when it was found there.
    #[cfg_attr(not(feature = "sentinel"), expect(dead_code))]
    epoch: u64,
    duty: Duty,
    /// Why it is of no more use; set once.
    closed: OnceLock<String>,
    pulse: Mutex<Pulse>,
}

/// What a connection is for, and so whom its end concerns.
pub(super) enum Duty {
    /// Serves the requests of one runtime.
    Commands { runtimes: Weak<Runtimes>, runtime: runtime::Id },
    /// Serves the driver.
    Listening { events: Weak<dyn Events>, subscribed: OnceLock<()> },
}

struct Pulse {
    /// Requests that ended without a reply since the last one that got one.
    unanswered: u32,
    /// How long such requests have waited; what several waited at once counts once.
    silence: Duration,
    /// Up to when `silence` is counted.
    counted: Timestamp,
    /// Requests so far that end holds and places.
    endings: u64,
}

/// A request under way. Dropped without a reply it adds to the silence, whoever lost patience: so a
/// dead connection is found out also where no call waits as long as the response time-out.
struct UnderWay<'a> {
    line: &'a Line,
    sent_at: Timestamp,
    answered: bool,
}

/// The reading task's end of a line. That task drops it at a disconnect and when its runtime ends.
pub(super) struct Ear(pub(super) Arc<Line>);

impl Line {
    pub(super) fn new(server: Arc<Server>, found: &Found, duty: Duty) -> Self {
        let pulse =
            Pulse { unanswered: 0, silence: Duration::ZERO, counted: Timestamp::NOW, endings: 0 };
        let (address, epoch) = (Arc::clone(&found.address), found.epoch);
        Self { server, address, epoch, duty, closed: OnceLock::new(), pulse: Mutex::new(pulse) }
    }

    pub(super) fn address(&self) -> &str {
        &self.address
    }

    #[cfg(feature = "sentinel")]
    pub(super) fn epoch(&self) -> u64 {
        self.epoch
    }

    #[cfg(feature = "sentinel")]
    pub(super) fn is_listening(&self) -> bool {
        matches!(self.duty, Duty::Listening { .. })
    }

    /// Closes it if the server moved after it was opened.
    #[cfg(feature = "sentinel")]
    pub(super) fn outdated_by(&self, found: &Found) {
        if found.epoch > self.epoch && found.address != self.address {
            self.close(&format!("the sentinels name another server by now: {}", found.address));
        }
    }

    pub(super) fn server(&self) -> &Arc<Server> {
        &self.server
    }

    pub(super) fn is_open(&self) -> bool {
        self.closed.get().is_none()
    }

    /// Fails once the line is closed.
    pub(super) fn check(&self) -> StoreResult<()> {
        self.closed.get().map_or(Ok(()), |reason| {
            let message =
                format!("the connection to redis at {} was closed: {reason}", self.address);
            Err(StoreError::new(StoreErrorKind::Unavailable, message))
        })
    }

    /// From here on messages are expected, and their loss is of interest.
    pub(super) fn mark_subscribed(&self) {
        if let Duty::Listening { subscribed, .. } = &self.duty {
            // Set once per line; a second time means the same.
            let _ = subscribed.set(());
        }
    }

    /// Sends the request when first polled, and takes its reply.
    pub(super) async fn exchange(
        &self,
        connection: &mut MultiplexedConnection,
        request: &Request,
    ) -> StoreResult<Value> {
        self.check()?;
        let endings = self.depart(request.role());
        let mut under_way = UnderWay { line: self, sent_at: CLOCK.now(), answered: false };
        // Pinned here, so that it is not copied from one future into the next around it.
        let talk = pin!(self.talk(connection, request, endings));
        match within(self.server.config.response_timeout, talk).await {
            Some(Ok(Some(reply))) => {
                under_way.answered();
                Ok(reply)
            }
            Some(Ok(None)) => {
                under_way.answered();
                Err(self.overtaken())
            }
            Some(Err(error)) => {
                if error.code().is_some() {
                    // An answer, if not the one that was hoped for.
                    under_way.answered();
                }
                Err(self.failed(&error))
            }
            None => Err(self.silent()),
        }
    }

    pub(super) fn failed(&self, error: &RedisError) -> StoreError {
        if error::is_cross_slot(error) {
            self.server.mark_clustered();
        }
        let explained = error::explain(error, &self.address);
        if error::ends_connection(error) {
            self.close(&explained.message);
        }
        explained
    }

    /// Nothing, if a request that must not be sent again was overtaken.
    async fn talk(
        &self,
        connection: &mut MultiplexedConnection,
        request: &Request,
        endings: u64,
    ) -> RedisResult<Option<Value>> {
        // Unconstrained: a task that used up its budget would else not send at the first poll, and
        // a later request could be first.
        let reply = unconstrained(connection.send_packed_command(request.command())).await;
        let error = match reply.and_then(without_error) {
            Ok(reply) => return Ok(Some(reply)),
            Err(error) => error,
        };
        let Some(again) = request.in_other_words(&error, &self.server) else { return Err(error) };
        // Rare, so its space is not in every request's future.
        Box::pin(self.repeat(connection, &again, request.role(), endings)).await
    }

    /// Sends a request again, in other words. It is no longer in its turn: what takes a lock must not
    /// go behind a request that may give the same lock back, for nobody would. The mutex keeps those
    /// out until it is sent.
    async fn repeat(
        &self,
        connection: &mut MultiplexedConnection,
        again: &Cmd,
        role: Role,
        endings: u64,
    ) -> RedisResult<Option<Value>> {
        let mut repeat = pin!(unconstrained(connection.send_packed_command(again)));
        let first_poll = poll_fn(|context| {
            let pulse = self.pulse();
            let late = role == Role::Takes && pulse.endings != endings;
            Poll::Ready((!late).then(|| repeat.as_mut().poll(context)))
        });
        let reply = match first_poll.await {
            None => return Ok(None),
            Some(Poll::Ready(reply)) => reply,
            Some(Poll::Pending) => repeat.await,
        };
        reply.and_then(without_error).map(Some)
    }

    fn depart(&self, role: Role) -> u64 {
        let mut pulse = self.pulse();
        if role == Role::Ends {
            pulse.endings += 1;
        }
        pulse.endings
    }

    fn silent(&self) -> StoreError {
        let limit = self.server.config.response_timeout;
        let message = format!("redis at {} did not answer within {limit:?}", self.address);
        StoreError::new(StoreErrorKind::Unavailable, message)
    }

    fn overtaken(&self) -> StoreError {
        let message = format!(
            "redis at {} did not know the script; the request was not sent again, since a release \
             had followed it",
            self.address
        );
        StoreError::new(StoreErrorKind::Unavailable, message)
    }

    pub(super) fn close(&self, reason: &str) {
        if self.closed.set(reason.to_owned()).is_err() {
            return;
        }
        match &self.duty {
            Duty::Commands { runtimes, runtime } => {
                if let Some(runtimes) = runtimes.upgrade() {
                    runtimes.forget(*runtime, self);
                }
            }
            // Before it was subscribed, whoever opens it gets an error.
            Duty::Listening { events, subscribed } => {
                if subscribed.get().is_some()
                    && let Some(events) = events.upgrade()
                {
                    events.interrupted();
                }
            }
        }
    }

    fn pulse(&self) -> MutexGuard<'_, Pulse> {
        // Counters: whole at any time.
        self.pulse.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl UnderWay<'_> {
    fn answered(&mut self) {
        self.answered = true;
        let mut pulse = self.line.pulse();
        pulse.unanswered = 0;
        pulse.silence = Duration::ZERO;
        pulse.counted = CLOCK.now();
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        if self.answered {
            return;
        }
        let now = CLOCK.now();
        let limit = self.line.server.config.response_timeout;
        let mut pulse = self.line.pulse();
        pulse.unanswered += 1;
        let begun_at = self.sent_at.max(pulse.counted);
        pulse.silence += now.since(begun_at);
        pulse.counted = now;
        let is_dead = pulse.unanswered >= UNANSWERED_TO_CLOSE && pulse.silence >= limit;
        drop(pulse);
        if is_dead {
            let address = &self.line.address;
            self.line.close(&format!("redis at {address} did not answer for {limit:?}"));
        }
    }
}

impl fmt::Debug for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Line")
            .field("address", &self.address)
            .field("closed", &self.closed.get())
            .finish_non_exhaustive()
    }
}

impl AsyncPushSender for Ear {
    fn send(&self, push: PushInfo) -> Result<(), SendError> {
        match (push.kind, &self.0.duty) {
            (PushKind::Disconnection, _) => self.0.close("the server or the network ended it"),
            (PushKind::Message, Duty::Listening { events, .. }) => {
                if let Some(events) = events.upgrade() {
                    news::deliver(&push.data, &*events);
                }
            }
            _ => {}
        }
        Ok(())
    }
}

impl Drop for Ear {
    fn drop(&mut self) {
        self.0.close("nobody reads it any more: its runtime ended");
    }
}

/// What comes of `future` within `limit`.
pub(super) async fn within<F: Future>(
    limit: Duration,
    mut future: Pin<&mut F>,
) -> Option<F::Output> {
    if let Ok(output) = timeout(limit, future.as_mut()).await {
        return Some(output);
    }
    // A runtime that was blocked wakes up to its timers first: the reply may lie there unread. The
    // reading task gets a moment for it.
    Box::pin(timeout(READING_TIME, future)).await.ok()
}

fn without_error(reply: Value) -> RedisResult<Value> {
    match reply {
        Value::ServerError(error) => Err(error.into()),
        reply => Ok(reply),
    }
}

/// How long a reply may lie unread before it counts as late.
pub(super) const READING_TIME: Duration = Duration::from_millis(2);
const UNANSWERED_TO_CLOSE: u32 = 2;
const CLOCK: Clock = Clock::Boot;
