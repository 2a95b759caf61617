//! What the library promises, tried through its public API on every store.

#[path = "../support/mod.rs"]
mod support;

mod acquire;
mod cancel;
mod common;
mod fencing;
mod held;
mod loss;
mod network;
mod processes;
mod reentrancy;
mod release;
mod runtimes;
mod server;
mod several_keys;
mod shutdown;
mod waiting;
mod wire;
