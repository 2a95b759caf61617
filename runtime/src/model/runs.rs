//! The runs: bounds that are explored whole, small ones in every test run, larger ones on demand.

use std::time::{Duration, Instant};

use stateright::{Checker, Expectation, Model};

use super::Explored;
use super::bounds::{Bounds, Budget, Driver};
use crate::clock::Timestamp;
use crate::options::Release;

const NO_BODY: Duration = Duration::ZERO;

/// Long enough for a renewal.
const BODY: Duration = Duration::from_millis(1_200);

/// Nothing goes wrong, but a waiter may be dropped, or left alone by whoever polls it.
#[test]
fn waiters_take_turns() {
    let two_and_two = Bounds { callers: [2, 2], body: NO_BODY, ..bounds(0) };
    explore(
        two_and_two.stalls(1),
        &[two_and_two.drops(1).stalls(1), Bounds { callers: [2, 1], ..bounds(0) }.drops(1)],
    );
}

/// One fault at any point, while locks are passed on between and inside of processes.
#[test]
fn one_fault_among_waiters() {
    let two_and_one = Bounds { callers: [2, 1], body: NO_BODY, ..bounds(1) };
    explore(
        two_and_one,
        &[
            Bounds { callers: [2, 2], ..two_and_one },
            two_and_one.drops(1),
            Bounds { driver: Driver::AnyOrder, ..two_and_one },
        ],
    );
}

/// One fault at any point, while locks are held and renewed.
#[test]
fn one_fault_around_a_hold() {
    let one_and_one = Bounds { driver: Driver::AnyOrder, ..bounds(1) };
    let come_within = Duration::from_millis(1_500);
    explore(
        one_and_one,
        &[
            Bounds { callers: [2, 1], ..bounds(1) },
            Bounds { come_within, ..one_and_one }.drops(1).stalls(1),
        ],
    );
}

/// One fault and one dropped caller, or two faults.
#[test]
fn two_things_go_wrong() {
    let one_and_one = Bounds { body: NO_BODY, ..bounds(1) };
    let two_faults = Bounds { body: NO_BODY, ..bounds(2) };
    explore(
        one_and_one.drops(1),
        &[
            Bounds { driver: Driver::AnyOrder, ..two_faults },
            bounds(2),
            Bounds { callers: [2, 1], ..two_faults },
        ],
    );
}

/// Nobody waits for the release of what he held, and the next one comes right behind.
#[test]
fn releases_go_on_in_the_background() {
    let release = Release::Background;
    let two_and_one = Bounds { callers: [2, 1], body: NO_BODY, release, ..bounds(1) };
    explore(
        two_and_one,
        &[
            two_and_one.drops(1),
            Bounds { driver: Driver::AnyOrder, ..two_and_one },
            Bounds { body: BODY, driver: Driver::AnyOrder, callers: [1, 1], ..two_and_one },
        ],
    );
}

fn bounds(faults: u8) -> Bounds {
    Bounds {
        callers: [1, 1],
        body: BODY,
        come_within: Duration::ZERO,
        driver: Driver::AtOnce,
        release: Release::Await,
        budget: Budget { faults, drops: 0, stalls: 0 },
    }
}

/// Explores what is small; with `DISTLOCK_MODEL=long` also what is not.
fn explore(small: Bounds, large: &[Bounds]) {
    explore_one(small);
    if std::env::var("DISTLOCK_MODEL").is_ok_and(|form| form == "long") {
        large.iter().copied().for_each(explore_one);
    }
}

fn explore_one(bounds: Bounds) {
    let begun_at = Instant::now();
    let checker = Explored(bounds).checker().spawn_bfs().join();
    println!(
        "{} states, {} steps between them, up to {} deep, {:.1?}: {bounds}",
        checker.unique_state_count(),
        checker.state_count(),
        checker.max_depth(),
        begun_at.elapsed(),
    );
    for property in checker.model().properties() {
        let path = checker.discovery(property.name);
        match (property.expectation, path) {
            (Expectation::Sometimes, None) => panic!("never: {}", property.name),
            (Expectation::Sometimes, Some(_)) | (_, None) => {}
            (_, Some(path)) => {
                let steps = path.into_vec();
                for (world, action) in &steps {
                    println!(
                        "{:>8} {action:?}",
                        format!("{:.0?}", world.now.since(Timestamp::NOW))
                    );
                }
                println!("{:#?}", steps.last().map(|(world, _)| world));
                panic!("broken, see the steps above: {}", property.name);
            }
        }
    }
}
