//! What a client does besides its callers: renewals, contention, background releases.
//!
//! Callers change the shared [`State`] under one short mutex and go on; the driver carries out what
//! follows from it. On Redis it lives on a thread of its own, so that user code that blocks every
//! worker of its runtime cannot starve it. On the memory store there is one on each runtime that
//! changes something, which ends with the last piece of work, so that paused time works and a
//! runtime that nobody polls any more holds nothing up.
//!
//! Invariant: whoever changes the state wakes the driver if something is due before it would look
//! by itself, and starts it if none runs here. Both are decided under the same mutex, so neither a
//! wake-up nor a start gets lost.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Notify;

use crate::backend::{Backend, Channel, DriverHome, Events, Lock, Released, StoreResult};
use crate::backlog::{Backlog, Errand, Release};
use crate::backoff::Chance;
use crate::clock::{Clock, Timestamp};
use crate::instance::Instance;
use crate::lease::Lease;
use crate::protocol::hold::{End, Hold};
use crate::protocol::offer::HandOff;
use crate::wait::{Command, Process, Waiting, Wakers};
use crate::watchdog::{Batch, HoldId, Watchdog};

mod fence;
mod link;
mod parting;
mod run;
#[cfg(feature = "blocking")]
mod thread;

pub(crate) use self::fence::grant_is_gone;
pub(crate) use self::parting::found_gone;

/// What a client and all that it handed out share.
pub(crate) struct Core {
    backend: Arc<dyn Backend>,
    clock: Clock,
    instance: Instance,
    tuning: Tuning,
    state: Mutex<State>,
    /// Wakes the driver.
    wake: Notify,
    #[cfg(feature = "blocking")]
    thread: thread::Thread,
    /// Wakes whoever waits for holds and releases to be over.
    quiet: Notify,
    /// Wakes whoever waits for the answer to a release in the background.
    parted: Notify,
    this: Weak<Self>,
}

/// What a client sets for all of its locks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tuning {
    /// How long a grant stands before it is confirmed, and an offer before it is taken.
    pub(crate) claim: Duration,
    pub(crate) hand_off: HandOff,
}

/// Everything that the driver acts on.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) waiting: Waiting,
    pub(crate) watchdog: Watchdog,
    pub(crate) backlog: Backlog,
    phase: Phase,
    /// How many holds are not dropped yet, lost ones included: their code may still be at work.
    holds: usize,
    /// How many callers block until something is done on the driver's own thread.
    blocked: usize,
    /// When the driver looks by itself.
    sleeps_until: Timestamp,
    /// Where drivers run.
    drivers: Vec<Place>,
}

/// Where a driver runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    OwnThread,
    Runtime(tokio::runtime::Id),
}

/// How far a client is through its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Open,
    /// Shut down, or its last handle is gone: the driver ends with its last piece of work.
    Closing {
        shut_down: bool,
    },
}

/// What the driver does in one turn.
#[derive(Debug)]
struct Turn {
    /// Holds that are over, to be told.
    ended: Vec<(Lock, End)>,
    batches: Vec<Batch>,
    commands: Vec<Command>,
    errands: Vec<Errand>,
    sleep_until: Timestamp,
    done: bool,
}

impl Core {
    pub(crate) fn new(backend: Arc<dyn Backend>, instance: Instance, tuning: Tuning) -> Arc<Self> {
        let clock = backend.clock();
        let outside = Process { clock, instance: instance.clone() };
        Arc::new_cyclic(|this| Self {
            clock,
            backend,
            tuning,
            state: Mutex::new(State {
                waiting: Waiting::new(outside, tuning.claim, tuning.hand_off),
                watchdog: Watchdog::new(),
                backlog: Backlog::new(),
                phase: Phase::Open,
                holds: 0,
                blocked: 0,
                sleeps_until: Timestamp::NEVER,
                drivers: Vec::new(),
            }),
            instance,
            wake: Notify::new(),
            quiet: Notify::new(),
            parted: Notify::new(),
            #[cfg(feature = "blocking")]
            thread: thread::Thread::default(),
            this: Weak::clone(this),
        })
    }

    /// Changes the state, and sees to it that the driver acts on it.
    pub(crate) fn change<R>(&self, change: impl FnOnce(&mut State) -> R) -> R {
        self.change_at(self.place(), change)
    }

    /// Changes the state by news from the store. The news may come on a runtime of another client,
    /// whose life has nothing to do with this one's: no driver is started there.
    fn note_news(&self, change: impl FnOnce(&mut State)) {
        self.change_at(None, change);
    }

    fn change_at<R>(&self, place: Option<Place>, change: impl FnOnce(&mut State) -> R) -> R {
        let mut state = self.lock();
        let result = change(&mut state);
        let next = state.next_due();
        if next < state.sleeps_until {
            state.sleeps_until = next;
            self.wake.notify_waiters();
        }
        let needed = next != Timestamp::NEVER;
        let start = place.filter(|place| needed && !state.drivers.contains(place));
        state.drivers.extend(start);
        let wakers = state.waiting.take_wakers();
        let closing = state.phase != Phase::Open;
        drop(state);
        wakers.wake();
        if closing {
            self.quiet.notify_waiters();
        }
        if let Some(place) = start {
            self.start(place);
        }
        result
    }

    /// Has a release done in the background.
    pub(crate) fn release_later(&self, release: Release) {
        if self.backend.driver_home() == DriverHome::Caller && self.release_here(&release) {
            return;
        }
        self.change(|state| state.backlog.add(release));
    }

    /// The channel of the calling runtime, if one is open.
    pub(crate) fn open_channel(&self) -> Option<Arc<dyn Channel>> {
        self.backend.channel()
    }

    /// The channel of the calling runtime.
    pub(crate) async fn channel(&self) -> StoreResult<Arc<dyn Channel>> {
        match self.open_channel() {
            Some(channel) => Ok(channel),
            None => self.backend.open().await,
        }
    }

    /// Ends the client: no lock is granted from now on.
    pub(crate) fn refuse_callers(&self) {
        self.change(|state| {
            state.phase = Phase::Closing { shut_down: true };
            state.waiting.shut_down();
        });
        self.wake.notify_waiters();
    }

    /// The last handle is gone: nobody will ask for a lock again.
    pub(crate) fn close(&self) {
        self.change(|state| {
            if state.phase == Phase::Open {
                state.phase = Phase::Closing { shut_down: false };
            }
        });
        self.wake.notify_waiters();
    }

    /// Ends every hold; the bodies that notice release.
    pub(crate) fn end_holds(&self) {
        self.change(|state| state.watchdog.shut_down());
    }

    /// Waits until no hold, no contender and no release is left, of a client that takes no more
    /// callers.
    pub(crate) async fn quiet(&self) {
        loop {
            let changed = self.quiet.notified();
            if self.lock().is_quiet() {
                return;
            }
            changed.await;
        }
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub(crate) fn clock(&self) -> Clock {
        self.clock
    }

    pub(crate) fn instance(&self) -> &Instance {
        &self.instance
    }

    pub(crate) fn tuning(&self) -> &Tuning {
        &self.tuning
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic under the mutex would be a fault of ours; going on beats taking the user's
        // process down with it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Releases at once, on a store that answers at the first poll.
    fn release_here(&self, release: &Release) -> bool {
        let Some(channel) = self.backend.channel() else { return false };
        let mut request = channel.release(&release.lock, self.tuning.claim);
        let Poll::Ready(reply) = request.as_mut().poll(&mut Context::from_waker(Waker::noop()))
        else {
            return false;
        };
        self.note_release(&release.lock.key, &reply);
        reply.is_ok()
    }

    /// A release that granted the lock to our own contender tells it here, before the message does.
    pub(crate) fn note_release(&self, key: &Arc<str>, reply: &StoreResult<Released>) {
        if let Ok(Released::Granted { owner }) = reply {
            self.change(|state| state.waiting.granted(key, owner));
        }
    }

    /// Where a driver for the calling code runs, if there is such a place.
    fn place(&self) -> Option<Place> {
        match self.backend.driver_home() {
            DriverHome::Caller => Handle::try_current().ok().map(|here| Place::Runtime(here.id())),
            DriverHome::OwnThread => Some(Place::OwnThread),
        }
    }

    fn start(&self, place: Place) {
        // Whoever calls a method holds an Arc.
        let Some(core) = self.this.upgrade() else { return };
        match place {
            Place::OwnThread => run::spawn_thread(core, place),
            Place::Runtime(_) => drop(tokio::spawn(run::drive(core, place))),
        }
    }

    /// What the driver at `place` does now; `idle` if nothing that it began is under way.
    fn turn(&self, place: Place, idle: bool) -> Turn {
        let mut state = self.lock();
        let now = self.now();
        let mut turn = Turn {
            ended: Vec::new(),
            batches: Vec::new(),
            commands: Vec::new(),
            errands: Vec::new(),
            sleep_until: Timestamp::NEVER,
            done: false,
        };
        let state = &mut *state;
        state.watchdog.step(now, &mut turn.batches, &mut turn.ended);
        turn.ended.iter().for_each(|(lock, _)| state.waiting.hold_ended(lock));
        state.waiting.step(now, &mut turn.commands);
        state.backlog.step(now, &mut turn.errands);
        let next = state.next_due();
        let ends = match place {
            Place::OwnThread => state.phase != Phase::Open && state.blocked == 0,
            Place::Runtime(_) => true,
        };
        turn.done = ends && idle && turn.is_empty() && next == Timestamp::NEVER;
        if turn.done {
            self.remove(state, place);
        }
        // What it was woken for may be over already, and the next one is due later than that: a look in
        // vain then spares a wake-up for each hold now. (A driver on a user's runtime ends instead.)
        let planned = Some(state.sleeps_until).filter(|planned| !ends && *planned > now);
        state.sleeps_until = planned.map_or(next, |planned| planned.min(next));
        turn.sleep_until = state.sleeps_until;
        if state.phase != Phase::Open {
            // A contender that gave up may have been the last one.
            self.quiet.notify_waiters();
        }
        turn
    }

    /// There is no driver at `place` any more.
    fn remove(&self, state: &mut State, place: Place) {
        state.drivers.retain(|driver| *driver != place);
        // Under the mutex of the state, so that it does not hit a driver that is started next.
        #[cfg(feature = "blocking")]
        if place == Place::OwnThread {
            self.thread.set(None);
        }
    }

    /// The driver at `place` is gone, with whatever it had under way. Who is woken starts another one,
    /// on its own runtime.
    #[must_use]
    fn driver_died(&self, place: Place) -> Wakers {
        let mut state = self.lock();
        let now = self.now();
        self.remove(&mut state, place);
        state.sleeps_until = Timestamp::NEVER;
        state.waiting.restart();
        state.watchdog.restart(now);
        state.backlog.restart();
        state.waiting.take_wakers()
    }
}

impl Events for Core {
    fn granted(&self, key: &str, owner: &str) {
        self.note_news(|state| state.waiting.granted(key, owner));
    }

    fn next_in_line(&self, key: &str, owner: &str, claim: Duration) {
        self.note_news(|state| state.waiting.next_in_line(key, owner, claim));
    }

    fn interrupted(&self) {
        let now = self.now();
        self.note_news(|state| {
            state.waiting.interrupted();
            state.watchdog.interrupted(now);
            state.backlog.interrupted(now, Chance::roll());
        });
    }
}

impl fmt::Debug for Core {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Core")
            .field("backend", &self.backend)
            .field("instance", &self.instance)
            .finish_non_exhaustive()
    }
}

impl State {
    pub(crate) fn is_shut_down(&self) -> bool {
        self.phase == Phase::Closing { shut_down: true }
    }

    /// A caller has its lock.
    pub(crate) fn hold_begins(&mut self, hold: Hold, lease: Arc<Lease>) -> HoldId {
        self.holds += 1;
        self.watchdog.insert(hold, lease)
    }

    /// The last entry into a hold is gone, and its release is answered or in the backlog.
    pub(crate) fn hold_is_gone(&mut self) {
        self.holds -= 1;
    }

    fn is_quiet(&self) -> bool {
        self.holds == 0 && self.backlog.len() == 0 && self.waiting.is_quiet()
    }

    fn next_due(&self) -> Timestamp {
        self.waiting.next_due().min(self.watchdog.next_due()).min(self.backlog.next_due())
    }
}

impl Turn {
    fn is_empty(&self) -> bool {
        self.batches.is_empty() && self.commands.is_empty() && self.errands.is_empty()
    }
}
