//! Handlers that run to their end, whoever leaves.

use std::fmt;
use std::future::Future;
use std::mem;
use std::panic;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use pin_project_lite::pin_project;
use tokio::task::{JoinError, JoinHandle};
use tower_layer::Layer;
use tower_service::Service;

use super::body::{BoxError, LockBody};
use super::call::Call;
use super::plan::Asker;
use crate::error::LockError;
use crate::lock_scope::LockScope;
use crate::options::OnLost;

/// Lets a call that has begun under a [`LockLayer`](super::LockLayer) run to its end when its client
/// leaves: for handlers that must not stop half-way. Mount it **inside** the lock.
///
/// The call runs in a task of its own, under the same hold, which lasts until the call ends. A client
/// that leaves while the lock is still waited for ends the wait. If the lock is lost, the call is
/// dropped as ever (unless [`OnLost::Signal`] is set). A request without a lock is passed on as it
/// is.
///
/// ```
/// use distlock::LockClient;
/// use distlock::layer::{FinishLayer, LockLayer};
/// use tower_layer::Layer;
///
/// # fn demo<S>(service: S) {
/// let locks = LockClient::in_memory();
/// let service = LockLayer::new(&locks, "report:<header:x-tenant>").layer(FinishLayer::new().layer(service));
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default)]
#[must_use = "a layer does nothing until it is mounted"]
pub struct FinishLayer(());

impl FinishLayer {
    /// Creates the layer.
    pub fn new() -> Self {
        Self(())
    }
}

impl<S> Layer<S> for FinishLayer {
    type Service = FinishService<S>;

    fn layer(&self, inner: S) -> FinishService<S> {
        FinishService { inner }
    }
}

/// A service whose locked calls run to their end. See [`FinishLayer`].
#[derive(Clone, Debug)]
pub struct FinishService<S> {
    inner: S,
}

impl<S> FinishService<S> {
    /// The service inside.
    pub fn get_ref(&self) -> &S {
        &self.inner
    }

    /// The service inside.
    pub fn get_mut(&mut self) -> &mut S {
        &mut self.inner
    }

    /// Takes the layer off.
    #[must_use]
    pub fn into_inner(self) -> S {
        self.inner
    }
}

/// What a lock leaves with its request for this layer.
#[derive(Clone, Debug)]
pub(crate) struct Unfinished {
    asker: Asker,
    on_lost: OnLost,
}

impl Unfinished {
    pub(crate) fn new(asker: Asker, on_lost: OnLost) -> Self {
        Self { asker, on_lost }
    }
}

impl<S, B, R> Service<Request<B>> for FinishService<S>
where
    S: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
    B: Send + 'static,
    R: Body<Data = Bytes> + Send + 'static,
    R::Error: Into<BoxError>,
{
    type Response = Response<LockBody<R>>;
    type Error = S::Error;
    type Future = FinishFuture<S, B, R>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        let clone = self.inner.clone();
        let service = mem::replace(&mut self.inner, clone);
        // Once: a second layer of this kind further in has nothing to add.
        let state = match request.extensions_mut().remove::<Unfinished>() {
            Some(lock) => State::Begin { call: Some((service, request, lock)) },
            None => State::Passing { call: Call::new(service, request) },
        };
        FinishFuture { state }
    }
}

pin_project! {
    /// The future of [`FinishService`].
    ///
    /// # Cancel safety
    ///
    /// Dropping it leaves a locked call that has begun to its task, which runs it to its end.
    #[must_use = "futures do nothing unless polled"]
    pub struct FinishFuture<S, B, R>
    where
        S: Service<Request<B>>,
    {
        #[pin]
        state: State<S, B, R>,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<S, B, R>
    where
        S: Service<Request<B>>,
    {
        Begin { call: Option<(S, Request<B>, Unfinished)> },
        Passing { #[pin] call: Call<S, Request<B>> },
        Running { #[pin] task: JoinHandle<Result<Result<Response<R>, S::Error>, LockError>>, asker: Option<Asker> },
    }
}

impl<S, B, R> Future for FinishFuture<S, B, R>
where
    S: Service<Request<B>, Response = Response<R>> + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
    B: Send + 'static,
    R: Send + 'static,
{
    type Output = Result<Response<LockBody<R>>, S::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.project().state;
        if let StateProj::Begin { call } = state.as_mut().project() {
            let Some((service, request, lock)) = call.take() else { return Poll::Pending };
            let Unfinished { asker, on_lost } = lock;
            let call = Call::new(service, request);
            let task = tokio::spawn(LockScope::current().instrument_as(on_lost, call));
            state.set(State::Running { task, asker: Some(asker) });
        }
        match state.project() {
            StateProj::Begin { .. } => Poll::Pending,
            StateProj::Passing { call } => {
                call.poll(cx).map_ok(|response| response.map(LockBody::unlocked))
            }
            StateProj::Running { task, asker } => match ready!(task.poll(cx)) {
                Ok(Ok(outcome)) => {
                    Poll::Ready(outcome.map(|response| response.map(LockBody::unlocked)))
                }
                Ok(Err(lost)) => {
                    let Some(asker) = asker.take() else { return Poll::Pending };
                    Poll::Ready(Ok(asker.answer(lost).map(LockBody::answer)))
                }
                Err(error) => stopped(error),
            },
        }
    }
}

/// A panic goes on where the call was made. Any other end comes of the runtime's own, and of whoever
/// waits here with it.
fn stopped<T>(error: JoinError) -> Poll<T> {
    match error.try_into_panic() {
        Ok(payload) => panic::resume_unwind(payload),
        Err(_) => Poll::Pending,
    }
}

impl<S: Service<Request<B>>, B, R> fmt::Debug for FinishFuture<S, B, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FinishFuture").finish_non_exhaustive()
    }
}
