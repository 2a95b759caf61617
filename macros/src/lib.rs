//! The macros of `distlock`. Use them through that crate, which says what they do.

mod args;
mod attribute;
mod boxed;
mod check;
mod diagnostics;
mod expand;
mod function;
mod key;
mod lock_key;
mod lock_template;
mod params;
mod pattern;
mod placeholder;
mod settings;

use proc_macro::TokenStream;

/// Runs a function for one caller at a time, per key, across all instances.
///
/// See `distlock::distributed_lock`.
#[proc_macro_attribute]
pub fn distributed_lock(args: TokenStream, item: TokenStream) -> TokenStream {
    attribute::distributed_lock(args.into(), &item.into()).into()
}

/// Makes a `LockKey` from a template and the variables in scope.
///
/// See `distlock::lock_key`.
#[proc_macro]
pub fn lock_key(input: TokenStream) -> TokenStream {
    lock_key::lock_key(input.into()).into()
}

/// Declares locks once, to be used everywhere.
///
/// See `distlock::lock_template`.
#[proc_macro]
pub fn lock_template(input: TokenStream) -> TokenStream {
    lock_template::lock_template(input.into()).into()
}
