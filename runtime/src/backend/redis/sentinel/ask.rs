//! Asking one sentinel.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, ConnectionInfo, RedisError, RedisResult, Value};

use super::super::dial::Dialer;
use super::super::error;
use super::Named;
use crate::backend::{StoreError, StoreErrorKind};

/// What came of asking a sentinel.
#[derive(Clone, Debug)]
pub(super) enum Answer {
    Named(Named),
    /// It does not watch such a service, only these.
    Unknown(Vec<String>),
    Failed(StoreError),
}

impl Answer {
    pub(super) fn silent(sentinel: &ConnectionInfo, limit: Duration) -> Self {
        let address = sentinel.addr();
        let text = format!("the sentinel at {address} did not answer within {limit:?}");
        Self::Failed(StoreError::new(StoreErrorKind::Unavailable, text))
    }
}

/// Connects to a sentinel and asks it.
pub(super) async fn ask_once(dialer: &Dialer, sentinel: &ConnectionInfo, service: &str) -> Answer {
    let answer = async {
        // The reader lives as long as the question.
        let (mut connection, _reader) = dialer.dial(sentinel, &options()).await?;
        match ask(&mut connection, service).await? {
            Some(named) => Ok(Answer::Named(named)),
            None => Ok(Answer::Unknown(services(&mut connection).await)),
        }
    };
    answer.await.unwrap_or_else(|error| Answer::Failed(explain(&error, sentinel)))
}

/// The time-outs are ours.
pub(super) fn options() -> AsyncConnectionConfig {
    AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None)
}

/// The master of `service`; nothing if the sentinel does not know the service.
pub(super) async fn ask(
    connection: &mut MultiplexedConnection,
    service: &str,
) -> RedisResult<Option<Named>> {
    let mut both = redis::pipe();
    // During a failover this is the first to name the new master, and the other has the epoch.
    both.cmd("SENTINEL").arg("GET-MASTER-ADDR-BY-NAME").arg(service);
    both.cmd("SENTINEL").arg("MASTER").arg(service);
    let mut replies = connection.send_packed_commands(&both, 0, 2).await?.into_iter();
    let address = replies.next().unwrap_or(Value::Nil).extract_error()?;
    let epoch = replies.next().as_ref().and_then(epoch).unwrap_or(0);
    let Some((host, port)) = redis::from_redis_value(address)? else { return Ok(None) };
    Ok(Some(Named { host, port, epoch }))
}

/// The services that a sentinel knows, where it tells.
async fn services(connection: &mut MultiplexedConnection) -> Vec<String> {
    let mut masters = redis::cmd("SENTINEL");
    masters.arg("MASTERS");
    let reply = connection.send_packed_command(&masters).await.unwrap_or(Value::Nil);
    let Value::Array(masters) = reply else { return Vec::new() };
    masters.iter().filter_map(|master| field(master, "name")).collect()
}

fn epoch(master: &Value) -> Option<u64> {
    field(master, "config-epoch")?.parse().ok()
}

/// A field of what a sentinel says of a master: a map, or a list from older ones.
fn field(master: &Value, name: &str) -> Option<String> {
    let text = |value: &Value| redis::from_redis_value::<String>(value.clone()).ok();
    match master {
        Value::Map(fields) => {
            let (_, value) = fields.iter().find(|(key, _)| text(key).as_deref() == Some(name))?;
            text(value)
        }
        Value::Array(fields) => {
            let pair =
                fields.chunks_exact(2).find(|pair| text(&pair[0]).as_deref() == Some(name))?;
            text(&pair[1])
        }
        _ => None,
    }
}

fn explain(error: &RedisError, sentinel: &ConnectionInfo) -> StoreError {
    let address = sentinel.addr();
    let remedy = match error::code(error) {
        "WRONGPASS" => "takes another password: check sentinel_user and sentinel_password",
        "NOAUTH" => "asks for a password: write it into the URL as ?sentinel_password=..",
        "NOPERM" => {
            "denies this user a right: grant HELLO, SENTINEL GET-MASTER-ADDR-BY-NAME and SENTINEL \
             MASTER"
        }
        _ => return error::explain(error, &format!("{address} (a sentinel)")),
    };
    StoreError::new(StoreErrorKind::Refused, format!("the sentinel at {address} {remedy}"))
}
