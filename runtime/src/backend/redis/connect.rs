//! Opening a connection.

use std::pin::pin;
use std::sync::Arc;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, ErrorKind, RedisError, RedisResult, ServerErrorKind};

use super::channel::{Hearing, RedisChannel};
use super::error;
use super::line::{Duty, Ear, Line, within};
use super::script;
use super::server::Server;
use crate::backend::{StoreError, StoreErrorKind, StoreResult};

/// Connects, signs in, hands the scripts over, and subscribes to `name` if there is one: all within
/// the connect time-out.
pub(super) async fn connect(
    server: &Arc<Server>,
    duty: Duty,
    name: Option<&Arc<str>>,
) -> StoreResult<RedisChannel> {
    let line = Arc::new(Line::new(Arc::clone(server), duty));
    let limit = server.config.connect_timeout;
    let (connection, hearing) = match within(limit, pin!(attempt(server, &line, name))).await {
        Some(Ok(connected)) => connected,
        Some(Err(error)) => return Err(error::explain(&error, &server.address)),
        None => {
            let message = format!("redis at {} did not let us in within {limit:?}", server.address);
            return Err(StoreError::new(StoreErrorKind::Unavailable, message));
        }
    };
    line.mark_subscribed();
    // It may have ended since; then nobody was told yet.
    line.check()?;
    Ok(RedisChannel::new(connection, line, hearing))
}

async fn attempt(
    server: &Server,
    line: &Arc<Line>,
    name: Option<&Arc<str>>,
) -> RedisResult<(MultiplexedConnection, Hearing)> {
    // The time-outs are ours: the crate's do not cover what we need bounded.
    let options = AsyncConnectionConfig::new()
        .set_connection_timeout(None)
        .set_response_timeout(None)
        .set_pipeline_buffer_size(PIPELINE_BUFFER)
        .set_push_sender(Ear(Arc::clone(line)));
    let connecting = server.config.client.get_multiplexed_async_connection_with_config(&options);
    let mut connection = connecting.await?;
    // From here on the reading task alone has the ear, so that its end is noticed.
    drop(options);
    load_scripts(&mut connection).await?;
    let hearing = match name {
        None => Hearing::NotListening,
        Some(name) => match connection.subscribe(&**name).await {
            Ok(()) => Hearing::Subscribed(Arc::clone(name)),
            Err(error) if is_forbidden(&error) => Hearing::Deaf,
            Err(error) => return Err(error),
        },
    };
    Ok((connection, hearing))
}

/// A script that is first sent in full when it is first needed leaves its turn among the requests;
/// loading them all now keeps that rare. A server that refuses this gets them in full.
async fn load_scripts(connection: &mut MultiplexedConnection) -> RedisResult<()> {
    let mut loading = redis::pipe();
    for command in script::ALL.iter().map(|script| script.load()) {
        loading.add_command(command);
    }
    connection.send_packed_commands(&loading, 0, script::ALL.len()).await.map(drop)
}

fn is_forbidden(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::NoPerm)
}

/// Requests under way to the connection's task before callers have to queue.
const PIPELINE_BUFFER: usize = 1024;
