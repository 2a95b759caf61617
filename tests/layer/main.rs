//! The tower layer, through its public API: in services, in axum, in tonic, over real sockets.

#[path = "../support/mod.rs"]
mod support;

mod answers;
mod calls;
mod deadline;
mod finish;
mod held;
mod hold;
mod key;
mod kit;
mod mount;
mod order;
mod readiness;
mod routes;
