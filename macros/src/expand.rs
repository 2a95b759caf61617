//! What the function becomes. Nothing here can fail.
//!
//! ```text
//! let __locked = start(move || {
//!     let __acquire = acquire(client, key, options);
//!     __acquire.run(async move { take in every parameter; body })
//! });
//! match __locked.await { Ok(value) => value, Err(failure) => error or fallback }
//! ```
//!
//! A function that is not async gives a closure to `run_blocking`, which needs no `start`.
//!
//! Everything that the function owns is in the one future that is the body, which the runtime drops
//! before it releases.

use proc_macro2::{Delimiter, Group, Ident, Span, TokenStream, TokenTree};
use quote::{ToTokens, quote, quote_spanned};
use syn::visit_mut::{self, VisitMut};
use syn::{Expr, Path, ReturnType, Signature, Type};

use crate::check::{Fallback, Keys, OnUnavailable, Plan};
use crate::function::Kind;
use crate::params::{Params, Words};
use crate::placeholder::generated_at;

/// The code to be locked.
pub(crate) struct Site<'a> {
    pub(crate) params: &'a Params,
    /// `None`: the unit type, not written.
    pub(crate) output: Option<&'a Type>,
    /// Where to point if there is no return type to point at.
    pub(crate) at: &'a Ident,
    pub(crate) body: TokenStream,
    pub(crate) body_span: Span,
}

/// The only module that an expansion names.
pub(crate) fn private_door(path: Option<&Path>) -> TokenStream {
    match path {
        Some(path) => quote!(#path::__private),
        None => quote_spanned!(Span::mixed_site()=> ::distlock::__private),
    }
}

/// The written return type of an async function.
pub(crate) fn output(sig: &Signature) -> Option<&Type> {
    match &sig.output {
        ReturnType::Default => None,
        ReturnType::Type(_, output) => Some(output),
    }
}

/// Expands to the statements that replace the body.
///
/// The body is a future from the start, and has the parameters from then on: so they are stored only
/// once more than without a lock.
pub(crate) fn lock(plan: &Plan, site: &Site<'_>) -> TokenStream {
    let private = &plan.private;
    let output = inferable(site.output, site.at);
    let takes_refusal = plan.fallback_needs(site.params);
    let acquire = acquire(plan, site.params);
    let body = body(plan, site, &output, takes_refusal);
    let slot = plan
        .guard
        .as_ref()
        .map(|_| quote_spanned!(Span::mixed_site()=> let __held = __acquire.slot();));
    let refusal = takes_refusal
        .then(|| quote_spanned!(Span::mixed_site()=> let __refusal = __acquire.refusal();));
    let mutability = (slot.is_some() || refusal.is_some()).then(|| quote!(mut));
    let run = match plan.kind {
        Kind::Async => quote_spanned!(Span::mixed_site()=> run),
        Kind::Sync => quote_spanned!(Span::mixed_site()=> run_blocking),
    };
    let locked = quote_spanned! {Span::mixed_site()=>
        let #mutability __acquire = #acquire;
        #slot
        #refusal
        __acquire.#run(#body)
    };
    // What is borrowed for the key would count as in use for the whole wait, if it were not moved
    // into a closure first. Out of a closure there is no `?` and no `await`.
    let locked = if plan.kind == Kind::Sync || plan.leaves_expressions() {
        quote_spanned!(Span::mixed_site()=> { #locked })
    } else {
        quote_spanned!(Span::mixed_site()=> #private::start(move || { #locked }))
    };
    let failed = failed(plan, &output, takes_refusal);
    let wait = (plan.kind == Kind::Async).then(|| quote_spanned!(Span::mixed_site()=> .await));
    let judge = returns_future(plan, site, &output);
    quote_spanned! {Span::mixed_site()=>
        let __locked = #locked;
        match __locked #wait {
            #private::Ok(__value) => { #judge __value }
            #failed
        }
    }
}

/// The attempt to get the lock. It is a value of its own, so that no temporary of the user's
/// expressions lives while we wait or while the body runs.
fn acquire(plan: &Plan, params: &Params) -> TokenStream {
    let private = &plan.private;
    let (function, key) = match &plan.keys {
        Keys::One(key) => ("acquire", key.clone()),
        Keys::Several(keys) => ("acquire_all", quote!([#(#keys),*])),
    };
    let function = match plan.on_unavailable {
        OnUnavailable::Error => String::from(function),
        OnUnavailable::RunUnlocked => format!("{function}_or_run_unlocked"),
    };
    let function = Ident::new(&function, Span::mixed_site());
    let client = match &plan.client {
        Some(client) => {
            let (first, _) = around(client);
            let (private, inner) =
                (located(private, first), call(client.to_token_stream(), client));
            let argument = call(quote_spanned!(first=> &#inner), client);
            quote_spanned!(first=> #private::client #argument)
        }
        None => quote_spanned!(Span::mixed_site()=> #private::default_client()),
    };
    let strict = plan.never_reports_loss().then_some(false);
    let options = plan.settings.expand(private, strict);
    let mut words = Words::of(key.clone());
    let allow = params.allow(&words);
    words.add(client.clone());
    for value in plan.settings.expressions() {
        words.add(value.to_token_stream());
    }
    let peek = params.peek(&words);
    let acquire = quote_spanned! {Span::mixed_site()=>
        {
            #peek
            #allow
            let __key = #key;
            let __client = #client;
            let __options = #options;
            #private::#function(__client, __key, __options)
        }
    };
    let Some(when) = &plan.when else { return acquire };
    let peek = params.peek(&Words::of(when.to_token_stream()));
    quote_spanned! {Span::mixed_site()=>
        {
            let __when: #private::bool = { #peek #when };
            if __when #acquire else { #private::Acquire::unlocked() }
        }
    }
}

/// The future that is the body.
fn body(plan: &Plan, site: &Site<'_>, output: &TokenStream, takes_refusal: bool) -> TokenStream {
    let private = &plan.private;
    // Makes the compiler expect the return type in the body, and point at it.
    let at = output.clone().into_iter().next().map_or_else(Span::call_site, |token| token.span());
    let edge = quote_spanned! {generated_at(at)=>
        if let #private::Some(__value) = #private::None::<#output> {
            return __value;
        }
    };
    let edge = match (plan.kind, site.output) {
        (Kind::Sync, _) | (_, Some(Type::Never(_))) => None,
        (Kind::Async, _) => Some(edge),
    };
    let hold = site.params.hold(&plan.words(&site.body));
    let method = if plan.may_run_unlocked() { "held_if_locked" } else { "held" };
    let method = Ident::new(method, Span::mixed_site());
    let held = Ident::new("__held", Span::mixed_site());
    let guard = plan.guard.as_ref().map(|guard| quote!(let #guard = #held.#method();));
    let refused = if takes_refusal { refused_inside(plan) } else { None };
    let body = &site.body;
    let mut block = Group::new(Delimiter::Brace, quote!(#edge #hold #refused #guard #body));
    // Variables of ours in the same block must outlive the temporaries of the body's last expression,
    // as parameters do. They do by the rules of our edition, and a block's edition is its span's.
    let has_variables = guard.is_some() || site.params.opens_any();
    block.set_span(if has_variables { generated_at(site.body_span) } else { site.body_span });
    match plan.kind {
        Kind::Async => quote_spanned!(site.body_span=> async move #block),
        Kind::Sync => quote_spanned!(site.body_span=> move || -> #output #block),
    }
}

/// Has the compiler refuse a future that a function returns which is not async. Without a fallback
/// it must return a `Result` anyway.
fn returns_future(plan: &Plan, site: &Site<'_>, output: &TokenStream) -> Option<TokenStream> {
    if plan.kind == Kind::Async
        || matches!(plan.fallback, Fallback::Error)
        || matches!(site.output, None | Some(Type::Never(_)))
    {
        return None;
    }
    let at = output.clone().into_iter().next().map_or_else(Span::call_site, |token| token.span());
    let private = located(&plan.private, generated_at(at));
    Some(quote_spanned! {generated_at(at)=>
        #private::no_future(#private::Returned::of(&__value).kind());
    })
}

/// Where a fallback names what the body has: there it is told of a refusal, and answers in place of
/// the user's statements.
fn refused_inside(plan: &Plan) -> Option<TokenStream> {
    let private = &plan.private;
    match &plan.fallback {
        Fallback::Error => None,
        Fallback::Value(value) => Some(quote_spanned! {Span::mixed_site()=>
            if let #private::Some(_) = __refusal.take() {
                return #value;
            }
        }),
        Fallback::With(with) => {
            let value = fallback_with(private, with);
            Some(quote_spanned! {Span::mixed_site()=>
                if let #private::Some(__error) = __refusal.take() {
                    return #value;
                }
            })
        }
    }
}

/// The arms for a call that has no value of its body.
fn failed(plan: &Plan, output: &TokenStream, takes_refusal: bool) -> TokenStream {
    let private = &plan.private;
    match &plan.fallback {
        Fallback::Error => quote_spanned! {Span::mixed_site()=>
            #private::Err(__failure) => {
                <#output as #private::FromLockError>::from_lock_error(__failure.into_error())
            }
        },
        Fallback::With(with) => {
            let value = fallback_with(private, with);
            quote_spanned! {Span::mixed_site()=>
                #private::Err(__failure) => {
                    let __error = __failure.into_error();
                    #value
                }
            }
        }
        Fallback::Value(value) => {
            let lost = if plan.never_reports_loss() {
                quote_spanned!(Span::mixed_site()=> __failure.never())
            } else {
                quote_spanned! {Span::mixed_site()=>
                    <#output as #private::FromLostLock>::from_lost_lock(__failure.into_error())
                }
            };
            let refused = (!takes_refusal).then(|| {
                quote_spanned! {Span::mixed_site()=>
                    #private::Err(#private::Failure::Refused(_)) => { #value }
                }
            });
            quote_spanned! {Span::mixed_site()=>
                #refused
                #private::Err(__failure) => #lost,
            }
        }
    }
}

/// `fallback_with(with, __error)`, as if `with` were called where it stands.
fn fallback_with(private: &TokenStream, with: &Expr) -> TokenStream {
    let error = Ident::new("__error", Span::mixed_site());
    let arguments = call(quote!(#with, #error), with);
    let (first, _) = around(with);
    let private = located(private, first);
    quote_spanned!(first=> #private::fallback_with #arguments)
}

/// `(arguments)`, which ends where `expr` ends.
fn call(arguments: TokenStream, expr: &Expr) -> Group {
    let mut group = Group::new(Delimiter::Parenthesis, arguments);
    group.set_span(around(expr).1);
    group
}

/// Where `expr` begins and ends, for code of ours that an error should point at it for.
fn around(expr: &Expr) -> (Span, Span) {
    let mut tokens = expr.to_token_stream().into_iter().map(|token| token.span());
    let first = tokens.next().unwrap_or_else(Span::call_site);
    let last = tokens.last().unwrap_or(first);
    (generated_at(first), generated_at(last))
}

/// The same tokens, meaning the same, at another place.
fn located(tokens: &TokenStream, at: Span) -> TokenStream {
    let located = tokens.clone().into_iter().map(|mut token| {
        token.set_span(at.resolved_at(token.span()));
        token
    });
    located.collect()
}

/// The return type where only a type that can be inferred may stand.
fn inferable(output: Option<&Type>, at: &Ident) -> TokenStream {
    struct Infer;
    impl VisitMut for Infer {
        fn visit_type_mut(&mut self, ty: &mut Type) {
            if let Type::ImplTrait(_) = ty {
                *ty = syn::parse_quote!(_);
            } else {
                visit_mut::visit_type_mut(self, ty);
            }
        }
    }
    match output {
        None => quote_spanned!(at.span()=> ()),
        Some(output) => {
            let mut output = output.clone();
            Infer.visit_type_mut(&mut output);
            output.into_token_stream()
        }
    }
}

impl Plan {
    /// Whether the fallback uses what the body would have taken away.
    fn fallback_needs(&self, params: &Params) -> bool {
        let (Fallback::Value(fallback) | Fallback::With(fallback)) = &self.fallback else {
            return false;
        };
        let words = Words::of(fallback.to_token_stream());
        let mut names = params.names.iter().chain(&params.receiver);
        names.any(|name| !params.shared.contains(name) && words.contain(&name.to_string()))
    }

    /// The expressions that are evaluated before the wait.
    fn early_expressions(&self) -> TokenStream {
        let mut tokens = TokenStream::new();
        match &self.keys {
            Keys::One(key) => tokens.extend(key.clone()),
            Keys::Several(keys) => tokens.extend(keys.iter().cloned()),
        }
        for value in self.client.iter().chain(&self.when).chain(self.settings.expressions()) {
            value.to_tokens(&mut tokens);
        }
        tokens
    }

    /// Whether one of them leaves the function or waits.
    fn leaves_expressions(&self) -> bool {
        fn leaves(tokens: TokenStream) -> bool {
            tokens.into_iter().any(|token| match token {
                TokenTree::Group(group) => leaves(group.stream()),
                TokenTree::Ident(word) => word == "return" || word == "await",
                TokenTree::Punct(mark) => mark.as_char() == '?',
                TokenTree::Literal(_) => false,
            })
        }
        leaves(self.early_expressions())
    }

    /// All words that the body and the options name.
    fn words(&self, body: &TokenStream) -> Words {
        let mut words = Words::of(body.clone());
        words.add(self.early_expressions());
        if let Fallback::Value(fallback) | Fallback::With(fallback) = &self.fallback {
            words.add(fallback.to_token_stream());
        }
        words
    }
}
