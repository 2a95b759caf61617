//! The attribute on functions that are not async, in a crate that denies every lint it can.

#![deny(
    warnings,
    missing_docs,
    missing_debug_implementations,
    unreachable_pub,
    unnameable_types,
    unused_qualifications,
    elided_lifetimes_in_paths,
    single_use_lifetimes,
    unused_lifetimes,
    let_underscore_drop,
    trivial_casts,
    clippy::all,
    clippy::pedantic,
    clippy::nursery
)]
#![forbid(unsafe_code)]

pub mod hostile;
pub mod shapes;
