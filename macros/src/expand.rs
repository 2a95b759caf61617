//! What the function becomes. Nothing here can fail.
//!
//! Two stages: outside, the key is made and the lock awaited while the parameters are still there
//! for a fallback; inside, everything that the body owns is moved into one future, which the
//! runtime drops before it releases.

use proc_macro2::{Delimiter, Group, Ident, Span, TokenStream, TokenTree};
use quote::{ToTokens, quote, quote_spanned};
use syn::visit_mut::{self, VisitMut};
use syn::{Expr, Path, ReturnType, Signature, Type};

use crate::check::{Fallback, Keys, OnUnavailable, Plan};
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
pub(crate) fn lock(plan: &Plan, site: &Site<'_>) -> TokenStream {
    let held = Ident::new("__held", Span::mixed_site());
    let output = inferable(site.output, site.at);
    let parts = Parts {
        acquire: acquire(plan, site.params),
        body: body(plan, site, &output, &held),
        refused: refused(plan, site.params, &output),
        lost: lost(plan, &output),
        slot: plan
            .guard
            .as_ref()
            .map(|_| quote_spanned!(Span::mixed_site()=> let #held = __acquire.slot();)),
    };
    if plan.fallback_needs(site.params) { parts.in_two_steps(plan) } else { parts.in_one(plan) }
}

/// The pieces of an expansion.
struct Parts {
    /// An expression of type `Acquire`.
    acquire: TokenStream,
    /// Takes the place of the held lock before the grant.
    slot: Option<TokenStream>,
    /// The future.
    body: TokenStream,
    /// The value for `__error` when the body never started.
    refused: TokenStream,
    /// The value for `__error` when the lock was lost after that.
    lost: TokenStream,
}

impl Parts {
    /// The parameters move into the body before the wait, so that they are stored only once more.
    fn in_one(self, plan: &Plan) -> TokenStream {
        let Self { acquire, slot, body, refused, lost } = self;
        let private = &plan.private;
        let acquire = bind(&acquire, slot.is_some());
        let locked = quote_spanned! {Span::mixed_site()=>
            #acquire
            #slot
            __acquire.run(#body)
        };
        // What is borrowed for the key would count as in use for the whole wait, if it were not
        // moved into a closure first. Out of a closure there is no `?` and no `await`.
        let locked = if plan.leaves_expressions() {
            quote_spanned!(Span::mixed_site()=> { #locked })
        } else {
            quote_spanned!(Span::mixed_site()=> #private::start(move || { #locked }))
        };
        let failed = match plan.fallback {
            Fallback::Value(_) if plan.never_reports_loss() => {
                quote_spanned!(Span::mixed_site()=> #private::Err(_) => #refused,)
            }
            Fallback::Value(_) => quote_spanned! {Span::mixed_site()=>
                #private::Err(#private::Failure::Refused(_)) => #refused,
                #private::Err(#private::Failure::Lost(__error)) => #lost,
            },
            Fallback::Error | Fallback::With(_) => quote_spanned! {Span::mixed_site()=>
                #private::Err(__failure) => {
                    let __error = __failure.into_error();
                    #lost
                }
            },
        };
        quote_spanned! {Span::mixed_site()=>
            let __locked = #locked;
            match __locked.await {
                #private::Ok(__value) => __value,
                #failed
            }
        }
    }

    /// The parameters are still there for a fallback when the lock is refused.
    fn in_two_steps(self, plan: &Plan) -> TokenStream {
        let Self { acquire, slot, body, refused, lost } = self;
        let private = &plan.private;
        let acquire = bind(&acquire, slot.is_some());
        let lost = if plan.never_reports_loss() {
            quote_spanned!(Span::mixed_site()=> __failure.never())
        } else {
            quote_spanned!(Span::mixed_site()=> { let __error = __failure.into_error(); #lost })
        };
        let error = match plan.fallback {
            Fallback::Value(_) => quote!(_),
            Fallback::Error | Fallback::With(_) => {
                Ident::new("__error", Span::mixed_site()).into_token_stream()
            }
        };
        quote_spanned! {Span::mixed_site()=>
            #acquire
            #slot
            match __acquire.await {
                #private::Ok(__entered) => match __entered.run(#body).await {
                    #private::Ok(__value) => __value,
                    #private::Err(__failure) => #lost,
                },
                #private::Err(#error) => #refused,
            }
        }
    }
}

fn bind(acquire: &TokenStream, is_mut: bool) -> TokenStream {
    let mutability = is_mut.then(|| quote!(mut));
    quote_spanned!(Span::mixed_site()=> let #mutability __acquire = #acquire;)
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
fn body(plan: &Plan, site: &Site<'_>, output: &TokenStream, held: &Ident) -> TokenStream {
    let private = &plan.private;
    // Makes the compiler expect the return type in the body, and point at it.
    let at = output.clone().into_iter().next().map_or_else(Span::call_site, |token| token.span());
    let edge = quote_spanned! {generated_at(at)=>
        if let #private::Some(__value) = #private::None::<#output> {
            return __value;
        }
    };
    let edge = (!matches!(site.output, Some(Type::Never(_)))).then_some(edge);
    let hold = site.params.hold(&plan.words(&site.body));
    let method = if plan.may_run_unlocked() { "held_if_locked" } else { "held" };
    let method = Ident::new(method, Span::mixed_site());
    let guard = plan.guard.as_ref().map(|guard| quote!(let #guard = #held.#method();));
    let body = &site.body;
    let mut block = Group::new(Delimiter::Brace, quote!(#edge #hold #guard #body));
    // Variables of ours in the same block must outlive the temporaries of the body's last expression,
    // as parameters do. They do by the rules of our edition, and a block's edition is its span's.
    let has_variables = guard.is_some() || site.params.opens_any();
    block.set_span(if has_variables { generated_at(site.body_span) } else { site.body_span });
    quote_spanned!(site.body_span=> async move #block)
}

/// The value when the body never started.
fn refused(plan: &Plan, params: &Params, output: &TokenStream) -> TokenStream {
    let private = &plan.private;
    match &plan.fallback {
        Fallback::Error => {
            quote_spanned! {Span::mixed_site()=>
                <#output as #private::FromLockError>::from_lock_error(__error)
            }
        }
        Fallback::Value(value) => {
            let open = params.open(&Words::of(value.to_token_stream()));
            if open.is_empty() { quote!({ #value }) } else { quote!({ #open #value }) }
        }
        Fallback::With(with) => fallback_with(private, with),
    }
}

/// The value when the lock was lost after the body started.
fn lost(plan: &Plan, output: &TokenStream) -> TokenStream {
    let private = &plan.private;
    match &plan.fallback {
        Fallback::Error => quote_spanned! {Span::mixed_site()=>
            <#output as #private::FromLockError>::from_lock_error(__error)
        },
        Fallback::Value(_) => quote_spanned! {Span::mixed_site()=>
            <#output as #private::FromLostLock>::from_lost_lock(__error)
        },
        Fallback::With(with) => fallback_with(private, with),
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
