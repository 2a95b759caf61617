//! Bodies of responses: as they are, or with the lock held until they end.

use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use crate::backend::BoxFuture;
use crate::entered::Entered;
use crate::error::LockError;
use crate::options::OnLost;
use crate::scope;
use crate::watch::{Watch, first_over};

/// Any error, as bodies of responses have it.
pub type BoxError = Box<dyn Error + Send + Sync>;

pin_project! {
    /// The body of a response of [`LockService`](super::LockService): that of the inner service, or an
    /// answer of the layer.
    ///
    /// With [`Hold::UntilBodyEnd`](super::Hold::UntilBodyEnd) it holds the lock. If the lock is lost
    /// then, the body ends with a [`LockError`], so that no client takes it for whole: over HTTP/1
    /// the transfer is cut off, over HTTP/2 and in gRPC the stream is reset. Dropping it drops the
    /// inner body, then releases in the background.
    pub struct LockBody<B> {
        #[pin]
        state: State<B>,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<B> {
        Answer { bytes: Option<Bytes> },
        Done,
        // The body stands before the entry, so that a drop ends it before the release.
        Locked { #[pin] body: B, watch: Watch, entered: Option<Entered> },
        Releasing {
            last: Option<Frame<Bytes>>,
            release: BoxFuture<Result<(), LockError>>,
        },
        Unlocked { #[pin] body: B },
    }
}

impl<B> LockBody<B> {
    pub(crate) fn answer(bytes: Bytes) -> Self {
        let bytes = (!bytes.is_empty()).then_some(bytes);
        Self { state: State::Answer { bytes } }
    }

    pub(crate) fn locked(body: B, entered: Entered) -> Self {
        let watch = Watch::default();
        Self { state: State::Locked { body, watch, entered: Some(entered) } }
    }

    pub(crate) fn unlocked(body: B) -> Self {
        Self { state: State::Unlocked { body } }
    }
}

impl<B> Body for LockBody<B>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let mut state = self.project().state;
        loop {
            match state.as_mut().project() {
                StateProj::Answer { bytes } => {
                    return Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes))));
                }
                StateProj::Done => return Poll::Ready(None),
                StateProj::Locked { mut body, watch, entered } => {
                    // The entry is there as long as the body is.
                    let Some(inside) = entered else { return Poll::Ready(None) };
                    let cancels = inside.on_lost() == OnLost::Cancel;
                    if cancels && let Some(error) = first_over(inside.leases()) {
                        state.set(State::Done);
                        return Poll::Ready(Some(Err(error.into())));
                    }
                    let frame = inside.frame().cloned();
                    let next = scope::inside(frame, || body.as_mut().poll_frame(cx));
                    let Poll::Ready(next) = next else {
                        if cancels {
                            watch.arm(inside.leases(), cx);
                        }
                        return Poll::Pending;
                    };
                    let last = match next {
                        None => None,
                        Some(Err(error)) => {
                            state.set(State::Done);
                            return Poll::Ready(Some(Err(error.into())));
                        }
                        Some(Ok(frame)) if frame.is_trailers() || body.is_end_stream() => {
                            Some(frame)
                        }
                        Some(Ok(frame)) => return Poll::Ready(Some(Ok(frame))),
                    };
                    let entered = entered.take();
                    // Drops the body, before anything is released.
                    state.set(State::Done);
                    let Some(entered) = entered else { return Poll::Ready(None) };
                    let release = Box::pin(entered.release());
                    state.set(State::Releasing { last, release });
                }
                StateProj::Releasing { last, release } => {
                    let released = ready!(release.as_mut().poll(cx));
                    let last = last.take();
                    state.set(State::Done);
                    return Poll::Ready(match released {
                        Ok(()) => last.map(Ok),
                        Err(error) => Some(Err(error.into())),
                    });
                }
                StateProj::Unlocked { body } => {
                    return body.poll_frame(cx).map_err(Into::into);
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.state {
            State::Answer { bytes } => bytes.is_none(),
            State::Done => true,
            // Its end has to be polled, for the release.
            State::Locked { .. } | State::Releasing { .. } => false,
            State::Unlocked { body } => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.state {
            State::Answer { bytes } => SizeHint::with_exact(length(bytes.as_ref())),
            State::Done => SizeHint::with_exact(0),
            State::Locked { body, .. } | State::Unlocked { body } => body.size_hint(),
            State::Releasing { last, .. } => {
                SizeHint::with_exact(length(last.as_ref().and_then(Frame::data_ref)))
            }
        }
    }
}

impl<B> fmt::Debug for LockBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match self.state {
            State::Answer { .. } => "Answer",
            State::Done => "Done",
            State::Locked { .. } => "Locked",
            State::Releasing { .. } => "Releasing",
            State::Unlocked { .. } => "Unlocked",
        };
        f.debug_tuple("LockBody").field(&state).finish()
    }
}

fn length(bytes: Option<&Bytes>) -> u64 {
    bytes.map_or(0, |bytes| bytes.len() as u64)
}
