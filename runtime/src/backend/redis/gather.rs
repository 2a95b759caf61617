//! Requests that are due at the same moment, sent together.
//!
//! One alone goes at once. One that comes while another of its kind is under way, or when the last ones
//! were together, waits until every task that is ready by now had its turn, and goes with theirs: under
//! load that is all of them, and both ends have half of the work. If a task blocks its worker in its turn,
//! another worker sends them all the same.

use std::fmt;
use std::future::{Future, poll_fn};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::task::yield_now;
use tokio::time::sleep;

use super::channel::Way;
use crate::backend::{BoxFuture, StoreError, StoreErrorKind, StoreResult};

#[cfg(test)]
mod tests;

/// A request that can be sent with others like it.
pub(super) trait Gathered: fmt::Debug + Sized + Send + 'static {
    type Answer: fmt::Debug + Send + 'static;

    /// Whether it is sent also if its caller has left before.
    const OUTLIVES_ITS_CALLER: bool;

    /// Whether it can be sent with others at all, as far as is known.
    fn may_join(way: &Way) -> bool;

    /// Whether both can be sent together.
    fn fits(&self, other: &Self) -> bool;

    /// Sends it at the first poll.
    fn alone(self, way: &Way) -> impl Future<Output = StoreResult<Self::Answer>> + Send;

    /// Sends all of them at the first poll. One answer each, in order.
    fn together(
        requests: Vec<Self>,
        way: Way,
    ) -> impl Future<Output = Vec<StoreResult<Self::Answer>>> + Send + 'static;
}

/// The requests of one kind on one connection.
#[derive(Debug)]
pub(super) struct Gathering<R: Gathered>(Mutex<State<R>>);

/// Invariant: where `gathered` is not empty, a [`Sending`] is about to send it, or to give it up; and a
/// [`Relief`] runs, or ended with its runtime.
#[derive(Debug)]
struct State<R: Gathered> {
    /// How many were sent and not answered.
    under_way: usize,
    /// How many were sent together the last time.
    last: usize,
    /// How many times something gathered was sent.
    departures: u64,
    relieved: bool,
    gathered: Vec<(R, Caller<R>)>,
}

type Caller<R> = oneshot::Sender<StoreResult<<R as Gathered>::Answer>>;
type Answer<R> = oneshot::Receiver<StoreResult<<R as Gathered>::Answer>>;

/// How a request goes.
enum Passage<R: Gathered> {
    Alone(R),
    /// With others.
    Gathered(Answer<R>),
    /// With others, for whom this caller starts the task that sends them.
    First(Answer<R>),
}

/// Something under way, as long as it is not dropped.
struct UnderWay<R: Gathered>(Arc<Gathering<R>>);

/// A caller that waits for its answer, and closes its end before this is dropped: from then on its
/// request is either sent or never will be.
struct Leaving<'a, R: Gathered>(&'a Gathering<R>);

/// What was gathered and is sent.
struct Departed<R: Gathered> {
    callers: Vec<Caller<R>>,
    first_poll: Poll<Vec<StoreResult<R::Answer>>>,
    answers: BoxFuture<Vec<StoreResult<R::Answer>>>,
    _under_way: UnderWay<R>,
}

/// Who sends what is gathered. Dropped before that, with its runtime, it gives up what is gathered: its
/// callers hear of it, and nobody joins it any more.
struct Sending<R: Gathered> {
    gathering: Arc<Gathering<R>>,
    taken: bool,
}

/// Sends what its [`Sending`] does not: that one may wait behind code that blocks a worker, where no other
/// worker can take it over. One for all gatherings in a row, since it costs a timer.
struct Relief<R: Gathered> {
    gathering: Arc<Gathering<R>>,
    done: bool,
}

impl<R: Gathered> Default for Gathering<R> {
    fn default() -> Self {
        let state =
            State { under_way: 0, last: 0, departures: 0, relieved: false, gathered: Vec::new() };
        Self(Mutex::new(state))
    }
}

impl<R: Gathered> Gathering<R> {
    /// Sends `request`, alone or with others.
    ///
    /// A drop before the first poll does nothing; later the request may take effect all the same, and
    /// if it does then before any that is sent after the drop.
    pub(super) async fn send(self: Arc<Self>, way: Way, request: R) -> StoreResult<R::Answer> {
        let passage = self.join(request, R::may_join(&way));
        // Before the answer, so that it is dropped after it.
        let _leaving = Leaving(&self);
        let answer = match passage {
            Passage::Alone(request) => {
                let under_way = UnderWay(Arc::clone(&self));
                // Boxed, so that the many that go together are small: what they allocate and move is
                // most of what they cost.
                let alone = Box::pin(async move {
                    let _under_way = under_way;
                    request.alone(&way).await
                });
                return alone.await;
            }
            Passage::Gathered(answer) => answer,
            Passage::First(answer) => {
                // The relief first: only the last task that a worker starts can it keep from the others.
                if let Some(relief) = self.relief() {
                    drop(tokio::spawn(relief.run(way.clone())));
                }
                Sending::begin(Arc::clone(&self), way);
                answer
            }
        };
        answer.await.unwrap_or_else(|_| Err(runtime_ended()))
    }

    fn join(&self, request: R, may_join: bool) -> Passage<R> {
        let mut state = self.state();
        let joins = match state.gathered.first() {
            None => may_join && (state.under_way > 0 || state.last > 1),
            Some((first, _)) => may_join && first.fits(&request),
        };
        if !joins {
            state.under_way += 1;
            state.last = 1;
            return Passage::Alone(request);
        }
        let (caller, answer) = oneshot::channel();
        state.gathered.push((request, caller));
        if state.gathered.len() == 1 { Passage::First(answer) } else { Passage::Gathered(answer) }
    }

    /// Whoever is to run from now on, unless somebody does.
    fn relief(self: &Arc<Self>) -> Option<Relief<R>> {
        let relieved = std::mem::replace(&mut self.state().relieved, true);
        (!relieved).then(|| Relief { gathering: Arc::clone(self), done: false })
    }

    fn state(&self) -> MutexGuard<'_, State<R>> {
        // Each change is whole at any time.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<R: Gathered> Sending<R> {
    fn begin(gathering: Arc<Gathering<R>>, way: Way) {
        // Ends with what it sends, or with its runtime.
        drop(tokio::spawn(Self { gathering, taken: false }.send_in_turn(way)));
    }

    async fn send_in_turn(self, way: Way) {
        yield_now().await;
        self.send(way).await;
    }

    async fn send(mut self, way: Way) {
        let (departed, is_rest) = poll_fn(|context| Poll::Ready(self.depart(&way, context))).await;
        if is_rest {
            // Not under the mutex: on a runtime that ends it is dropped at once, and takes that itself.
            Self::begin(Arc::clone(&self.gathering), way);
        }
        let Some(Departed { callers, first_poll, answers, _under_way }) = departed else { return };
        let answers = match first_poll {
            Poll::Ready(answers) => answers,
            Poll::Pending => answers.await,
        };
        for (caller, answer) in callers.into_iter().zip(answers) {
            // One that left does not need it.
            let _ = caller.send(answer);
        }
    }

    /// Sends what is gathered, under the mutex: so a caller that leaves knows whether its request was
    /// sent, and can undo it by a later one.
    ///
    /// Where the server has nothing to do, it gets a half first: else both ends would work in turns, each
    /// waiting for the other one, as long as all callers stay in step. With whether there is a rest, which
    /// needs a sender of its own.
    fn depart(&mut self, way: &Way, context: &mut Context<'_>) -> (Option<Departed<R>>, bool) {
        self.taken = true;
        let mut state = self.gathering.state();
        let count = state.gathered.len();
        let share = if count >= 2 * SMALLEST_SHARE && way.is_idle() { count / 2 } else { count };
        let rest = state.gathered.split_off(share.min(LARGEST_BATCH));
        let gathered = std::mem::replace(&mut state.gathered, rest);
        let is_rest = !state.gathered.is_empty();
        let wanted = |(_, caller): &(R, Caller<R>)| R::OUTLIVES_ITS_CALLER || !caller.is_closed();
        let (requests, callers): (Vec<_>, Vec<_>) = gathered.into_iter().filter(wanted).unzip();
        if requests.is_empty() {
            return (None, is_rest);
        }
        state.under_way += 1;
        state.last = requests.len();
        state.departures += 1;
        let mut answers: BoxFuture<_> = Box::pin(R::together(requests, way.clone()));
        let first_poll = answers.as_mut().poll(context);
        drop(state);
        let _under_way = UnderWay(Arc::clone(&self.gathering));
        (Some(Departed { callers, first_poll, answers, _under_way }), is_rest)
    }
}

impl<R: Gathered> Relief<R> {
    async fn run(mut self, way: Way) {
        let mut departures = self.gathering.state().departures;
        while !self.done {
            sleep(BLOCKED_AFTER).await;
            let mut state = self.gathering.state();
            if std::mem::replace(&mut departures, state.departures) != departures {
                continue;
            }
            if state.gathered.is_empty() {
                state.relieved = false;
                self.done = true;
            } else {
                drop(state);
                let sending = Sending { gathering: Arc::clone(&self.gathering), taken: false };
                drop(tokio::spawn(sending.send(way.clone())));
            }
        }
    }
}

impl<R: Gathered> Drop for Sending<R> {
    fn drop(&mut self) {
        // What was gathered since it was taken has a sender of its own.
        if !self.taken {
            let given_up = std::mem::take(&mut self.gathering.state().gathered);
            // Not under the mutex: it wakes the callers.
            drop(given_up);
        }
    }
}

impl<R: Gathered> Drop for Relief<R> {
    fn drop(&mut self) {
        // Else it said so itself, and there may be another one by now.
        if !self.done {
            self.gathering.state().relieved = false;
        }
    }
}

impl<R: Gathered> Drop for UnderWay<R> {
    fn drop(&mut self) {
        self.0.state().under_way -= 1;
    }
}

impl<R: Gathered> Drop for Leaving<'_, R> {
    fn drop(&mut self) {
        // Waits until what is being sent is sent.
        drop(self.0.state());
    }
}

fn runtime_ended() -> StoreError {
    StoreError::new(StoreErrorKind::Unavailable, "the request ended unanswered with its runtime")
}

/// Fewer are sent at once.
const SMALLEST_SHARE: usize = 16;

/// How long a request waits at most until it is sent, whatever blocks the worker that it waits for: twice
/// the time after which there is a relief.
pub(super) const SENT_WITHIN: Duration = BLOCKED_AFTER.saturating_mul(2);

/// Longer than the ready tasks of a busy runtime take for one turn.
const BLOCKED_AFTER: Duration = Duration::from_millis(20);

/// Keeps a script under a fifth of a millisecond.
pub(super) const LARGEST_BATCH: usize = 64;
