//! What stands in for the outside of a process: its clock, its dice, its names, its wakers, and the
//! ear with which it listens to the store.

use std::cell::{Cell, RefCell};
use std::sync::{Arc, LazyLock, Weak};
use std::task::{Wake, Waker};
use std::time::Duration;

use crate::backend::Events;
use crate::backoff::Chance;
use crate::clock::Timestamp;
use crate::wait::Outside;

/// Time stands where the model has put it, and the dice always fall the same way.
#[derive(Clone, Debug, Hash)]
pub(super) struct Script {
    pub(super) now: Timestamp,
    process: usize,
    minted: u32,
}

/// What the store says unasked.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct News {
    pub(super) process: usize,
    pub(super) owner: Arc<str>,
    /// How long the claim is of the contender before `owner`; none if the lock is `owner`'s.
    pub(super) claim: Option<Duration>,
}

impl Script {
    pub(super) const fn new(process: usize) -> Self {
        Self { now: Timestamp::NOW, process, minted: 0 }
    }
}

impl Outside for Script {
    fn now(&self) -> Timestamp {
        self.now
    }

    fn roll(&self) -> Chance {
        super::chance()
    }

    fn new_owner(&mut self) -> Arc<str> {
        self.minted += 1;
        format!("{}/contender-{}", self.process, self.minted).into()
    }
}

/// The waker of a caller.
pub(super) fn waker(caller: usize) -> &'static Waker {
    &WAKERS[caller]
}

/// Whether each caller was woken since the last call.
pub(super) fn take_woken() -> [bool; CALLERS] {
    WOKEN.take()
}

/// Where the store tells `process` something.
pub(super) fn listener(process: usize) -> Weak<dyn Events> {
    Arc::downgrade(&EARS[process])
}

/// What was said since the last call.
pub(super) fn take_heard() -> Vec<News> {
    HEARD.take()
}

struct Bell(usize);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        let mut woken = WOKEN.get();
        woken[self.0] = true;
        WOKEN.set(woken);
    }
}

struct Ear(usize);

impl Ear {
    fn hear(&self, owner: &str, claim: Option<Duration>) {
        let news = News { process: self.0, owner: owner.into(), claim };
        HEARD.with_borrow_mut(|heard| heard.push(news));
    }
}

impl Events for Ear {
    fn granted(&self, _: &str, owner: &str) {
        self.hear(owner, None);
    }

    fn next_in_line(&self, _: &str, owner: &str, claim: Duration) {
        self.hear(owner, Some(claim));
    }

    fn interrupted(&self) {}
}

const CALLERS: usize = 2;

// A step of the model runs on one thread from begin to end.
thread_local! {
    static WOKEN: Cell<[bool; CALLERS]> = const { Cell::new([false; CALLERS]) };
    static HEARD: RefCell<Vec<News>> = const { RefCell::new(Vec::new()) };
}

static WAKERS: LazyLock<Vec<Waker>> =
    LazyLock::new(|| (0..CALLERS).map(|caller| Arc::new(Bell(caller)).into()).collect());

static EARS: LazyLock<Vec<Arc<dyn Events>>> =
    LazyLock::new(|| (0..2).map(|process| Arc::new(Ear(process)) as Arc<dyn Events>).collect());
