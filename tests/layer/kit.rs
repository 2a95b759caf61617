//! Requests, answers, and handlers that a test can stop.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::body::Body;
use axum::response::IntoResponse;
use bytes::Bytes;
use distlock::{LockClient, LockGuard, LockKey};
use http::{HeaderMap, Request, StatusCode};
use http_body_util::BodyExt;
use tokio::sync::Semaphore;
use tower::{Service, ServiceExt};

use crate::support::{Store, eventually};

pub(crate) fn get(uri: &str) -> Request<Body> {
    request("GET", uri)
}

pub(crate) fn post(uri: &str) -> Request<Body> {
    request("POST", uri)
}

pub(crate) fn request(method: &str, uri: &str) -> Request<Body> {
    Request::builder().method(method).uri(uri).body(Body::empty()).unwrap()
}

/// A call of a gRPC method, without a message.
pub(crate) fn grpc(uri: &str) -> Request<Body> {
    let mut request = post(uri);
    request.headers_mut().insert("content-type", "application/grpc".parse().unwrap());
    request
}

pub(crate) fn with_header(
    mut request: Request<Body>,
    name: &'static str,
    value: &str,
) -> Request<Body> {
    request.headers_mut().append(name, value.parse().unwrap());
    request
}

/// A response, read to its end.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Answer {
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }
}

/// Sends one request to a clone of `service` and reads the response to its end.
pub(crate) async fn ask<S>(service: &S, request: Request<Body>) -> Answer
where
    S: Service<Request<Body>, Error = Infallible> + Clone,
    S::Response: IntoResponse,
{
    let response = service.clone().oneshot(request).await.unwrap().into_response();
    let (parts, body) = response.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    Answer { status: parts.status, headers: parts.headers, body }
}

/// Holds `key` for another owner: a client of its own.
pub(crate) async fn hold(client: &LockClient, key: &str) -> LockGuard {
    client.lock(LockKey::literal(key.to_owned())).acquire().await.unwrap()
}

/// Where handlers wait until the test lets them go on.
#[derive(Clone, Debug)]
pub(crate) struct Door(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    inside: AtomicUsize,
    most: AtomicUsize,
    entered: AtomicUsize,
    left: AtomicUsize,
    open: Semaphore,
}

impl Door {
    /// A closed one.
    pub(crate) fn closed() -> Self {
        Self(Arc::new(Inner {
            inside: AtomicUsize::new(0),
            most: AtomicUsize::new(0),
            entered: AtomicUsize::new(0),
            left: AtomicUsize::new(0),
            open: Semaphore::new(0),
        }))
    }

    pub(crate) fn open() -> Self {
        let door = Self::closed();
        door.let_in(1_000_000);
        door
    }

    /// Waits for the test, in a handler.
    pub(crate) async fn pass(&self) {
        let inside = self.0.inside.fetch_add(1, Ordering::SeqCst) + 1;
        self.0.most.fetch_max(inside, Ordering::SeqCst);
        self.0.entered.fetch_add(1, Ordering::SeqCst);
        let _inside = Inside(&self.0);
        self.0.open.acquire().await.unwrap().forget();
        tokio::task::yield_now().await;
        self.0.left.fetch_add(1, Ordering::SeqCst);
    }

    /// Lets so many go on.
    pub(crate) fn let_in(&self, number: usize) {
        self.0.open.add_permits(number);
    }

    /// How many have begun.
    pub(crate) fn entered(&self) -> usize {
        self.0.entered.load(Ordering::SeqCst)
    }

    /// How many have come to their end.
    pub(crate) fn finished(&self) -> usize {
        self.0.left.load(Ordering::SeqCst)
    }

    /// How many are inside now.
    pub(crate) fn inside(&self) -> usize {
        self.0.inside.load(Ordering::SeqCst)
    }

    /// The highest number that were inside at once.
    pub(crate) fn most(&self) -> usize {
        self.0.most.load(Ordering::SeqCst)
    }

    pub(crate) async fn wait_for_entry(&self, number: usize) {
        eventually("a handler has begun", SOON, async || self.entered() >= number).await;
    }
}

struct Inside<'a>(&'a Inner);

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.0.inside.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Waits until nobody holds `key`, which was given back in the background: within the 200 milliseconds
/// that are promised where time is paused; on a real server long before the usual lease ends.
pub(crate) async fn freed(store: &Store, key: &str) {
    let within = if let Store::Memory(_) = store { Duration::from_millis(200) } else { SOON };
    eventually(&format!("{key} is free"), within, async || store.owner_of(key).await.is_none())
        .await;
}

/// For what is only late when something is broken. Half of the usual lease: what is free by then was
/// released.
pub(crate) const SOON: Duration = Duration::from_secs(5);

/// A wait within which a store answers, however busy the machine is.
pub(crate) const ANSWERED: Duration = Duration::from_secs(1);

/// In which a lock would be free, if it were given back.
pub(crate) const A_WHILE: Duration = Duration::from_millis(350);

/// A lease or a wait whose end no test sees.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// What may be added to a time on `store`: nothing where time is paused, and elsewhere what a busy
/// machine adds.
pub(crate) fn slack(store: &Store) -> Duration {
    if let Store::Redis(_) = store { Duration::from_secs(3) } else { Duration::ZERO }
}
