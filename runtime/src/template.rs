//! Locks declared once, by `lock_template!`.

use crate::options::LockOptions;

/// A lock declared by [`lock_template!`](crate::lock_template): its key template and its settings.
pub trait Template {
    /// The template, as written.
    const TEMPLATE: &'static str;

    /// The settings declared with it.
    fn options() -> LockOptions;
}
