//! How a connection answers: which requests are under way, which of them have waited too long, and
//! whether it is dead.
//!
//! One timer watches all requests of a connection, since all have the same time. A timer of its own, made
//! and cancelled, would cost a request two system calls where it is the only one of its runtime.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::panic::{self, AssertUnwindSafe};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::sleep;

use super::request::Role;
use crate::clock::{Clock, Timestamp};

#[cfg(test)]
mod tests;

#[derive(Debug)]
pub(super) struct Pulse {
    /// How long a request may wait for its answer.
    limit: Duration,
    state: Mutex<State>,
}

/// Invariant: while a request is under way, a [`Watch`] runs, or ended with its runtime; then whoever
/// waits was woken, and starts another one.
#[derive(Debug)]
struct State {
    /// In the order in which they were sent, as far as they have not waited too long; what stands in front
    /// has not ended. So it is as long as what is sent within the limit, whatever callers do.
    under_way: VecDeque<Waiting>,
    /// The number of the first of them.
    first: u64,
    watched: bool,
    /// Requests that ended without a reply since the last one that got one.
    unanswered: u32,
    /// How long such requests have waited; what several waited at once counts once.
    silence: Duration,
    /// Up to when `silence` is counted.
    counted: Timestamp,
    /// Requests so far that end holds and places.
    endings: u64,
}

#[derive(Debug)]
struct Waiting {
    sent_at: Timestamp,
    phase: Phase,
}

#[derive(Debug)]
enum Phase {
    Ended,
    Waits(Option<Waker>),
}

/// A request on its way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Departure {
    number: u64,
    sent_at: Timestamp,
}

/// Whether a request has waited too long.
enum Patience {
    Late,
    /// Its waker is woken when it is.
    Watched,
    /// As before, but for somebody who watches.
    Unwatched,
}

/// Whoever looks after the requests under way.
struct Watch {
    pulse: Arc<Pulse>,
    done: bool,
}

/// What there is to do for a [`Watch`].
enum Look {
    Nothing,
    Overdue,
    Wait(Duration),
}

impl Pulse {
    pub(super) fn new(limit: Duration) -> Arc<Self> {
        let state = State {
            under_way: VecDeque::new(),
            first: 0,
            watched: false,
            unanswered: 0,
            silence: Duration::ZERO,
            counted: Timestamp::NOW,
            endings: 0,
        };
        Arc::new(Self { limit, state: Mutex::new(state) })
    }

    /// Takes note of a request that is about to be sent. How many of those that end holds went before.
    pub(super) fn depart(&self, role: Role) -> u64 {
        let mut state = self.state();
        if role == Role::Ends {
            state.endings += 1;
        }
        state.endings
    }

    /// Sends by polling `request` if no ending has gone since `endings`: the mutex keeps others out.
    pub(super) fn send_in_turn<F: Future>(
        &self,
        endings: u64,
        request: Pin<&mut F>,
        context: &mut Context<'_>,
    ) -> Option<Poll<F::Output>> {
        let state = self.state();
        (state.endings == endings).then(|| request.poll(context))
    }

    /// A request is sent now, which must be [answered](Self::answered) or [given up](Self::given_up).
    pub(super) fn begin(self: &Arc<Self>) -> Departure {
        let mut state = self.state();
        let number = state.first + state.under_way.len() as u64;
        let sent_at = CLOCK.now();
        state.under_way.push_back(Waiting { sent_at, phase: Phase::Waits(None) });
        let watched = std::mem::replace(&mut state.watched, true);
        drop(state);
        if !watched {
            // Ends a time-out after the last request, or with its runtime.
            drop(tokio::spawn(self.watch().run()));
        }
        Departure { number, sent_at }
    }

    /// What comes of `reply` to a request before it has waited too long.
    pub(super) async fn within<F: Future>(
        self: &Arc<Self>,
        departure: Departure,
        mut reply: Pin<&mut F>,
    ) -> Option<F::Output> {
        poll_fn(|context| {
            if let Poll::Ready(reply) = reply.as_mut().poll(context) {
                return Poll::Ready(Some(reply));
            }
            match self.patience(departure.number, context.waker()) {
                Patience::Late => return Poll::Ready(None),
                Patience::Unwatched => self.watch_again(),
                Patience::Watched => {}
            }
            Poll::Pending
        })
        .await
    }

    pub(super) fn answered(&self, departure: Departure) {
        let mut state = self.state();
        state.end(departure.number);
        state.unanswered = 0;
        state.silence = Duration::ZERO;
        state.counted = CLOCK.now();
    }

    /// Somebody lost patience. Whether the connection has been silent for so long that it is dead.
    pub(super) fn given_up(&self, departure: Departure) -> bool {
        let now = CLOCK.now();
        let mut state = self.state();
        state.end(departure.number);
        state.unanswered += 1;
        let begun_at = departure.sent_at.max(state.counted);
        state.silence += now.since(begun_at);
        state.counted = now;
        state.unanswered >= UNANSWERED_TO_CLOSE && state.silence >= self.limit
    }

    pub(super) fn is_idle(&self) -> bool {
        // Those in front have not ended.
        self.state().under_way.is_empty()
    }

    /// Whether request `number`, which has not ended, has waited too long; else `waker` is woken when it
    /// has.
    fn patience(&self, number: u64, waker: &Waker) -> Patience {
        let mut state = self.state();
        let Some(waiting) = state.find(number) else { return Patience::Late };
        if let Phase::Waits(known) = &mut waiting.phase
            && !known.as_ref().is_some_and(|known| known.will_wake(waker))
        {
            *known = Some(waker.clone());
        }
        if state.watched { Patience::Watched } else { Patience::Unwatched }
    }

    /// The runtime of the last watch has ended.
    fn watch_again(self: &Arc<Self>) {
        let Ok(here) = Handle::try_current() else { return };
        let watched = std::mem::replace(&mut self.state().watched, true);
        if !watched {
            // Not under the mutex: a runtime that ends drops it at once.
            drop(here.spawn(self.watch().run()));
        }
    }

    fn watch(self: &Arc<Self>) -> Watch {
        Watch { pulse: Arc::clone(self), done: false }
    }

    fn look(&self) -> Look {
        let mut state = self.state();
        let Some(oldest) = state.under_way.front() else {
            state.watched = false;
            return Look::Nothing;
        };
        let rest = (oldest.sent_at + self.limit).since(CLOCK.now());
        if rest.is_zero() { Look::Overdue } else { Look::Wait(rest) }
    }

    /// Ends the patience with what was overdue at `now`.
    fn expire(&self, now: Timestamp) {
        let mut wakers = Vec::new();
        let mut state = self.state();
        while let Some(oldest) = state.under_way.front_mut()
            && oldest.sent_at + self.limit <= now
        {
            if let Phase::Waits(waker) = &mut oldest.phase {
                wakers.extend(waker.take());
            }
            state.under_way.pop_front();
            state.first += 1;
        }
        state.forget_ended();
        drop(state);
        wake_all(wakers);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Each change is whole at any time.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn find(&mut self, number: u64) -> Option<&mut Waiting> {
        let index = usize::try_from(number.checked_sub(self.first)?).ok()?;
        self.under_way.get_mut(index)
    }

    /// Request `number` has ended, in time or late.
    fn end(&mut self, number: u64) {
        if let Some(waiting) = self.find(number) {
            waiting.phase = Phase::Ended;
            self.forget_ended();
        }
    }

    fn forget_ended(&mut self) {
        while let Some(Waiting { phase: Phase::Ended, .. }) = self.under_way.front() {
            self.under_way.pop_front();
            self.first += 1;
        }
    }
}

impl Waiting {
    fn waker(&self) -> Option<Waker> {
        match &self.phase {
            Phase::Waits(waker) => waker.clone(),
            Phase::Ended => None,
        }
    }
}

impl Watch {
    async fn run(mut self) {
        while !self.done {
            match self.pulse.look() {
                Look::Nothing => self.done = true,
                Look::Wait(rest) => sleep(rest).await,
                Look::Overdue => {
                    let now = CLOCK.now();
                    // A runtime that was blocked wakes up to its timers first: the reply may lie there
                    // unread. The reading task gets a moment for it.
                    sleep(READING_TIME).await;
                    self.pulse.expire(now);
                }
            }
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // Else the look said so, and there may be another one by now.
        if !self.done {
            let mut state = self.pulse.state();
            state.watched = false;
            let wakers: Vec<_> = state.under_way.iter().filter_map(Waiting::waker).collect();
            drop(state);
            wake_all(wakers);
        }
    }
}

/// Wakes all of them, also if code of the user's panics in one of them.
fn wake_all(wakers: Vec<Waker>) {
    for waker in wakers {
        // The panic hook has told of it.
        let _ = panic::catch_unwind(AssertUnwindSafe(|| waker.wake()));
    }
}

/// How long a reply may lie unread before it counts as late.
pub(super) const READING_TIME: Duration = Duration::from_millis(2);
const UNANSWERED_TO_CLOSE: u32 = 2;
const CLOCK: Clock = Clock::Boot;
