//! The lock around services that do not speak HTTP.

use std::fmt;
use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;
use tower_layer::Layer;
use tower_service::Service;

use super::call::Call;
use super::key::IntoKey;
use crate::client::LockClient;
use crate::enter::Acquire;
use crate::error::LockError;
use crate::options::LockOptions;
use crate::running::Running;

/// Puts a lock around any service: a function finds the key of a request, another one makes the
/// outcome of a request that did not get its lock or lost it.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// use distlock::layer::LockCallsLayer;
/// use distlock::{LockClient, LockError, lock_key};
/// use tower_layer::Layer;
/// # use std::task::{Context, Poll};
/// # #[derive(Clone)] struct Mailer;
/// # impl tower_service::Service<u64> for Mailer {
/// #     type Response = &'static str;
/// #     type Error = std::convert::Infallible;
/// #     type Future = std::future::Ready<Result<&'static str, Self::Error>>;
/// #     fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> { Poll::Ready(Ok(())) }
/// #     fn call(&mut self, _: u64) -> Self::Future { std::future::ready(Ok("sent")) }
/// # }
/// use tower_service::Service;
///
/// let locks = LockClient::in_memory();
/// let layer = LockCallsLayer::new(
///     &locks,
///     |user_id: &u64| lock_key!("mail:<user_id>"),
///     |_error: LockError| Ok("somebody else is at it"),
/// );
///
/// let mut service = layer.layer(Mailer);
/// assert_eq!(service.call(7).await, Ok("sent"));
/// # }
/// ```
#[derive(Clone)]
#[must_use = "a layer does nothing until it is mounted"]
pub struct LockCallsLayer<K, F> {
    client: LockClient,
    key: K,
    fallback: F,
    options: LockOptions,
}

impl<K, F> LockCallsLayer<K, F> {
    /// Creates a layer. `key` gets the request and returns a [`LockKey`](crate::LockKey) or a
    /// `Result<LockKey, LockError>`; `fallback` gets the error and returns what the service would.
    pub fn new(client: &LockClient, key: K, fallback: F) -> Self {
        Self { client: client.clone(), key, fallback, options: LockOptions::new() }
    }

    /// Sets everything that is set in `options`.
    pub fn options(self, options: LockOptions) -> Self {
        Self { options: options.or(&self.options), ..self }
    }
}

impl<S, K: Clone, F: Clone> Layer<S> for LockCallsLayer<K, F> {
    type Service = LockCalls<S, K, F>;

    fn layer(&self, inner: S) -> LockCalls<S, K, F> {
        LockCalls { inner, layer: self.clone() }
    }
}

impl<K, F> fmt::Debug for LockCallsLayer<K, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockCallsLayer")
            .field("client", &self.client)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

/// A service whose calls run under a lock. See [`LockCallsLayer`].
#[derive(Clone)]
pub struct LockCalls<S, K, F> {
    inner: S,
    layer: LockCallsLayer<K, F>,
}

impl<S, K, F, R, T> Service<R> for LockCalls<S, K, F>
where
    S: Service<R> + Clone,
    K: Fn(&R) -> T,
    T: IntoKey,
    F: Fn(LockError) -> Result<S::Response, S::Error> + Clone,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = LockCallsFuture<S, R, F>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: R) -> Self::Future {
        let clone = self.inner.clone();
        let service = mem::replace(&mut self.inner, clone);
        let LockCallsLayer { client, key, fallback, options } = &self.layer;
        let acquire = match key(&request).into_key() {
            Ok(key) => client.lock(key).options(options.clone()).start(),
            Err(error) => Acquire::refused(error),
        };
        let state = State::Seeking { acquire, call: Some((service, request)) };
        LockCallsFuture { state, fallback: fallback.clone() }
    }
}

impl<S: fmt::Debug, K, F> fmt::Debug for LockCalls<S, K, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockCalls").field("inner", &self.inner).field("layer", &self.layer).finish()
    }
}

pin_project! {
    /// The future of [`LockCalls`].
    ///
    /// # Cancel safety
    ///
    /// Dropping it drops the call of the inner service first. Then the lock is released in the
    /// background, or the place in the queue given up.
    #[must_use = "futures do nothing unless polled"]
    pub struct LockCallsFuture<S, R, F>
    where
        S: Service<R>,
    {
        #[pin]
        state: State<S, R>,
        fallback: F,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<S, R>
    where
        S: Service<R>,
    {
        Done,
        Running { #[pin] call: Running<Call<S, R>> },
        Seeking { acquire: Acquire, call: Option<(S, R)> },
    }
}

impl<S, R, F> Future for LockCallsFuture<S, R, F>
where
    S: Service<R>,
    F: Fn(LockError) -> Result<S::Response, S::Error>,
{
    type Output = Result<S::Response, S::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        if let StateProj::Seeking { acquire, call } = this.state.as_mut().project() {
            match ready!(Pin::new(acquire).poll(cx)) {
                Ok(entered) => {
                    // It is there as long as the lock is sought.
                    let Some((service, request)) = call.take() else { return Poll::Pending };
                    let call = entered.run(Call::new(service, request));
                    this.state.set(State::Running { call });
                }
                Err(error) => {
                    this.state.set(State::Done);
                    return Poll::Ready((this.fallback)(error));
                }
            }
        }
        let StateProj::Running { call } = this.state.as_mut().project() else {
            // Polled again after it was ready.
            return Poll::Pending;
        };
        let outcome = ready!(call.poll(cx));
        this.state.set(State::Done);
        Poll::Ready(outcome.unwrap_or_else(|failure| (this.fallback)(failure.into_error())))
    }
}

impl<S: Service<R>, R, F> fmt::Debug for LockCallsFuture<S, R, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockCallsFuture").finish_non_exhaustive()
    }
}
