//! A request on its way: to the lock, through the service, to the end of the hold.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use pin_project_lite::pin_project;
use tower_service::Service;

use super::body::LockBody;
use super::call::Call;
use super::finish::Unfinished;
use super::plan::{Asker, Hold};
use crate::backend::BoxFuture;
use crate::checked::Checked;
use crate::enter::Acquire;
use crate::entered::Entered;
use crate::error::LockError;
use crate::running::Running;

pin_project! {
    /// The future of [`LockService`](super::LockService).
    ///
    /// # Cancel safety
    ///
    /// Dropping it drops the call of the inner service first. Then the lock is released in the
    /// background, or the place in the queue given up.
    #[must_use = "futures do nothing unless polled"]
    pub struct LockFuture<S, B, R>
    where
        S: Service<Request<B>>,
    {
        #[pin]
        state: State<S, B, R>,
        // Who gets the answer if the lock is not obtained or lost.
        asker: Option<Asker>,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<S, B, R>
    where
        S: Service<Request<B>>,
    {
        Done,
        Passing { #[pin] call: Call<S, Request<B>> },
        Refused { response: Option<Response<Bytes>> },
        Releasing { response: Option<Response<R>>, release: BoxFuture<Result<(), LockError>> },
        Seeking { acquire: Acquire, call: Option<(S, Request<B>)> },
        // The call stands before the entry, so that a drop ends it before the release.
        UntilBodyEnd { #[pin] call: Checked<Call<S, Request<B>>>, entered: Option<Entered> },
        UntilResponse { #[pin] call: Running<Call<S, Request<B>>> },
    }
}

impl<S: Service<Request<B>>, B, R> LockFuture<S, B, R> {
    pub(crate) fn lock(acquire: Acquire, asker: Asker, service: S, request: Request<B>) -> Self {
        let call = Some((service, request));
        Self { state: State::Seeking { acquire, call }, asker: Some(asker) }
    }

    pub(crate) fn pass(service: S, request: Request<B>) -> Self {
        Self { state: State::Passing { call: Call::new(service, request) }, asker: None }
    }

    pub(crate) fn refuse(response: Response<Bytes>) -> Self {
        Self { state: State::Refused { response: Some(response) }, asker: None }
    }
}

impl<S, B, R> Future for LockFuture<S, B, R>
where
    S: Service<Request<B>, Response = Response<R>>,
    R: Body<Data = Bytes>,
{
    type Output = Result<Response<LockBody<R>>, S::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            let refusal = match this.state.as_mut().project() {
                StateProj::Passing { call } => {
                    let outcome = ready!(call.poll(cx));
                    this.state.set(State::Done);
                    return Poll::Ready(outcome.map(|response| response.map(LockBody::unlocked)));
                }
                StateProj::Refused { response } => match response.take() {
                    Some(response) => return Poll::Ready(Ok(response.map(LockBody::answer))),
                    None => return Poll::Pending,
                },
                StateProj::Seeking { acquire, call } => {
                    match ready!(Pin::new(acquire).poll(cx)) {
                        Ok(entered) => {
                            // Both are there as long as the lock is sought.
                            let (Some(call), Some(asker)) = (call.take(), this.asker.as_ref())
                            else {
                                return Poll::Pending;
                            };
                            this.state.set(State::begin(entered, call, asker));
                            continue;
                        }
                        Err(error) => error,
                    }
                }
                StateProj::UntilResponse { call } => match ready!(call.poll(cx)) {
                    Ok(outcome) => {
                        this.state.set(State::Done);
                        let unlocked = |response: Response<R>| response.map(LockBody::unlocked);
                        return Poll::Ready(outcome.map(unlocked));
                    }
                    Err(failure) => failure.into_error(),
                },
                StateProj::UntilBodyEnd { call, entered } => match ready!(call.poll(cx)) {
                    Ok(outcome) => {
                        let entered = entered.take();
                        // Drops the call.
                        this.state.set(State::Done);
                        let response = match outcome {
                            Ok(response) => response,
                            Err(error) => return Poll::Ready(Err(error)),
                        };
                        // The entry is there as long as the call is.
                        let Some(entered) = entered else { return Poll::Pending };
                        if !response.body().is_end_stream() {
                            let body = |body| LockBody::locked(body, entered);
                            return Poll::Ready(Ok(response.map(body)));
                        }
                        let release = Box::pin(entered.release());
                        let response = Some(response);
                        this.state.set(State::Releasing { response, release });
                        continue;
                    }
                    Err(error) => error,
                },
                StateProj::Releasing { response, release } => {
                    match ready!(release.as_mut().poll(cx)) {
                        Ok(()) => {
                            let response = response.take();
                            this.state.set(State::Done);
                            let Some(response) = response else { return Poll::Pending };
                            return Poll::Ready(Ok(response.map(LockBody::unlocked)));
                        }
                        Err(error) => error,
                    }
                }
                // Polled again after it was ready.
                StateProj::Done => return Poll::Pending,
            };
            // What runs under the lock goes first, then the hold, then the answer.
            this.state.set(State::Done);
            let Some(asker) = this.asker.take() else { return Poll::Pending };
            let answer = asker.answer(refusal);
            return Poll::Ready(Ok(answer.map(LockBody::answer)));
        }
    }
}

impl<S: Service<Request<B>>, B, R> State<S, B, R> {
    /// Begins the call under the lock, or without it where the layer says so.
    fn begin(entered: Entered, (service, mut request): (S, Request<B>), asker: &Asker) -> Self {
        if let Some(held) = entered.held_if_locked() {
            request.extensions_mut().insert(held);
            request.extensions_mut().insert(Unfinished::new(asker.clone(), entered.on_lost()));
        }
        let call = Call::new(service, request);
        match asker.plan().hold {
            Hold::UntilBodyEnd => {
                let call = Checked::new(call, &entered);
                Self::UntilBodyEnd { call, entered: Some(entered) }
            }
            Hold::UntilResponse => Self::UntilResponse { call: entered.run(call) },
        }
    }
}

impl<S: Service<Request<B>>, B, R> fmt::Debug for LockFuture<S, B, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockFuture").finish_non_exhaustive()
    }
}
