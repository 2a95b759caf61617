//! The story of `examples/fenced_store.rs`: a real database refuses a holder that was frozen.

use std::env;
use std::process::Command;

use crate::example::{Write, carry_out, tell_the_story};

#[allow(dead_code, unreachable_pub)]
#[path = "../examples/fenced_store.rs"]
mod example;

fn program() -> Command {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["process_that_is_frozen", "--exact", "--nocapture"]);
    command
}

#[test]
fn database_refuses_a_write_with_a_stale_token() {
    let ending = tell_the_story(Write::Fenced, &program).unwrap();

    assert!(ending.stale_refused);
    assert_eq!((ending.items, ending.sold), (9, 1));
}

#[test]
fn database_that_does_not_look_at_tokens_loses_a_write() {
    let ending = tell_the_story(Write::Plain, &program).unwrap();

    assert!(!ending.stale_refused);
    assert_eq!((ending.items, ending.sold), (9, 2));
}

/// The other process is this very program, started with an order; without one this does nothing.
#[test]
fn process_that_is_frozen() {
    carry_out();
}
