//! Asking several nodes at once, and answering before the last of them has.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::runtime::Handle;
use tokio::sync::oneshot::{self, error::TryRecvError};

use crate::backend::{BoxFuture, StoreError, StoreErrorKind, StoreResult};

/// Requests under way. The first look at the answers sends them all, in the order in which they were
/// added.
pub(super) struct Asked<A> {
    pending: Vec<(usize, BoxFuture<A>)>,
    answers: VecDeque<(usize, A)>,
}

impl<A> Asked<A> {
    pub(super) fn new() -> Self {
        Self { pending: Vec::new(), answers: VecDeque::new() }
    }

    pub(super) fn add(&mut self, node: usize, request: impl Future<Output = A> + Send + 'static) {
        self.pending.push((node, Box::pin(request)));
    }

    /// The next answer, and whose it is; `None` after the last.
    pub(super) async fn next(&mut self) -> Option<(usize, A)> {
        poll_fn(|context| {
            // All of them, however many are ready: each is sent at its first poll.
            let mut index = 0;
            while let Some((node, request)) = self.pending.get_mut(index) {
                match request.as_mut().poll(context) {
                    Poll::Pending => index += 1,
                    Poll::Ready(answer) => {
                        self.answers.push_back((*node, answer));
                        drop(self.pending.remove(index));
                    }
                }
            }
            match self.answers.pop_front() {
                Some(answer) => Poll::Ready(Some(answer)),
                None if self.pending.is_empty() => Poll::Ready(None),
                None => Poll::Pending,
            }
        })
        .await
    }
}

/// Says what a piece of work comes to, once.
pub(super) struct Decide<T>(Option<oneshot::Sender<StoreResult<T>>>);

impl<T> Decide<T> {
    pub(super) fn decide(&mut self, outcome: StoreResult<T>) {
        if let Some(sender) = self.0.take() {
            // Nobody waits for it any more: the work goes on all the same.
            let _ = sender.send(outcome);
        }
    }

    pub(super) fn is_open(&self) -> bool {
        self.0.is_some()
    }
}

/// Does `work` until it has decided, and the rest of it in the background, on the calling runtime;
/// also if nobody waits for the decision any more. Where there is no runtime, or it ends, the rest is
/// dropped: what must not be forgotten then is in guards.
pub(super) fn early<T, F>(work: impl FnOnce(Decide<T>) -> F) -> BoxFuture<StoreResult<T>>
where
    T: Send + 'static,
    F: Future<Output = ()> + Send + 'static,
{
    let (sender, outcome) = oneshot::channel();
    let work: BoxFuture<()> = Box::pin(work(Decide(Some(sender))));
    Box::pin(Early { work: Some(work), begun: false, outcome })
}

struct Early<T> {
    work: Option<BoxFuture<()>>,
    /// Before its first poll a request has not happened.
    begun: bool,
    outcome: oneshot::Receiver<StoreResult<T>>,
}

impl<T> Future for Early<T> {
    type Output = StoreResult<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.begun = true;
        if let Some(work) = &mut self.work
            && work.as_mut().poll(context).is_ready()
        {
            self.work = None;
        }
        match self.outcome.try_recv() {
            Ok(outcome) => {
                self.leave_the_rest();
                Poll::Ready(outcome)
            }
            Err(TryRecvError::Empty) => Poll::Pending,
            Err(TryRecvError::Closed) => {
                let text = "the quorum came to no decision";
                Poll::Ready(Err(StoreError::new(StoreErrorKind::Unavailable, text)))
            }
        }
    }
}

impl<T> Early<T> {
    fn leave_the_rest(&mut self) {
        if let Some(rest) = self.work.take()
            && self.begun
            && let Ok(runtime) = Handle::try_current()
        {
            runtime.spawn(rest);
        }
    }
}

impl<T> Drop for Early<T> {
    fn drop(&mut self) {
        self.leave_the_rest();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::Mutex;
    use std::time::Duration;

    use tokio::time::sleep;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn all_are_sent_at_the_first_look_and_answer_as_they_come() {
        let sent = Arc::new(Mutex::new(Vec::new()));
        let mut asked = Asked::new();
        for (node, delay) in [(0, 30), (1, 10), (2, 0)] {
            let sent = Arc::clone(&sent);
            asked.add(node, async move {
                sent.lock().unwrap().push(node);
                sleep(Duration::from_millis(delay)).await;
            });
        }
        let mut order = Vec::new();
        while let Some((node, ())) = asked.next().await {
            assert_eq!(*sent.lock().unwrap(), [0, 1, 2]);
            order.push(node);
        }
        assert_eq!(order, [2, 1, 0]);
    }

    #[tokio::test(start_paused = true)]
    async fn work_goes_on_after_its_decision_and_after_its_caller() {
        let done = Arc::new(Mutex::new(0));
        let work = || {
            let done = Arc::clone(&done);
            early(|mut decide: Decide<u8>| async move {
                sleep(Duration::from_millis(10)).await;
                decide.decide(Ok(7));
                sleep(Duration::from_millis(10)).await;
                *done.lock().unwrap() += 1;
            })
        };
        assert_eq!(work().await.unwrap(), 7);
        assert_eq!(*done.lock().unwrap(), 0);

        let mut dropped = work();
        poll_fn(|context| Poll::Ready(dropped.as_mut().poll(context).is_pending())).await;
        drop(dropped);
        drop(work());
        sleep(Duration::from_secs(1)).await;

        assert_eq!(*done.lock().unwrap(), 2, "what was never polled has not happened");
    }
}
