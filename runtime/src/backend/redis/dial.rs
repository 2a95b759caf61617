//! Opening a connection to a server that was found.

use std::sync::Arc;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, ConnectionInfo, RedisResult};

#[cfg(feature = "tls")]
use super::tls::Tls;

/// Opens connections, in clear or encrypted.
#[derive(Clone, Debug, Default)]
pub(super) struct Dialer {
    #[cfg(feature = "tls")]
    pub(super) tls: Option<Tls>,
}

/// Keeps the task that reads a connection at work; without it the connection ends.
///
/// A connection of the client crate's own making has one inside.
#[derive(Clone, Debug)]
pub(super) struct Reader(#[expect(dead_code, reason = "it is there to be dropped")] Arc<Task>);

#[derive(Debug)]
struct Task(#[cfg_attr(not(feature = "tls"), expect(dead_code))] tokio::task::AbortHandle);

impl Dialer {
    /// Connects and signs in.
    pub(super) async fn dial(
        &self,
        info: &ConnectionInfo,
        options: &AsyncConnectionConfig,
    ) -> RedisResult<(MultiplexedConnection, Option<Reader>)> {
        #[cfg(feature = "tls")]
        if let (Some(tls), redis::ConnectionAddr::TcpTls { host, port, tls_params: None, .. }) =
            (&self.tls, info.addr())
        {
            let stream = tls.connect(host, *port, info.tcp_settings()).await?;
            let (connection, reading) = MultiplexedConnection::new_with_config(
                info.redis_settings(),
                stream,
                options.clone(),
            )
            .await?;
            let task = tokio::spawn(reading).abort_handle();
            return Ok((connection, Some(Reader(Arc::new(Task(task))))));
        }
        let client = Client::open(info.clone())?;
        Ok((client.get_multiplexed_async_connection_with_config(options).await?, None))
    }
}

#[cfg(feature = "tls")]
impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}
