//! A connection that fell silent is not used twice.

use std::time::{Duration, Instant};

use distlock::{LockClient, LockKey};

use crate::support::{Proxy, RedisServer, unique_key};

#[tokio::test]
async fn silent_connection_is_not_used_for_the_release() {
    let server = RedisServer::shared();
    let proxy = Proxy::start(server.address());
    let response_timeout = Duration::from_secs(3);
    let locks = LockClient::builder()
        .url(proxy.url())
        .response_timeout(response_timeout)
        .wait(10 * response_timeout)
        .connect()
        .await
        .unwrap();
    let key = unique_key("silent");
    proxy.drop_next_reply("SET");

    let started = Instant::now();
    let guard = locks.lock(LockKey::literal(key)).acquire().await.unwrap();
    guard.release().await.unwrap();

    // Once for the reply that was lost; the release would add another time-out.
    assert!(started.elapsed() < 2 * response_timeout, "{:?}", started.elapsed());
}
