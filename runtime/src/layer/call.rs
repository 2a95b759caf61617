//! One call of a service that was ready, made only when its future is polled.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;
use tower_service::Service;

pin_project! {
    /// Calls `service` at the first poll: so the call itself, too, is made under the lock and inside
    /// its scope.
    #[project = CallProj]
    pub(crate) enum Call<S, R>
    where
        S: Service<R>,
    {
        Ready { call: Option<(S, R)> },
        Called { #[pin] future: S::Future },
    }
}

impl<S: Service<R>, R> Call<S, R> {
    pub(crate) fn new(service: S, request: R) -> Self {
        Self::Ready { call: Some((service, request)) }
    }
}

impl<S: Service<R>, R> Future for Call<S, R> {
    type Output = Result<S::Response, S::Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let CallProj::Ready { call } = self.as_mut().project() {
            let Some((mut service, request)) = call.take() else {
                // Polled again after the call itself has panicked.
                return Poll::Pending;
            };
            let future = service.call(request);
            self.set(Self::Called { future });
        }
        match self.project() {
            CallProj::Called { future } => future.poll(cx),
            CallProj::Ready { .. } => Poll::Pending,
        }
    }
}
