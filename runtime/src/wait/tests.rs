use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Wake;

use super::ground::PATIENCE_WITH_A_TRY;
use super::*;
use crate::backend::Contended;
use crate::backoff::Chance;

const LEASE: Duration = Duration::from_secs(3);
const CLAIM: Duration = Duration::from_millis(500);
const HAND_OFF: HandOff = HandOff { passes: 3, within: LEASE };

/// Time stands where the test has put it.
#[derive(Debug)]
struct Still {
    now: Timestamp,
    owners: usize,
}

impl Outside for Still {
    fn now(&self) -> Timestamp {
        self.now
    }

    fn roll(&self) -> Chance {
        Chance::fixed(0.0)
    }

    fn new_owner(&mut self) -> Arc<str> {
        self.owners += 1;
        format!("test/{}", self.owners).into()
    }
}

#[derive(Default)]
struct Bell(AtomicUsize);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn waiter_that_looks_just_after_its_offer_ended_is_told_to_look_again() {
    let mut waiting = waiting();
    let lock = Lock { key: "stock:lock:7".into(), owner: "test/first".into() };
    assert!(matches!(waiting.enter(&lock.key, LEASE, true, 1, Waker::noop()), Entry::Try(_)));
    waiting.tried(&lock.key, Some(Arc::clone(&lock.owner)));
    let Entry::Wait(ticket, _) = waiting.enter(&lock.key, LEASE, true, 1, Waker::noop()) else {
        panic!("no queue")
    };
    let bell = Arc::new(Bell::default());
    let waker = Arc::clone(&bell).into();
    assert!(waiting.poll(&lock.key, ticket, &waker).is_pending());
    assert!(waiting.pass_on(&lock, Granted::new(Timestamp::NOW, LEASE)));

    waiting.ground.outside.now = Timestamp::NOW + CLAIM;
    assert!(waiting.poll(&lock.key, ticket, &waker).is_pending());
    waiting.take_wakers().wake();
    let woken_before = bell.0.load(Ordering::Relaxed);
    let mut commands = Vec::new();
    waiting.step(Timestamp::NOW + CLAIM, &mut commands);
    waiting.take_wakers().wake();

    let given_back = |command: &_| matches!(command, Command::GiveUp { lock: l, .. } if *l == lock);
    assert!(commands.iter().any(given_back), "{commands:?}");
    assert!(bell.0.load(Ordering::Relaxed) > woken_before, "it would wait for nothing");
}

#[test]
fn late_grant_does_not_replace_an_offer_that_reaches_further() {
    let mut waiting = waiting();
    let key: Arc<str> = "stock:lock:7".into();
    let passed_on = Lock { key: Arc::clone(&key), owner: "test/first".into() };
    assert!(matches!(waiting.enter(&key, LEASE, true, 1, Waker::noop()), Entry::Try(_)));
    let Entry::Wait(ticket, _) = waiting.enter(&key, LEASE, true, 1, Waker::noop()) else {
        panic!("no queue")
    };
    assert!(waiting.poll(&key, ticket, Waker::noop()).is_pending());
    let sent_at = Timestamp::NOW + PATIENCE_WITH_A_TRY;
    waiting.ground.outside.now = sent_at;
    let mut commands = Vec::new();
    waiting.step(sent_at, &mut commands);
    let Some(Command::Contend { lock: late, .. }) = commands.pop() else { panic!("no contender") };
    let now = sent_at + LEASE / 2;
    waiting.ground.outside.now = now;
    waiting.tried(&key, Some(Arc::clone(&passed_on.owner)));
    assert!(waiting.pass_on(&passed_on, Granted::new(now, LEASE)));

    waiting.contended(&late, Ok(Contended::Granted), Granted::new(sent_at, LEASE));
    waiting.step(now, &mut commands);

    let given_back = |command: &_| matches!(command, Command::GiveUp { lock, .. } if *lock == late);
    assert!(commands.iter().any(given_back), "{commands:?}");
    let taken = waiting.poll(&key, ticket, Waker::noop());
    assert!(matches!(taken, Poll::Ready(Ok((lock, _))) if lock == passed_on));
}

fn waiting() -> Waiting<Still> {
    Waiting::new(Still { now: Timestamp::NOW, owners: 0 }, CLAIM, HAND_OFF)
}
