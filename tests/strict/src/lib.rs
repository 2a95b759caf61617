//! The macros in a crate that denies every lint it can: no expansion may be seen in there.

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

pub mod boxed;
pub mod hostile;
pub mod reexported;
pub mod shapes;

pub use strict_prelude;
