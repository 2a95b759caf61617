//! What decides which calls exclude each other: the key grammar, the escaping of values, and the
//! spelling of durations. Shared by `distlock` and its macros, so that there is one copy.

mod escape;

pub use escape::{Escaped, is_encoded};
