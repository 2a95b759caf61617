//! What a hold and a contender do next: plain state machines that see replies, messages and clock
//! readings, and say what to send. No I/O, no async, no shared state, so that the same code runs
//! over Redis, over memory, under paused time and in a model checker.

pub(crate) mod contender;
pub(crate) mod hold;
pub(crate) mod offer;
