//! How a connection answers: which requests are under way, which of them have waited too long, and
//! whether it is dead.
//!
//! One timer watches all requests of a connection, since all have the same time. A timer of its own, made
//! and cancelled, would cost a request two system calls where it is the only one of its runtime.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::time::sleep;

use super::request::Role;
use crate::clock::{Clock, Timestamp};

#[derive(Debug)]
pub(super) struct Pulse {
    /// How long a request may wait for its answer.
    limit: Duration,
    state: Mutex<State>,
}

/// Invariant: while a request is under way, a [`Watch`] runs, or ended with its runtime.
#[derive(Debug)]
struct State {
    /// In the order in which they were sent; what stands in front has not ended.
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
    Late,
    Waits(Option<Waker>),
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

    /// A request is sent now. The number by which it must be [answered](Self::answered) or
    /// [given up](Self::given_up).
    pub(super) fn begin(self: &Arc<Self>) -> u64 {
        let mut state = self.state();
        let number = state.first + state.under_way.len() as u64;
        let phase = Phase::Waits(None);
        state.under_way.push_back(Waiting { sent_at: CLOCK.now(), phase });
        let watched = std::mem::replace(&mut state.watched, true);
        drop(state);
        if !watched {
            // Ends a time-out after the last request, or with its runtime.
            drop(tokio::spawn(Watch { pulse: Arc::clone(self), done: false }.run()));
        }
        number
    }

    /// What comes of `reply` to request `number` before it has waited too long.
    pub(super) async fn within<F: Future>(
        &self,
        number: u64,
        mut reply: Pin<&mut F>,
    ) -> Option<F::Output> {
        poll_fn(|context| match reply.as_mut().poll(context) {
            Poll::Ready(reply) => Poll::Ready(Some(reply)),
            Poll::Pending if self.is_late(number, context.waker()) => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        })
        .await
    }

    pub(super) fn answered(&self, number: u64) {
        let mut state = self.state();
        state.end(number);
        state.unanswered = 0;
        state.silence = Duration::ZERO;
        state.counted = CLOCK.now();
    }

    /// Somebody lost patience. Whether the connection has been silent for so long that it is dead.
    pub(super) fn given_up(&self, number: u64) -> bool {
        let now = CLOCK.now();
        let mut state = self.state();
        let Some(sent_at) = state.end(number) else { return false };
        state.unanswered += 1;
        let begun_at = sent_at.max(state.counted);
        state.silence += now.since(begun_at);
        state.counted = now;
        state.unanswered >= UNANSWERED_TO_CLOSE && state.silence >= self.limit
    }

    pub(super) fn is_idle(&self) -> bool {
        // Those in front have not ended.
        self.state().under_way.is_empty()
    }

    /// Whether request `number` has waited too long; else `waker` is woken when it has.
    fn is_late(&self, number: u64, waker: &Waker) -> bool {
        let mut state = self.state();
        match state.phase_of(number) {
            Some(Phase::Waits(known)) => {
                if !known.as_ref().is_some_and(|known| known.will_wake(waker)) {
                    *known = Some(waker.clone());
                }
                false
            }
            Some(Phase::Late) => true,
            Some(Phase::Ended) | None => false,
        }
    }

    fn look(&self) -> Look {
        let mut state = self.state();
        let waits = |waiting: &&Waiting| matches!(waiting.phase, Phase::Waits(_));
        let Some(oldest) = state.under_way.iter().find(waits) else {
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
        for waiting in &mut state.under_way {
            if waiting.sent_at + self.limit > now {
                break;
            }
            if let Phase::Waits(waker) = &mut waiting.phase {
                wakers.extend(waker.take());
                waiting.phase = Phase::Late;
            }
        }
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Each change is whole at any time.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn phase_of(&mut self, number: u64) -> Option<&mut Phase> {
        let index = usize::try_from(number.checked_sub(self.first)?).ok()?;
        self.under_way.get_mut(index).map(|waiting| &mut waiting.phase)
    }

    /// Request `number` has ended. When it was sent.
    fn end(&mut self, number: u64) -> Option<Timestamp> {
        let index = usize::try_from(number.checked_sub(self.first)?).ok()?;
        let waiting = self.under_way.get_mut(index)?;
        waiting.phase = Phase::Ended;
        let sent_at = waiting.sent_at;
        while let Some(Waiting { phase: Phase::Ended, .. }) = self.under_way.front() {
            self.under_way.pop_front();
            self.first += 1;
        }
        Some(sent_at)
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
            self.pulse.state().watched = false;
        }
    }
}

/// How long a reply may lie unread before it counts as late.
pub(super) const READING_TIME: Duration = Duration::from_millis(2);
const UNANSWERED_TO_CLOSE: u32 = 2;
const CLOCK: Clock = Clock::Boot;
