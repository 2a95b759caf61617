//! What is done under the locks: bodies that show that they are at work.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll as Polled};
use std::thread;
use std::time::Duration;

use distlock::{HeldLock, LockClient, LockError, LockKey, distributed_lock, lock_key};

use crate::clock::{self, Moment};
use crate::plan::{LEASE, WAIT};
use crate::report::{Call, Poll, Report, What};

/// Where reports go.
pub(crate) trait Tell: Send + Sync {
    fn tell(&self, report: &Report);
}

/// A call on a key, as its body sees it.
#[derive(Clone)]
pub(crate) struct Section {
    pub(crate) call: Call,
    pub(crate) key: u32,
    pub(crate) length: Length,
    pub(crate) polls: Arc<Polls>,
    pub(crate) to: Arc<dyn Tell>,
}

/// How long a body takes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Length {
    Short,
    Usual,
    /// Over more than one lease.
    Long,
    /// Blocks its thread: one long poll.
    Blocking,
}

/// How a caller takes its lock.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Style {
    Attribute,
    /// `run`, with a token in the same step.
    Fenced,
    /// A guard, which the body looks at before each step.
    Guard,
    /// `run` inside of `run`, on the same key.
    Nested,
    /// `run` without a token.
    Plain,
    /// `try_acquire`.
    Try,
}

impl Style {
    pub(crate) fn roll() -> Self {
        match fastrand::u32(..100) {
            0..25 => Self::Attribute,
            25..55 => Self::Fenced,
            55..67 => Self::Guard,
            67..77 => Self::Nested,
            77..90 => Self::Plain,
            _ => Self::Try,
        }
    }
}

impl Length {
    pub(crate) fn roll() -> Self {
        match fastrand::u32(..100) {
            0..40 => Self::Short,
            40..86 => Self::Usual,
            86..89 => Self::Long,
            _ => Self::Blocking,
        }
    }
}

/// Whether the body gets a token, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token {
    None,
    Wanted,
}

impl Section {
    /// Does the section's work under its lock. `None`: somebody else held the lock, and nobody waited.
    pub(crate) async fn work(
        self,
        locks: &LockClient,
        style: Style,
    ) -> Result<Option<()>, LockError> {
        let number = self.key;
        // Callers of one key need not agree on it.
        let lease = || if fastrand::u32(..4) == 0 { SHORTER_LEASE } else { LEASE };
        let request = || locks.lock(key(number)).lease(lease());
        match style {
            Style::Attribute => attributed(self.key, self).await?,
            Style::Fenced => {
                let body = |held| self.body(held, Token::Wanted);
                request().fencing().run(body).await?;
            }
            Style::Guard => {
                let guard = request().fencing().acquire().await?;
                self.by_hand(&guard).await;
                guard.check()?;
                guard.release().await?;
            }
            Style::Nested => {
                let inner = request();
                let body =
                    |held| async move { inner.run(|_| self.body(held, Token::Wanted)).await };
                request().fencing().run(body).await??;
            }
            Style::Plain => request().run(|held| self.body(held, Token::None)).await?,
            Style::Try => {
                let Some(guard) = request().fencing().try_acquire().await? else {
                    return Ok(None);
                };
                self.by_hand(&guard).await;
                guard.check()?;
                guard.release().await?;
            }
        }
        Ok(Some(()))
    }

    /// The body of a call that the library drops when the lock is lost.
    async fn body(self, held: HeldLock, token: Token) {
        let inside = Inside::enter(&self, &held);
        let token = match token {
            Token::None => None,
            Token::Wanted => match held.fencing_token().await {
                Ok(token) => Some(inside.drew(token.get())),
                // Lost, or no answer: nothing may be written.
                Err(_) => return inside.leave(),
            },
        };
        for _ in 0..self.steps() {
            self.step(&held, &inside, token).await;
        }
        inside.leave();
    }

    /// The same where nothing but the body itself looks at the lock.
    async fn by_hand(self, held: &HeldLock) {
        if held.is_lost() {
            return;
        }
        let inside = Inside::enter(&self, held);
        let Ok(token) = held.fencing_token().await else { return };
        let token = Some(inside.drew(token.get()));
        for _ in 0..self.steps() {
            self.pause().await;
            if held.is_lost() {
                return;
            }
            inside.tick();
            if fastrand::u32(..4) == 0 {
                inside.write(token);
            }
        }
        inside.leave();
    }

    fn steps(&self) -> u32 {
        match self.length {
            Length::Short => 1,
            Length::Usual => fastrand::u32(3..10),
            Length::Long => 180,
            Length::Blocking => 2,
        }
    }

    async fn step(&self, held: &HeldLock, inside: &Inside<'_>, token: Option<u64>) {
        let blocks = matches!(self.length, Length::Blocking);
        // Whoever blocks cannot be stopped, and so sees to it that the lock lasts longer than that.
        while blocks && held.remaining() < SHORTER_LEASE / 2 {
            tokio::time::sleep(Duration::from_millis(20)).await;
            inside.tick();
        }
        if blocks {
            for _ in 0..4 {
                self.polls.sleep(Duration::from_millis(40));
                inside.tick();
            }
            inside.write(token);
        }
        self.pause().await;
        inside.tick();
        if fastrand::u32(..4) == 0 {
            inside.write(token);
        }
    }

    async fn pause(&self) {
        let milliseconds = match self.length {
            Length::Short => fastrand::u64(..3),
            Length::Usual | Length::Blocking => fastrand::u64(1..12),
            Length::Long => fastrand::u64(8..16),
        };
        tokio::time::sleep(Duration::from_millis(milliseconds)).await;
    }

    pub(crate) fn tell(&self, what: What) {
        let (poll, at) = self.polls.look();
        self.to.tell(&Report { call: self.call, key: self.key, at, poll, what });
    }
}

/// The key of a number.
pub(crate) fn key(key: u32) -> LockKey {
    lock_key!("drill:<key>")
}

#[distributed_lock(key = "drill:<key>", wait = "3s", lease = "1500ms", guard = held)]
async fn attributed(key: u32, section: Section) -> Result<(), LockError> {
    section.body(held, Token::Wanted).await;
    Ok(())
}

/// A body that is at work; its drop is reported, too.
struct Inside<'a> {
    section: &'a Section,
    left: bool,
}

impl<'a> Inside<'a> {
    fn enter(section: &'a Section, held: &HeldLock) -> Self {
        section.polls.hold(held.clone());
        let owner = held.owner();
        let hold = owner.rsplit_once('/').map_or(owner, |(_, hold)| hold);
        section.tell(What::Entered(hold.to_owned()));
        Self { section, left: false }
    }

    fn drew(&self, token: u64) -> u64 {
        self.section.tell(What::Drew(token));
        token
    }

    fn tick(&self) {
        self.section.tell(What::Ticked);
    }

    fn write(&self, token: Option<u64>) {
        if let Some(token) = token {
            self.section.tell(What::Wrote(token));
        }
    }

    fn leave(mut self) {
        self.section.tell(What::Returned);
        self.left = true;
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        if !self.left {
            self.section.tell(What::Dropped);
        }
    }
}

/// What is known of the poll that goes on in a task.
#[derive(Default)]
pub(crate) struct Polls(Mutex<State>);

#[derive(Default)]
struct State {
    begun: Moment,
    thread_time: Moment,
    slept: Duration,
    valid: bool,
    held: Option<HeldLock>,
}

impl Polls {
    /// Sleeps inside of the poll.
    fn sleep(&self, time: Duration) {
        self.state().slept += time;
        thread::sleep(time);
    }

    /// From now on polls are judged by this lock.
    fn hold(&self, held: HeldLock) {
        self.state().held = Some(held);
    }

    fn look(&self) -> (Poll, Moment) {
        let state = self.state();
        let at = clock::now();
        let worked = clock::between(state.thread_time, clock::thread_time()) + state.slept;
        let stalled = clock::nanos(clock::between(state.begun, at).saturating_sub(worked));
        (Poll { begun: state.begun, stalled, valid: state.valid }, at)
    }

    fn begin(&self) {
        let mut state = self.state();
        state.valid = state.held.as_ref().is_none_or(|held| !held.is_lost());
        state.slept = Duration::ZERO;
        state.begun = clock::now();
        state.thread_time = clock::thread_time();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// A whole call, from the outside of all that the library does, whose polls are noted.
pub(crate) struct Noted<F> {
    pub(crate) polls: Arc<Polls>,
    pub(crate) call: Pin<Box<F>>,
}

impl<F: Future> Future for Noted<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Polled<F::Output> {
        self.polls.begin();
        self.call.as_mut().poll(cx)
    }
}

const SHORTER_LEASE: Duration = Duration::from_millis(800);

const _: () = assert!(LEASE.as_millis() == 1500 && WAIT.as_secs() == 3, "as in the attribute");
