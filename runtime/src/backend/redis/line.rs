//! One connection's life: whether it is of use still, and the talk over it.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::{Arc, OnceLock, Weak};
use std::task::Poll;
use std::time::Duration;

use redis::aio::{AsyncPushSender, MultiplexedConnection, SendError};
use redis::{Cmd, Pipeline, PushInfo, PushKind, RedisError, RedisResult, Value};
use tokio::runtime;
use tokio::task::unconstrained;
use tokio::time::timeout;

#[cfg(feature = "cluster")]
use super::cluster::{ClusterNodes, Member};
use super::error;
#[cfg(feature = "cluster")]
use super::error::Redirect;
use super::news;
use super::place::Found;
use super::pulse::{Departure, Pulse, READING_TIME};
use super::request::{Request, Role};
use super::runtimes::Runtimes;
use super::server::Server;
use crate::backend::{Events, StoreError, StoreErrorKind, StoreResult};

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
    pulse: Arc<Pulse>,
}

/// What a connection is for, and so whom its end concerns.
pub(super) enum Duty {
    /// Serves the requests of one runtime.
    Commands { runtimes: Weak<Runtimes>, runtime: runtime::Id },
    /// Serves the driver.
    Listening { events: Weak<dyn Events>, subscribed: OnceLock<()> },
    /// One of those to the nodes of a cluster.
    #[cfg(feature = "cluster")]
    Member { nodes: Weak<ClusterNodes>, member: Member },
}

/// How a request is put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Manner {
    /// To a node of a cluster that is about to take the slot over.
    #[cfg(feature = "cluster")]
    Asking,
    Plain,
}

/// Why a request got no reply that can be read.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) error: StoreError,
    /// Where a node of a cluster says to ask instead, which it did not execute the request for.
    #[cfg(feature = "cluster")]
    pub(super) redirect: Option<Redirect>,
    /// A node of a cluster has but some of the keys, and did not execute the request.
    #[cfg(feature = "cluster")]
    pub(super) is_split: bool,
}

/// A request under way. Dropped without a reply it adds to the silence, whoever lost patience: so a
/// dead connection is found out also where no call waits as long as the response time-out.
struct UnderWay<'a> {
    line: &'a Line,
    departure: Departure,
    answered: bool,
}

/// The reading task's end of a line. That task drops it at a disconnect and when its runtime ends.
pub(super) struct Ear(pub(super) Arc<Line>);

impl Line {
    pub(super) fn new(server: Arc<Server>, found: &Found, duty: Duty) -> Self {
        let pulse = Pulse::new(server.config.response_timeout);
        let (address, epoch) = (Arc::clone(&found.address), found.epoch);
        Self { server, address, epoch, duty, closed: OnceLock::new(), pulse }
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

    /// Whether nothing is under way.
    pub(super) fn is_idle(&self) -> bool {
        self.pulse.is_idle()
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
        let reply = self.converse(connection, request, Manner::Plain).await;
        reply.map_err(|failure| failure.error)
    }

    /// The same, with what a node of a cluster says if it does not serve the request.
    pub(super) async fn converse(
        &self,
        connection: &mut MultiplexedConnection,
        request: &Request,
        manner: Manner,
    ) -> Result<Value, Failure> {
        self.check()?;
        let endings = self.pulse.depart(request.role());
        // Pinned here, so that it is not copied from one future into the next around it.
        let talk = pin!(self.talk(connection, request, manner, endings));
        self.attend(talk).await?.ok_or_else(|| self.overtaken().into())
    }

    /// Waits for what the server says.
    async fn attend<T>(
        &self,
        talk: Pin<&mut impl Future<Output = RedisResult<T>>>,
    ) -> Result<T, Failure> {
        let mut under_way = UnderWay { line: self, departure: self.pulse.begin(), answered: false };
        match self.pulse.within(under_way.departure, talk).await {
            Some(Ok(reply)) => {
                under_way.answered();
                Ok(reply)
            }
            Some(Err(error)) => {
                if error.code().is_some() {
                    // An answer, if not the one that was hoped for.
                    under_way.answered();
                }
                Err(Failure {
                    #[cfg(feature = "cluster")]
                    redirect: error::redirect(&error),
                    #[cfg(feature = "cluster")]
                    is_split: error::is_split(&error),
                    error: self.failed(&error),
                })
            }
            None => Err(self.silent().into()),
        }
    }

    /// Sends several commands at once when first polled. One reply each, errors among them.
    pub(super) async fn exchange_all(
        &self,
        connection: &mut MultiplexedConnection,
        pipeline: &Pipeline,
        role: Role,
    ) -> StoreResult<Vec<Value>> {
        self.check()?;
        self.pulse.depart(role);
        let talk = unconstrained(connection.send_packed_commands(pipeline, 0, pipeline.len()));
        let replies = self.attend(pin!(talk)).await;
        replies.map_err(|failure| failure.error)
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
        manner: Manner,
        endings: u64,
    ) -> RedisResult<Option<Value>> {
        // Unconstrained: a task that used up its budget would else not send at the first poll, and
        // a later request could be first.
        let reply = unconstrained(say(connection, request.command(), manner)).await;
        let error = match reply.and_then(without_error) {
            Ok(reply) => return Ok(Some(reply)),
            Err(error) => error,
        };
        let Some(again) = request.in_other_words(&error, &self.server) else { return Err(error) };
        // Rare, so its space is not in every request's future.
        Box::pin(self.repeat(connection, &again, request.role(), manner, endings)).await
    }

    /// Sends a request again, in other words. It is no longer in its turn: what takes a lock must not
    /// go behind a request that may give the same lock back, for nobody would. The mutex keeps those
    /// out until it is sent.
    async fn repeat(
        &self,
        connection: &mut MultiplexedConnection,
        again: &Cmd,
        role: Role,
        manner: Manner,
        endings: u64,
    ) -> RedisResult<Option<Value>> {
        let mut repeat = pin!(unconstrained(say(connection, again, manner)));
        let first_poll = poll_fn(|context| {
            Poll::Ready(match role {
                Role::Takes => self.pulse.send_in_turn(endings, repeat.as_mut(), context),
                Role::Ends | Role::Harmless => Some(repeat.as_mut().poll(context)),
            })
        });
        let reply = match first_poll.await {
            None => return Ok(None),
            Some(Poll::Ready(reply)) => reply,
            Some(Poll::Pending) => repeat.await,
        };
        reply.and_then(without_error).map(Some)
    }

    pub(super) fn silent(&self) -> StoreError {
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
            #[cfg(feature = "cluster")]
            Duty::Member { nodes, member } => {
                if let Some(nodes) = nodes.upgrade() {
                    nodes.forget(member, self);
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
}

impl UnderWay<'_> {
    fn answered(&mut self) {
        self.answered = true;
        self.line.pulse.answered(self.departure);
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        if !self.answered && self.line.pulse.given_up(self.departure) {
            let (address, limit) = (&self.line.address, self.line.server.config.response_timeout);
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
            #[cfg(feature = "cluster")]
            (PushKind::Message | PushKind::SMessage, Duty::Member { nodes, .. }) => {
                if let Some(events) = nodes.upgrade().and_then(|nodes| nodes.events()) {
                    news::deliver(&push.data, &*events);
                }
            }
            // Nobody asks for it.
            #[cfg(feature = "cluster")]
            (PushKind::SUnsubscribe, Duty::Member { .. }) => {
                self.0.close("a slot that was listened to moved away");
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

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self {
            error,
            #[cfg(feature = "cluster")]
            redirect: None,
            #[cfg(feature = "cluster")]
            is_split: false,
        }
    }
}

async fn say(
    connection: &mut MultiplexedConnection,
    command: &Cmd,
    manner: Manner,
) -> RedisResult<Value> {
    match manner {
        #[cfg(feature = "cluster")]
        Manner::Asking => {
            // In one write: it holds for the next command of the connection and no other.
            let mut both = redis::pipe();
            both.cmd("ASKING").add_command(command.clone());
            // Rare, so its space is not in every request's future.
            let mut replies = Box::pin(connection.send_packed_commands(&both, 1, 1)).await?;
            let nothing = (redis::ErrorKind::UnexpectedReturnType, "no reply but to ASKING");
            replies.pop().ok_or_else(|| nothing.into())
        }
        Manner::Plain => connection.send_packed_command(command).await,
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
