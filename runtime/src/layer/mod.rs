//! The lock around routes and services: one line in axum, in tonic, in any stack of tower's.
//!
//! ```
//! # #[cfg(feature = "axum")]
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use axum::Router;
//! use axum::extract::Path;
//! use axum::routing::post;
//! use distlock::layer::LockLayer;
//! use distlock::{HeldLock, LockClient};
//!
//! async fn deduct(Path(sku_id): Path<u64>, lock: HeldLock) -> String {
//!     format!("{sku_id} is ours alone, under {}", lock.key())
//! }
//!
//! let locks = LockClient::in_memory();
//! let app: Router = Router::new().route(
//!     "/skus/{sku_id}/deduct",
//!     post(deduct).route_layer(LockLayer::new(&locks, "stock:lock:<sku_id as u64>")),
//! );
//! # use tower_service::Service;
//! # let request = http::Request::post("/skus/007/deduct").body(axum::body::Body::empty())?;
//! # let response = app.clone().call(request).await?;
//! # let body = http_body::Body::size_hint(response.body()).exact();
//! # assert_eq!(body, Some("7 is ours alone, under stock:lock:7".len() as u64));
//! # Ok(())
//! # }
//! # #[cfg(not(feature = "axum"))] fn main() {}
//! ```
//!
//! The key is the one that `#[distributed_lock(key = "stock:lock:<sku_id>")]` on a function has, so
//! both exclude each other, and a handler below the layer enters the layer's hold when it calls
//! such a function.
//!
//! # What is guaranteed
//!
//! - **No handler without the lock.** What is not let through is [answered](#answers) by the layer:
//!   with a status that says what to do, for HTTP and for gRPC. The service's own error type stays
//!   what it is, so the layer needs no `HandleErrorLayer`.
//! - **A lost lock stops the handler** before its next poll, and the client is told that the
//!   outcome is unknown. With [`Hold::UntilBodyEnd`] a transfer under way is cut off, never ended
//!   cleanly.
//! - **A client that leaves frees the lock**, as fast as the server notices; the handler is dropped
//!   first.
//! - **Readiness reserves nothing**: the lock is sought in the response's future, and the instance
//!   that is called is the one that was ready.
//!
//! # What is not
//!
//! - A handler runs to its next await before it can be stopped. See [the crate docs](crate).
//! - A handler that calls its own service over the network waits for itself until `wait` ends: what
//!   a request holds does not travel with the next one.
//! - By default a body that streams on after the handler has returned is no longer locked.
//!
//! # Keys
//!
//! Text outside `<...>` is literal, as in the attribute. Inside stands a part of the request:
//!
//! | placeholder | value |
//! |---|---|
//! | `<sku_id as u64>` | a parameter of the path (feature `axum`), read as this type and written again: `7`, `007` and `+7` are one lock |
//! | `<sku_id>` | the same as text, decoded |
//! | `<header:x-tenant>` | the one value of a header; in gRPC, of the metadata |
//! | `<query:page>` | the one value of a field of the query, decoded |
//! | `<method>` | `GET`, `POST`, … |
//! | `<path>` | the whole path, that of outer routers included, in one spelling |
//!
//! Types are `i8` to `i128`, `u8` to `u128`, `isize`, `usize`, `uuid` and `str`; headers and fields
//! of the query take one, too. A value that is missing, given twice, empty, of another type or too
//! long is answered with 400, and nothing is sent to the store. For anything else there is
//! [`LockLayer::with_key`].
//!
//! # Where to mount it
//!
//! | place in axum | an unmatched path | a wrong method |
//! |---|---|---|
//! | `post(handler).route_layer(lock)`: **the usual place** | not locked | not locked |
//! | `any(handler).layer(lock)`, `MethodRouter::layer` | not locked | locked, then 405: name the [`methods`](LockLayer::methods) |
//! | `Router::route_layer`, `Router::layer` | not locked | the same |
//! | around a whole router | locked, if the key needs no parameter | locked |
//!
//! As all layers of axum it covers the routes that were added **before** it. A handler that must
//! not run without its lock takes a [`HeldLock`](crate::HeldLock) as an argument: mounted without
//! the layer it answers 500 and says how to mount it. `nest_service` hides which routes there are:
//! put the layer on the service's own routes, or say [`lock_unmatched`](LockLayer::lock_unmatched).
//!
//! # Answers
//!
//! | what happened | HTTP | `type` | gRPC |
//! |---|---|---|---|
//! | not obtained within `wait` | 423, `Retry-After` as far as known | `urn:distlock:busy` | `ABORTED`, `RetryInfo` |
//! | `max_waiters` wait already | 429 | `urn:distlock:queue-full` | `RESOURCE_EXHAUSTED` |
//! | the store does not answer | 503 | `urn:distlock:unavailable` | `UNAVAILABLE` |
//! | lost while the handler ran | 503 | `urn:distlock:lost` | `ABORTED` |
//! | lost, noticed after its end (`strict`) | 503 | `urn:distlock:lost-completed` | `ABORTED` |
//! | `max_hold` ran out | 503 | `urn:distlock:hold-limit` | `DEADLINE_EXCEEDED` |
//! | the client was shut down | 503 | `urn:distlock:shut-down` | `UNAVAILABLE` |
//! | the request's own [`Deadline`] ended the wait | 503 | `urn:distlock:deadline` | `DEADLINE_EXCEEDED` |
//! | a part of the key is no good | 400 | `urn:distlock:invalid-key` | `INVALID_ARGUMENT` |
//! | a fault of the service's own | 500, traced as an error | `urn:distlock:internal` | `INTERNAL` |
//!
//! HTTP requests get `application/problem+json` (RFC 9457), gRPC requests (by content type) a
//! status without a body. Neither names keys or owners, unless
//! [`disclose_key_and_owner`](LockLayer::disclose_key_and_owner) says so.
//! [`on_rejected`](LockLayer::on_rejected) replaces any of it.
//!
//! # How long it is held
//!
//! Until the handler has returned its response; with [`Hold::UntilBodyEnd`] until the body's last
//! frame or trailers. The release is answered before the response (or its last frame) goes out, so
//! a client that has its answer finds the lock free. A client that leaves ends the wait, or drops
//! the handler; a handler that must not stop half-way gets a [`FinishLayer`] inside the lock.
//!
//! # Order in a stack
//!
//! From the outside in: trace, authentication, rate limit, **lock**, time-out, transaction,
//! handler.
//!
//! - What turns requests away stands outside: it costs no command then. So does a limit of
//!   concurrency: inside, those who wait for the lock would keep their places.
//! - A time-out inside counts the work, one outside the wait as well. Both free the lock.
//! - **A transaction stands inside**, so that the lock outlives its commit. The other way round the
//!   next holder reads what is not committed yet.
//! - A retry outside gives the lock up between tries, and tries for the lock again, too; a retry
//!   inside keeps it, back-off included.
//!
//! # Other services
//!
//! tonic takes the layer for one service (`lock.named_layer(service)`) or for a whole server
//! (`Server::builder().layer(lock)`), where it also sees services and methods that nobody has:
//! [`when`](LockLayer::when) leaves them out. Methods find their lock by
//! [`HeldLock::of_request`](crate::HeldLock::of_request). For a key that is inside the message use
//! `#[distributed_lock]` on the method: with the feature `tonic` its error becomes a
//! `tonic::Status`. Around services that do not speak HTTP there is [`LockCallsLayer`].

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
