//! What decides which calls exclude each other: the key grammar, the escaping of values, and the
//! spelling of durations. Shared by `distlock` and its macros, so that there is one copy.

mod duration;
mod escape;
mod grammar;
mod route;
mod suggest;

pub use duration::{DurationError, MAX_DURATION, duration};
pub use escape::{Escaped, is_encoded};
pub use grammar::{Placeholder, Segment, Template, TemplateError};
pub use route::{RoutePart, RouteSource, ValueType, split_type};
pub use suggest::nearest;
