//! The tower layer, through its public API: in services, in axum, in tonic, over real sockets.

#[path = "../support/mod.rs"]
mod support;

// The examples are served here, too, each in a process of its own.
#[allow(dead_code)]
#[path = "../../examples/axum_stock.rs"]
mod axum_stock;
#[allow(dead_code)]
#[path = "../../examples/grpc_stock.rs"]
mod grpc_stock;

mod answers;
mod calls;
mod deadline;
mod finish;
mod grpc;
mod held;
mod hold;
mod key;
mod kit;
mod mount;
mod order;
mod processes;
mod readiness;
mod routes;
mod sockets;
mod trace;
mod wire;
