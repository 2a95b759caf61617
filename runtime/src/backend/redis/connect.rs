//! Opening a connection.

use std::pin::pin;
use std::sync::{Arc, OnceLock};

use redis::ConnectionAddr::TcpTls;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, ErrorKind, RedisError, RedisResult, ServerErrorKind, Value};

use super::channel::{Hearing, RedisChannel};
use super::dial::Reader;
use super::error;
use super::greeting::{Greeting, evicting_policy};
use super::line::{Duty, Ear, Line, within};
use super::place::Found;
use super::script;
use super::server::Server;
use crate::backend::{StoreError, StoreErrorKind, StoreResult};
use crate::telemetry;

/// Finds the server, connects, signs in, hands the scripts over, and subscribes to `name` if there is
/// one: all within the connect time-out.
pub(super) async fn connect(
    server: &Arc<Server>,
    duty: Duty,
    name: Option<&Arc<str>>,
) -> StoreResult<RedisChannel> {
    let limit = server.config.connect_timeout;
    let place = OnceLock::new();
    let opening = async {
        let found = server.config.place.find(&server.dialer, limit, server.newest()).await?;
        server.moved(found.epoch);
        let found = place.get_or_init(|| found);
        let line = Arc::new(Line::new(Arc::clone(server), found, duty));
        let opened = attempt(server, found, &line, name).await;
        let opened = opened.map_err(|error| error::explain(&error, &found.address))?;
        opened.check(server, &found.address)?;
        Ok((opened, line))
    };
    let opened = within(limit, pin!(opening)).await;
    let (opened, line) = opened.unwrap_or_else(|| Err(late(server, place.get())))?;
    line.mark_subscribed();
    // It may have ended since; then nobody was told yet.
    line.check()?;
    let Opened { connection, reader, hearing, .. } = opened;
    let channel = RedisChannel::new(connection, reader, line, hearing);
    #[cfg(feature = "sentinel")]
    if let super::place::Place::Sentinels(sentinels) = &server.config.place {
        super::sentinel::Watch::add(server, sentinels, channel.shared_line());
        channel.recall();
    }
    Ok(channel)
}

fn late(server: &Server, found: Option<&Found>) -> StoreError {
    let limit = server.config.connect_timeout;
    let address = found.map_or(&server.name, |found| &found.address);
    // A server that expects clear text waits for more of what it does not understand.
    let is_tls = found.is_some_and(|found| matches!(found.info.addr(), TcpTls { .. }));
    let hint = if is_tls { ": does it speak TLS on this port?" } else { "" };
    let message = format!("redis at {address} did not let us in within {limit:?}{hint}");
    StoreError::new(StoreErrorKind::Unavailable, message)
}

struct Opened {
    connection: MultiplexedConnection,
    reader: Option<Reader>,
    greeting: Greeting,
    hearing: Hearing,
}

impl Opened {
    /// Whether it is a server that locks can be asked of.
    fn check(&self, server: &Server, address: &str) -> StoreResult<()> {
        if self.greeting.is_sentinel {
            let text = format!(
                "redis at {address} is a sentinel: write redis-sentinel://{address}/service (needs \
                 the feature \"sentinel\")"
            );
            return Err(StoreError::new(StoreErrorKind::Refused, text));
        }
        if self.greeting.is_replica && server.config.place.wants_master() {
            let text = format!("redis at {address} is a replica: there is no master yet");
            return Err(StoreError::new(StoreErrorKind::Unavailable, text));
        }
        Ok(())
    }
}

async fn attempt(
    server: &Server,
    found: &Found,
    line: &Arc<Line>,
    name: Option<&Arc<str>>,
) -> RedisResult<Opened> {
    // The time-outs are ours: the crate's do not cover what we need bounded.
    let options = AsyncConnectionConfig::new()
        .set_connection_timeout(None)
        .set_response_timeout(None)
        .set_pipeline_buffer_size(PIPELINE_BUFFER)
        .set_push_sender(Ear(Arc::clone(line)));
    let (mut connection, reader) = server.dialer.dial(&found.info, &options).await?;
    // From here on the reading task alone has the ear, so that its end is noticed.
    drop(options);
    let greeting = introduce(server, &mut connection, &found.address).await?;
    let hearing = match name {
        None => Hearing::NotListening,
        Some(name) => match connection.subscribe(&**name).await {
            Ok(()) => Hearing::Subscribed(Arc::clone(name)),
            Err(error) if is_forbidden(&error) => Hearing::Deaf,
            Err(error) => return Err(error),
        },
    };
    Ok(Opened { connection, reader, greeting, hearing })
}

/// Loads the scripts and asks what the server is, in one round trip.
///
/// A script that is first sent in full when it is first needed leaves its turn among the requests;
/// loading them all now keeps that rare. A server that refuses this gets them in full. Once for a
/// client it is also asked what it does when its memory is full; where that is refused nobody knows.
async fn introduce(
    server: &Server,
    connection: &mut MultiplexedConnection,
    address: &str,
) -> RedisResult<Greeting> {
    let mut introduction = redis::pipe();
    introduction.cmd("HELLO").arg(3);
    for command in script::ALL.iter().map(|script| script.load()) {
        introduction.add_command(command);
    }
    if server.wants_eviction() {
        introduction.cmd("INFO").arg("memory");
    }
    let count = introduction.len();
    let replies = connection.send_packed_commands(&introduction, 0, count).await?;
    let greeting = Greeting::read(replies.first().unwrap_or(&Value::Nil));
    server.greeted(&greeting);
    if let Some(memory) = replies.get(1 + script::ALL.len())
        && server.mark_eviction()
        && let Some(policy) = evicting_policy(memory)
    {
        telemetry::may_evict(address, &policy);
    }
    Ok(greeting)
}

fn is_forbidden(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::NoPerm)
}

/// Requests on their way to the connection's task. More than there ever are within a time-out: one that
/// had to wait for a place would not be sent at its first poll, and so out of its turn. No place takes
/// memory before it is used, and who waits for one has its request in memory as well.
const PIPELINE_BUFFER: usize = 1 << 24;
