//! A service behind a lock.

use std::mem;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use tower_service::Service;

use super::body::{BoxError, LockBody};
use super::future::LockFuture;
use super::plan::{Plan, Step};

/// A service whose calls run under a lock. See the [module docs](super).
#[derive(Clone, Debug)]
pub struct LockService<S> {
    inner: S,
    plan: Arc<Plan>,
}

impl<S> LockService<S> {
    pub(super) fn new(inner: S, plan: Arc<Plan>) -> Self {
        Self { inner, plan }
    }

    /// The service behind the lock.
    pub fn get_ref(&self) -> &S {
        &self.inner
    }

    /// The service behind the lock.
    pub fn get_mut(&mut self) -> &mut S {
        &mut self.inner
    }

    /// Takes the lock off.
    #[must_use]
    pub fn into_inner(self) -> S {
        self.inner
    }
}

impl<S, B, R> Service<Request<B>> for LockService<S>
where
    S: Service<Request<B>, Response = Response<R>> + Clone,
    R: Body<Data = Bytes>,
    R::Error: Into<BoxError>,
{
    type Response = Response<LockBody<R>>;
    type Error = S::Error;
    type Future = LockFuture<S, B, R>;

    /// Ready when the inner service is: a lock is sought only once there is a request.
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        // The instance that was ready goes into the future; the clone has to be asked anew.
        let clone = self.inner.clone();
        let service = mem::replace(&mut self.inner, clone);
        let (mut parts, body) = request.into_parts();
        let step = self.plan.step(&mut parts);
        let request = Request::from_parts(parts, body);
        match step {
            Step::Lock { acquire, asker } => LockFuture::lock(acquire, asker, service, request),
            Step::Pass => LockFuture::pass(service, request),
            Step::Refuse(response) => LockFuture::refuse(response),
        }
    }
}
