//! The connection of the hand-written contestants: the type and the settings that distlock uses, so
//! that the difference is the lock's.

use redis::aio::{AsyncPushSender, MultiplexedConnection};
use redis::{AsyncConnectionConfig, Client, IntoConnectionInfo, ProtocolVersion};

pub(super) fn client(url: &str) -> Client {
    let info = url.into_connection_info().expect("our own URL");
    let settings = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
    let tcp = info.tcp_settings().clone().set_nodelay(true);
    Client::open(info.set_redis_settings(settings).set_tcp_settings(tcp)).expect("our own URL")
}

fn options() -> AsyncConnectionConfig {
    AsyncConnectionConfig::new()
        .set_connection_timeout(None)
        .set_response_timeout(None)
        .set_pipeline_buffer_size(1024)
}

pub(super) async fn connect(url: &str) -> MultiplexedConnection {
    client(url)
        .get_multiplexed_async_connection_with_config(&options())
        .await
        .expect("the server runs")
}

pub(super) async fn connect_listening(
    url: &str,
    ear: impl AsyncPushSender,
) -> MultiplexedConnection {
    client(url)
        .get_multiplexed_async_connection_with_config(&options().set_push_sender(ear))
        .await
        .expect("the server runs")
}
