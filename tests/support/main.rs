//! The kit tests itself: a fault that does not happen would make every test that relies on it pass.

#[path = "mod.rs"]
mod support;

mod kit;
