//! Options against each other and against the function. What passes here, expands.

use proc_macro2::{Ident, TokenStream};
use quote::ToTokens;
use syn::{Expr, ExprArray, ExprPath, Lit, Path};

use crate::args::{Arg, Args, Known, source};
use crate::diagnostics::Errors;
use crate::expand::private_door;
use crate::function::Kind;
use crate::key;
use crate::params::{Params, Words};
use crate::placeholder::Scope;
use crate::settings::{self, DEFAULT_LEASE, OnLost, Settings};

/// Everything that the expansion needs besides the function.
pub(crate) struct Plan {
    pub(crate) private: TokenStream,
    pub(crate) kind: Kind,
    pub(crate) keys: Keys,
    pub(crate) settings: Settings,
    pub(crate) client: Option<Expr>,
    pub(crate) when: Option<Expr>,
    pub(crate) on_unavailable: OnUnavailable,
    pub(crate) fallback: Fallback,
    pub(crate) guard: Option<Ident>,
}

/// Expressions of type `LockKey`.
pub(crate) enum Keys {
    One(TokenStream),
    Several(Vec<TokenStream>),
}

/// What the function returns when it has no lock.
pub(crate) enum Fallback {
    /// An error, if the return type can carry one.
    Error,
    /// This, if the body never started.
    Value(Expr),
    /// What this makes of the error.
    With(Expr),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnUnavailable {
    Error,
    RunUnlocked,
}

/// The options of the attribute.
pub(crate) const KNOWN: Known = Known {
    options: &[
        "key",
        "keys",
        "wait",
        "lease",
        "max_hold",
        "client",
        "fallback",
        "fallback_with",
        "fencing",
        "guard",
        "max_waiters",
        "name",
        "on_lost",
        "on_unavailable",
        "reentrant",
        "release",
        "strict",
        "when",
        "crate",
    ],
    elsewhere: &[
        ("timeout", "wait"),
        ("wait_time", "wait"),
        ("wait_timeout", "wait"),
        ("acquire_timeout", "wait"),
        ("ttl", "lease"),
        ("expire", "lease"),
        ("expiry", "lease"),
        ("lease_time", "lease"),
        ("condition", "when"),
        ("default", "fallback"),
        ("or_else", "fallback_with"),
        ("held", "guard"),
    ],
};

/// Checks the options that do not need a function.
pub(crate) fn settings(args: &Args, errors: &mut Errors) -> Settings {
    // A key from an expression may bring a lease of its own.
    let has_template = args.get("key").is_none_or(|key| key.literal().is_some());
    Settings::read(args, has_template.then_some(DEFAULT_LEASE), errors)
}

/// Checks everything.
pub(crate) fn plan(args: &Args, params: &Params, kind: Kind, errors: &mut Errors) -> Option<Plan> {
    let private = private_door(args.get("crate").and_then(|arg| path(arg, errors)));
    let scope = Scope::Function { names: &params.names, receiver: params.receiver.as_ref() };
    let keys = keys(args, &scope, &private, errors);
    let mut settings = settings(args, errors);
    if kind == Kind::Sync {
        settings.on_lost = signal_only(args, settings.on_lost, errors);
    }
    let fallback = fallback(args, params, errors);
    let guard = args.get("guard").and_then(|arg| guard(arg, params, errors));
    let on_unavailable = args.get("on_unavailable").and_then(|arg| {
        let choices =
            [("error", OnUnavailable::Error), ("run_unlocked", OnUnavailable::RunUnlocked)];
        settings::choice(arg, &choices, errors)
    });
    Some(Plan {
        private,
        kind,
        keys: keys?,
        settings,
        client: args.get("client").map(|arg| arg.value.clone()),
        when: args.get("when").map(|arg| arg.value.clone()),
        on_unavailable: on_unavailable.unwrap_or(OnUnavailable::Error),
        fallback,
        guard,
    })
}

impl Plan {
    /// Whether the body may run without a lock, so that there is none to look at.
    pub(crate) fn may_run_unlocked(&self) -> bool {
        self.when.is_some() || self.on_unavailable == OnUnavailable::RunUnlocked
    }

    /// Whether a lock lost in mid-body is only signalled, and the body's value always returned.
    pub(crate) fn never_reports_loss(&self) -> bool {
        matches!(self.fallback, Fallback::Value(_))
            && self.settings.on_lost == Some(OnLost::Signal)
            && self.settings.strict != Some(true)
    }
}

/// What a function does about a lost lock that cannot be stopped.
fn signal_only(args: &Args, on_lost: Option<OnLost>, errors: &mut Errors) -> Option<OnLost> {
    if let (Some(OnLost::Cancel), Some(arg)) = (on_lost, args.get("on_lost")) {
        errors.at(
            &arg.value,
            "a function that is not async cannot be stopped when its lock is lost; leave `on_lost` \
             out and let it look at `held.is_lost()` (`guard = held`), or write `async fn`",
        );
    }
    Some(OnLost::Signal)
}

fn keys(
    args: &Args,
    scope: &Scope<'_>,
    private: &TokenStream,
    errors: &mut Errors,
) -> Option<Keys> {
    match (args.get("key"), args.get("keys")) {
        (Some(arg), None) => one_key(&arg.value, scope, private, errors).map(Keys::One),
        (None, Some(arg)) => several_keys(arg, scope, private, errors).map(Keys::Several),
        (Some(_), Some(keys)) => {
            errors.at(&keys.name, "`key` and `keys` exclude each other; move all keys into `keys`");
            None
        }
        (None, None) if args.mention("key") || args.mention("keys") => None,
        (None, None) => {
            let example = match scope {
                Scope::Function { names: [.., last], .. } => format!("stock:lock:<{last}>"),
                _ => String::from("jobs:nightly"),
            };
            errors.at_span(
                proc_macro2::Span::call_site(),
                format!("`#[distributed_lock]` needs a key: write `key = \"{example}\"`"),
            );
            None
        }
    }
}

fn one_key(
    value: &Expr,
    scope: &Scope<'_>,
    private: &TokenStream,
    errors: &mut Errors,
) -> Option<TokenStream> {
    match crate::args::literal(value) {
        Some(Lit::Str(template)) => key::expand(template, scope, private, errors),
        Some(other) => {
            errors.at(other, "a key is a text, as in `\"stock:lock:<sku_id>\"`");
            None
        }
        None => {
            if let Expr::Macro(call) = value
                && call.mac.path.segments.last().is_some_and(|name| name.ident == "format")
            {
                errors.at(
                    value,
                    "a key made by `format!` is not escaped, so different arguments could share \
                     one lock; write `key = \"stock:lock:<sku_id>\"`",
                );
                return None;
            }
            Some(quote::quote!(#private::key(#value)))
        }
    }
}

fn several_keys(
    arg: &Arg,
    scope: &Scope<'_>,
    private: &TokenStream,
    errors: &mut Errors,
) -> Option<Vec<TokenStream>> {
    let Expr::Array(ExprArray { elems, .. }) = &arg.value else {
        errors.at(&arg.value, "`keys` is a list: write `keys = [\"from:<from>\", \"to:<to>\"]`");
        return None;
    };
    if elems.is_empty() {
        errors
            .at(&arg.value, "`keys` is empty, so there is nothing to lock; write at least one key");
        return None;
    }
    let keys: Vec<_> = elems.iter().map(|key| one_key(key, scope, private, errors)).collect();
    keys.into_iter().collect()
}

fn fallback(args: &Args, params: &Params, errors: &mut Errors) -> Fallback {
    match (args.get("fallback"), args.get("fallback_with")) {
        (Some(value), Some(with)) => {
            errors.at(
                &with.name,
                "`fallback` and `fallback_with` exclude each other; keep `fallback_with`, which is \
                 also called when the lock is lost",
            );
            Fallback::Value(value.value.clone())
        }
        (Some(value), None) => Fallback::Value(value.value.clone()),
        (None, Some(with)) => {
            if let Some(name) = params.opened_in(&Words::of(with.value.to_token_stream())) {
                errors.at(
                    &with.value,
                    format!(
                        "`{name}` is gone by then: `fallback_with` is also called when the lock is \
                         lost, and the body has taken the parameter that `{name}` is part of; leave \
                         it out, or pass it as a parameter of its own that is `Copy`"
                    ),
                );
            }
            Fallback::With(with.value.clone())
        }
        (None, None) => Fallback::Error,
    }
}

fn guard(arg: &Arg, params: &Params, errors: &mut Errors) -> Option<Ident> {
    let name = match &arg.value {
        Expr::Path(ExprPath { path, .. }) => path.get_ident().filter(|name| *name != "self"),
        _ => None,
    };
    let Some(name) = name else {
        let written = source(&arg.value);
        errors.at(
            &arg.value,
            format!("`guard` names a variable for the body, as in `guard = held`; `{written}` is no name"),
        );
        return None;
    };
    if params.names.contains(name) {
        errors.at(
            name,
            format!("`{name}` is a parameter already; choose another name for the guard"),
        );
        return None;
    }
    Some(name.clone())
}

fn path<'a>(arg: &'a Arg, errors: &mut Errors) -> Option<&'a Path> {
    match &arg.value {
        Expr::Path(ExprPath { path, qself: None, .. }) => Some(path),
        other => {
            let written = other.to_token_stream();
            errors.at(
                other,
                format!("`crate` is the path of distlock, as in `crate = my_prelude::distlock`; `{written}` is no path"),
            );
            None
        }
    }
}
