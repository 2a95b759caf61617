//! What the tests share: real servers, faults between client and server, and a look at the store
//! that does not go through the library.
//!
//! A test binary takes it in by `#[path = "../support/mod.rs"] mod support;`. `main.rs` beside this
//! file is a binary of its own: it tests the kit itself.

// Every test binary takes in the whole kit and uses a part of it.
#![allow(dead_code, unused_imports, unused_macros)]

mod cluster;
mod commands;
mod eventually;
mod port;
mod process;
mod proxy;
mod redis_server;
mod resp;
mod sentinel;
mod stores;
mod witness;

pub(crate) use cluster::{Cluster, Migration, Plan};
pub(crate) use commands::{CommandLog, Mark};
pub(crate) use eventually::{eventually, unique_key};
pub(crate) use port::free_port;
pub(crate) use process::{Orders, Process};
pub(crate) use proxy::{Gate, Proxy};
pub(crate) use redis_server::{Data, RedisServer};
pub(crate) use sentinel::{SentinelOptions, SentinelSetup};
pub(crate) use stores::{Store, on_every_store, owner_at};
pub(crate) use witness::{BodyReporter, Reporter, Testimony, Witness};
