//! The settings of a lock, shared by the attribute and `lock_template!`: read, checked as far as
//! they are literals, and printed as a `LockOptions`.

use std::time::Duration;

use distlock_template::duration;
use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, quote, quote_spanned};
use syn::{Expr, Lit, LitBool, LitInt, LitStr};

use crate::args::{Arg, Args, source};
use crate::diagnostics::{Errors, did_you_mean};

/// What fills a `LockOptions`.
pub(crate) struct Settings {
    wait: Option<Time>,
    lease: Option<Time>,
    max_hold: Option<Time>,
    pub(crate) on_lost: Option<OnLost>,
    release: Option<Release>,
    reentrant: Option<bool>,
    pub(crate) strict: Option<bool>,
    fencing: Option<bool>,
    max_waiters: Option<Expr>,
    name: Option<Expr>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnLost {
    Cancel,
    Signal,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Release {
    Await,
    Background,
}

/// A duration: known here, or only when the program runs.
enum Time {
    Known { value: Duration, literal: LitStr },
    Later(Expr),
}

impl Settings {
    /// Reads the settings. Without a `lease`, `default_lease` is what `max_hold` must reach.
    pub(crate) fn read(args: &Args, default_lease: Option<Duration>, errors: &mut Errors) -> Self {
        let settings = Self {
            wait: args.get("wait").and_then(|arg| time(arg, errors)),
            lease: args.get("lease").and_then(|arg| time(arg, errors)),
            max_hold: args.get("max_hold").and_then(|arg| time(arg, errors)),
            on_lost: args.get("on_lost").and_then(|arg| {
                choice(arg, &[("cancel", OnLost::Cancel), ("signal", OnLost::Signal)], errors)
            }),
            release: args.get("release").and_then(|arg| {
                choice(
                    arg,
                    &[("await", Release::Await), ("background", Release::Background)],
                    errors,
                )
            }),
            reentrant: args.get("reentrant").and_then(|arg| switch(arg, errors)),
            strict: args.get("strict").and_then(|arg| switch(arg, errors)),
            fencing: args.get("fencing").and_then(|arg| switch(arg, errors)),
            max_waiters: args.get("max_waiters").and_then(|arg| count(arg, errors)),
            name: args.get("name").and_then(|arg| text(arg, errors)),
        };
        settings.check(args.get("lease").map_or(default_lease, |_| None), errors);
        if let (Some(Release::Background), Some(true)) = (settings.release, settings.strict)
            && let Some(arg) = args.get("strict")
        {
            errors.at(
                &arg.name,
                "`strict` needs the store's answer to the release, which nobody waits for with \
                 `release = \"background\"`; leave one of the two out",
            );
        }
        settings
    }

    fn check(&self, default_lease: Option<Duration>, errors: &mut Errors) {
        if let Some(Time::Known { value, literal }) = &self.lease
            && *value < MIN_LEASE
        {
            let message = format!(
                "a lease of {} ends before a renewal can be confirmed; write at least `100ms` (the \
                 default is `10s`)",
                literal.token()
            );
            errors.at(literal, message);
        }
        let Some(Time::Known { value: max_hold, literal }) = &self.max_hold else { return };
        if max_hold.is_zero() {
            let message = "a `max_hold` of zero leaves the body no time; write how long it may \
                           hold the lock at most, as in `max_hold = \"30s\"`";
            errors.at(literal, message);
            return;
        }
        let (lease, said) = match (&self.lease, default_lease) {
            (Some(Time::Known { value, literal }), _) => (*value, literal.token().to_string()),
            (None, Some(lease)) => (lease, format!("the default, {lease:?}")),
            _ => return,
        };
        if *max_hold < lease {
            let message = format!(
                "`max_hold` ({}) is shorter than the lease ({said}); raise `max_hold` or write a \
                 shorter `lease`",
                literal.token()
            );
            errors.at(literal, message);
        }
    }

    /// Prints the `LockOptions`. `strict` overrides what was read.
    pub(crate) fn expand(&self, private: &TokenStream, strict: Option<bool>) -> TokenStream {
        let span = Span::mixed_site();
        let times = [("wait", &self.wait), ("lease", &self.lease), ("max_hold", &self.max_hold)]
            .into_iter()
            .filter_map(|(name, time)| {
                let name = syn::Ident::new(name, span);
                let time = time.as_ref()?.expand(private);
                Some(quote_spanned!(span=> .#name(#time)))
            });
        let on_lost = self.on_lost.map(|on_lost| {
            let on_lost = syn::Ident::new(&format!("{on_lost:?}"), span);
            quote_spanned!(span=> .on_lost(#private::OnLost::#on_lost))
        });
        let release = self.release.map(|release| {
            let release = syn::Ident::new(&format!("{release:?}"), span);
            quote_spanned!(span=> .release(#private::Release::#release))
        });
        let reentrant = self.reentrant.map(|on| quote_spanned!(span=> .set_reentrant(#on)));
        let strict = strict.or(self.strict).map(|on| quote_spanned!(span=> .set_strict(#on)));
        let fencing = self.fencing.map(|on| quote_spanned!(span=> .set_fencing(#on)));
        let max_waiters =
            self.max_waiters.as_ref().map(|count| quote_spanned!(span=> .max_waiters(#count)));
        let name = self.name.as_ref().map(|name| quote_spanned!(span=> .name(#name)));
        quote_spanned! {span=>
            #private::LockOptions::new()
                #(#times)* #on_lost #release #reentrant #strict #fencing #max_waiters #name
        }
    }

    /// The expressions that run when the function is called.
    pub(crate) fn expressions(&self) -> impl Iterator<Item = &Expr> {
        let times = [&self.wait, &self.lease, &self.max_hold];
        times
            .into_iter()
            .filter_map(|time| match time {
                Some(Time::Later(value)) => Some(value),
                _ => None,
            })
            .chain(&self.max_waiters)
            .chain(&self.name)
    }
}

impl Time {
    fn expand(&self, private: &TokenStream) -> TokenStream {
        match self {
            Self::Known { value, .. } => {
                let (seconds, nanos) = (value.as_secs(), value.subsec_nanos());
                quote!(#private::Duration::new(#seconds, #nanos))
            }
            Self::Later(value) => value.to_token_stream(),
        }
    }
}

fn time(arg: &Arg, errors: &mut Errors) -> Option<Time> {
    match arg.literal() {
        Some(Lit::Str(literal)) => match duration(&literal.value()) {
            Ok(value) => Some(Time::Known { value, literal: literal.clone() }),
            Err(error) => {
                errors.at(literal, error);
                None
            }
        },
        Some(Lit::Int(number)) => {
            errors.at(number, no_unit(arg, number.base10_digits(), number.suffix()));
            None
        }
        Some(Lit::Float(number)) => {
            errors.at(number, no_unit(arg, number.base10_digits(), number.suffix()));
            None
        }
        Some(other) => {
            let name = &arg.name;
            errors.at(other, format!("`{name}` is a duration: write `{name} = \"3s\"`"));
            None
        }
        None => Some(Time::Later(arg.value.clone())),
    }
}

fn no_unit(arg: &Arg, digits: &str, suffix: &str) -> String {
    let (name, text) = (&arg.name, format!("{digits}{suffix}"));
    if suffix.is_empty() {
        format!("`{text}` has no unit; did you mean `{name} = \"{text}s\"`?")
    } else {
        format!("a duration is written as a text: `{name} = \"{text}\"`")
    }
}

/// Reads one of some words.
pub(crate) fn choice<T: Copy>(arg: &Arg, choices: &[(&str, T)], errors: &mut Errors) -> Option<T> {
    let name = &arg.name;
    let words = || choices.iter().map(|(word, _)| *word);
    let written = match arg.literal() {
        Some(Lit::Str(word)) => word.value(),
        _ => source(&arg.value),
    };
    let chosen = choices.iter().find(|(word, _)| *word == written).map(|(_, value)| *value);
    let is_text = matches!(arg.literal(), Some(Lit::Str(_)));
    if let (Some(value), true) = (chosen, is_text) {
        return Some(value);
    }
    let all: Vec<String> = words().map(|word| format!("`{name} = \"{word}\"`")).collect();
    let meant = if is_text { did_you_mean(&written, words()) } else { String::new() };
    errors.at(&arg.value, format!("write {}{meant}", all.join(" or ")));
    None
}

fn switch(arg: &Arg, errors: &mut Errors) -> Option<bool> {
    if let Some(Lit::Bool(LitBool { value, .. })) = arg.literal() {
        return Some(*value);
    }
    let name = &arg.name;
    errors.at(&arg.value, format!("write `{name} = true` or `{name} = false`"));
    None
}

fn count(arg: &Arg, errors: &mut Errors) -> Option<Expr> {
    match arg.literal() {
        Some(Lit::Int(number)) => check_count(number, errors)?,
        Some(other) => {
            errors.at(other, "`max_waiters` is a number: write `max_waiters = 100`");
            return None;
        }
        None => {}
    }
    Some(arg.value.clone())
}

fn check_count(number: &LitInt, errors: &mut Errors) -> Option<()> {
    match number.base10_parse::<usize>() {
        Ok(_) => Some(()),
        Err(error) => {
            errors.at(number, format!("`max_waiters` is a `usize`: {error}"));
            None
        }
    }
}

fn text(arg: &Arg, errors: &mut Errors) -> Option<Expr> {
    match arg.literal() {
        Some(Lit::Str(name)) if name.value().trim().is_empty() => {
            errors.at(name, "a name needs a text, this one is empty");
            None
        }
        Some(Lit::Str(_)) | None => Some(arg.value.clone()),
        Some(other) => {
            errors.at_span(other.span(), "`name` is a text: write `name = \"stock\"`");
            None
        }
    }
}

const MIN_LEASE: Duration = Duration::from_millis(100);

/// What the runtime uses when nothing sets a lease.
pub(crate) const DEFAULT_LEASE: Duration = Duration::from_secs(10);
