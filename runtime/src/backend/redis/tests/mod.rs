//! What only Redis can do to a lock: rights, faults, old servers, runtimes that end.

use std::time::Duration;

use super::*;
use crate::backend::contract::server::RedisServer;
use crate::backend::contract::{
    CLAIM, Contender, Heard, KEEP, LEASE, eventually, granted_to, hold, kind_of, lock,
};
use crate::backend::{Acquired, Contended, Drawn, Released, Renewal, Renewed, StoreErrorKind};

mod acquires;
mod cluster;
mod faults;
mod fences;
mod fuzz;
mod old;
mod releases;
mod rights;
mod runtimes;

#[cfg(unix)]
#[tokio::test]
async fn a_unix_socket_serves_as_well() {
    // Relative to the server's own directory.
    let server = RedisServer::start_with(&["--unixsocket", "socket"]);
    let directory: Vec<String> = server.run(&["CONFIG", "GET", "dir"]);
    let config = config_from_url(&format!("unix://{}/socket?db=1", directory[1])).unwrap();
    let contender = Contender::on(Arc::new(RedisBackend::new(config))).await;
    let [first, second] = ["first", "second"].map(|owner| lock("k", owner));
    hold(contender.channel(), &first).await;
    assert!(matches!(contender.contend(&second).await, Contended::Queued { .. }));
    contender.channel().release(&first, CLAIM).await.unwrap();
    contender.hears(Heard::granted(&second)).await;
}

impl RedisServer {
    /// A client that signs in as the user `name`, who may only do what `rules` say.
    fn backend_as(&self, name: &str, rules: &[&str]) -> RedisBackend {
        let mut words = vec!["ACL", "SETUSER", name, "reset", "resetchannels", "on", ">secret"];
        words.extend(rules);
        self.run::<()>(&words);
        let url = format!("redis://{name}:secret@{}", self.address());
        RedisBackend::new(config_from_url(&url).unwrap())
    }
}

impl RedisServer {
    /// How often the server was sent a command since its counts were last reset.
    fn calls_of(&self, command: &str) -> u64 {
        let stats: String = self.run(&["INFO", "commandstats"]);
        let line =
            stats.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{command}:calls=")));
        line.and_then(|line| line.split(',').next()).map_or(0, |calls| calls.parse().unwrap())
    }
}

/// Time-outs that a test can wait for, of a server that is made to be silent.
fn impatient(mut config: RedisConfig) -> RedisBackend {
    config.connect_timeout = PATIENCE;
    config.response_timeout = PATIENCE;
    RedisBackend::new(config)
}

const PATIENCE: Duration = Duration::from_millis(500);

/// What a busy machine may add to a time. Without the time-out there would be no end.
const SLACK: Duration = Duration::from_secs(3);
