//! What the function becomes. Nothing here can fail.
//!
//! Two stages: outside, the key is made and the lock awaited while the parameters are still there
//! for a fallback; inside, everything that the body owns is moved into one future, which the
//! runtime drops before it releases.

use proc_macro2::{Group, Ident, Span, TokenStream};
use quote::{ToTokens, quote, quote_spanned};
use syn::visit_mut::{self, VisitMut};
use syn::{Path, ReturnType, Signature, Type};

use crate::check::{Fallback, Keys, OnUnavailable, Plan};
use crate::params::{Params, Words};

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
pub(crate) fn lock(plan: &Plan, site: Site<'_>) -> TokenStream {
    let private = &plan.private;
    let output = inferable(site.output, site.at);
    let entered = Ident::new("__entered", Span::mixed_site());
    let held = Ident::new("__held", Span::mixed_site());
    let enter = enter(plan, site.params);
    let take_held = plan.guard.as_ref().map(|_| {
        let method = if plan.may_run_unlocked() { "held_if_locked" } else { "held" };
        let method = Ident::new(method, Span::mixed_site());
        quote_spanned!(Span::mixed_site()=> let #held = #entered.#method();)
    });
    let inner = inner(plan, &site, &output, &held);
    let refused = refused(plan, site.params, &output);
    let run = if plan.never_reports_loss() {
        quote_spanned!(Span::mixed_site()=> #entered.run_to_end(#inner).await)
    } else {
        let lost = lost(plan, &output);
        quote_spanned! {Span::mixed_site()=>
            match #entered.run(#inner).await {
                #private::Ok(__value) => __value,
                #private::Err(__lost) => #lost,
            }
        }
    };
    quote_spanned! {Span::mixed_site()=>
        #enter
        match __outcome {
            #private::Ok(#entered) => { #take_held #run }
            #private::Err(__refused) => #refused,
        }
    }
}

/// Awaits the lock. Each value is a statement of its own, so that no temporary of the user's
/// expressions lives while we wait or while the body runs.
fn enter(plan: &Plan, params: &Params) -> TokenStream {
    let private = &plan.private;
    let mut code = TokenStream::new();
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
        Some(client) => quote_spanned!(Span::mixed_site()=> #private::client(&(#client))),
        None => quote_spanned!(Span::mixed_site()=> #private::default_client()),
    };
    let strict = plan.never_reports_loss().then_some(false);
    let options = plan.settings.expand(private, strict);
    let mut words = Words::of(key.clone());
    words.add(client.clone());
    for value in plan.settings.expressions() {
        words.add(value.to_token_stream());
    }
    let peek = params.peek(&words);
    code.extend(quote_spanned! {Span::mixed_site()=>
        let __acquire = {
            #peek
            let __key = #key;
            let __client = #client;
            let __options = #options;
            #private::#function(__client, __key, __options)
        };
    });
    match &plan.when {
        None => {
            code.extend(quote_spanned!(Span::mixed_site()=> let __outcome = __acquire.await;));
            code
        }
        Some(when) => {
            let peek = params.peek(&Words::of(when.to_token_stream()));
            quote_spanned! {Span::mixed_site()=>
                let __when: #private::bool = { #peek #when };
                let __outcome = if __when {
                    #code
                    __acquire.await
                } else {
                    #private::Ok(#private::Entered::unlocked())
                };
            }
        }
    }
}

/// The future that is the body.
fn inner(plan: &Plan, site: &Site<'_>, output: &TokenStream, held: &Ident) -> TokenStream {
    let private = &plan.private;
    // Makes the compiler expect the return type in the body, and point at it.
    let edge = quote_spanned! {Span::mixed_site()=>
        if let #private::Some(__value) = #private::None::<#output> {
            #[allow(unreachable_code)]
            return __value;
        }
    };
    let edge = (!matches!(site.output, Some(Type::Never(_)))).then_some(edge);
    let hold = site.params.hold(&plan.words(&site.body));
    let guard = plan.guard.as_ref().map(|guard| quote!(let #guard = #held;));
    let body = &site.body;
    let mut block = Group::new(proc_macro2::Delimiter::Brace, quote!(#edge #hold #guard #body));
    block.set_span(site.body_span);
    quote_spanned!(Span::mixed_site()=> async move #block)
}

/// The value when the body never started.
fn refused(plan: &Plan, params: &Params, output: &TokenStream) -> TokenStream {
    let private = &plan.private;
    match &plan.fallback {
        Fallback::Error => {
            quote_spanned! {Span::mixed_site()=>
                <#output as #private::FromLockError>::from_lock_error(__refused)
            }
        }
        Fallback::Value(value) => {
            let open = params.open(&Words::of(value.to_token_stream()));
            if open.is_empty() { quote!({ #value }) } else { quote!({ #open #value }) }
        }
        Fallback::With(with) => {
            let open = params.open(&Words::of(with.to_token_stream()));
            quote_spanned! {Span::mixed_site()=>
                { #open #private::fallback_with(#with, __refused) }
            }
        }
    }
}

/// The value when the lock was lost after the body started.
fn lost(plan: &Plan, output: &TokenStream) -> TokenStream {
    let private = &plan.private;
    match &plan.fallback {
        Fallback::Error => quote_spanned! {Span::mixed_site()=>
            <#output as #private::FromLockError>::from_lock_error(__lost)
        },
        Fallback::Value(_) => quote_spanned! {Span::mixed_site()=>
            <#output as #private::FromLostLock>::from_lost_lock(__lost)
        },
        Fallback::With(with) => quote_spanned! {Span::mixed_site()=>
            #private::fallback_with(#with, __lost)
        },
    }
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
    /// All words that the body and the options name.
    fn words(&self, body: &TokenStream) -> Words {
        let mut words = Words::of(body.clone());
        match &self.keys {
            Keys::One(key) => words.add(key.clone()),
            Keys::Several(keys) => words.add(keys.iter().cloned().collect()),
        }
        let fallback = match &self.fallback {
            Fallback::Error => None,
            Fallback::Value(value) | Fallback::With(value) => Some(value),
        };
        let others = fallback.into_iter().chain(&self.client).chain(&self.when);
        for value in others.chain(self.settings.expressions()) {
            words.add(value.to_token_stream());
        }
        words
    }
}
