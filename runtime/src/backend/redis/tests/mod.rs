//! What only Redis can do to a lock: rights, faults, old servers, runtimes that end.

use std::time::Duration;

use super::*;
use crate::backend::contract::server::RedisServer;
use crate::backend::contract::{
    CLAIM, Contender, Heard, KEEP, LEASE, eventually, granted_to, hold, kind_of, lock,
};
use crate::backend::{Acquired, Contended, Released, Renewal, Renewed, StoreErrorKind};

mod cluster;
mod faults;
mod old;
mod rights;
mod runtimes;

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

/// Time-outs that a test can wait for.
fn impatient(mut config: RedisConfig) -> RedisBackend {
    config.connect_timeout = PATIENCE;
    config.response_timeout = PATIENCE;
    RedisBackend::new(config)
}

const PATIENCE: Duration = Duration::from_millis(300);
