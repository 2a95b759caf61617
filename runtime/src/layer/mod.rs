//! The lock around routes and services.
mod body;
mod call;
mod calls;
mod deadline;
mod extension;
mod finish;
mod future;
mod grpc;
mod head;
mod key;
#[expect(clippy::module_inception, reason = "the file of the layer itself")]
mod layer;
mod meaning;
mod percent;
mod plan;
mod problem;
mod protocol;
mod rejection;
mod route;
mod service;
mod value;

#[cfg(feature = "axum")]
mod axum;
#[cfg(feature = "tonic")]
mod tonic;

#[cfg(feature = "axum")]
pub use axum::LockMissing;
pub use body::{BoxError, LockBody};
pub use calls::{LockCalls, LockCallsFuture, LockCallsLayer};
pub use deadline::Deadline;
pub use finish::{FinishFuture, FinishLayer, FinishService};
pub use future::LockFuture;
pub use head::RequestHead;
pub use key::{ExtractKey, IntoKey, RouteTemplate};
pub use layer::LockLayer;
pub use plan::Hold;
pub use rejection::Rejection;
pub use service::LockService;
