//! `#[distributed_lock]`: parse, check, expand.

use proc_macro2::TokenStream;
use quote::quote;

use crate::args::Args;
use crate::boxed::Boxed;
use crate::check::{self, KNOWN};
use crate::diagnostics::Errors;
use crate::expand::{self, Site};
use crate::function::Function;
use crate::params::Params;

pub(crate) fn distributed_lock(args: TokenStream, item: &TokenStream) -> TokenStream {
    let mut errors = Errors::default();
    let args = Args::parse(args, &KNOWN, &mut errors);
    let function = errors.ok(Function::parse(item.clone()));
    let expansion = expand(args, function.as_ref(), &mut errors);
    let output = match (errors.into_tokens(), expansion) {
        (None, Some(expansion)) => expansion,
        // The function as it was written, so that its callers and the editor still know it.
        (errors, _) => quote!(#errors #item),
    };
    if std::env::var_os("DISTLOCK_MACROS_DEBUG").is_some_and(|value| value == "1") {
        eprintln!("{output}");
    }
    output
}

fn expand(args: Args, function: Option<&Function>, errors: &mut Errors) -> Option<TokenStream> {
    let Some(function) = function else {
        check::settings(&args, errors);
        return None;
    };
    let mut sig = function.sig.clone();
    let boxed = if sig.asyncness.is_some() { None } else { Boxed::find(&sig, &function.body) };
    let kind = function.check(boxed.is_some(), errors);
    let body = match boxed {
        Some(boxed) => {
            let args = match &boxed.params.receiver {
                Some(receiver) => args.with_receiver(receiver),
                None => args,
            };
            let plan = check::plan(&args, &boxed.params, kind, errors)?;
            let site = Site {
                params: &boxed.params,
                output: Some(&boxed.output),
                at: &sig.ident,
                body: boxed.body.clone(),
                body_span: boxed.body_span,
            };
            boxed.with_body(&expand::lock(&plan, &site))
        }
        None => {
            let params = Params::take(&mut sig, &function.body);
            let plan = check::plan(&args, &params, kind, errors)?;
            let site = Site {
                params: &params,
                output: expand::output(&sig),
                at: &sig.ident,
                body: function.body.clone(),
                body_span: function.body_span(),
            };
            expand::lock(&plan, &site)
        }
    };
    Some(function.with_body(&sig, body))
}

#[cfg(test)]
mod tests {
    use proc_macro2::TokenTree;

    use super::*;

    const ARGS: &str = r#"
        key = "stock:<sku_id>:<self.shop>", wait = "3s", lease = Duration::from_secs(10),
        max_hold = "1m", client = self.locks(1, 2), fallback_with = |error| Err::<u8, _>(error),
        guard = held, on_lost = "signal", on_unavailable = "run_unlocked", reentrant = false,
        release = "await",
        strict = true, max_waiters = 3, name = "stock", when = sku_id > 0, crate = distlock
    "#;

    const ITEMS: &[&str] = &[
        "async fn f(&self, sku_id: u64) -> Result<u8, E> { Ok(1) }",
        "pub(crate) async fn f(self, Json(Order { sku_id, .. }): Json<Order>) { go().await; }",
        "async fn f<'a, T: X, const N: usize>(self: Arc<Self>, mut sku_id: &'a T) -> impl Y {}",
        "fn f<'async_trait>(&self, sku_id: u64) -> P { Box::pin(async move {
            let __self = self; let sku_id = sku_id; let __ret: u8 = { 1 }; __ret }) }",
        "fn f() {}",
        "fn f(&self, sku_id: u64) -> Result<u8, E> { Ok(1) }",
        "fn f(&self, sku_id: u64) -> Pin<Box<dyn Future<Output = u8>>> { g() }",
        "async fn f(&self, sku_id: u64);",
        "struct S { sku_id: u64 }",
        "",
    ];

    fn tokens(text: &str) -> TokenStream {
        text.parse().unwrap()
    }

    /// Whatever is wrong with the options, the answer is code: the function, or an error and the
    /// function as it was.
    fn answers(args: &TokenStream, item: &TokenStream) -> bool {
        let output = distributed_lock(args.clone(), item);
        let is_error = output.to_string().contains("compile_error");
        let untouched = output.to_string().ends_with(&item.to_string());
        assert!(!is_error || untouched, "{args}\n{output}");
        let file = syn::parse2::<syn::File>(quote!(trait T { #output }));
        let items = syn::parse2::<syn::File>(output.clone());
        assert!(file.is_ok() || items.is_ok(), "{args}\n{output}");
        is_error
    }

    #[test]
    fn the_whole_attribute_expands() {
        let accepted: Vec<bool> =
            ITEMS.iter().map(|item| !answers(&tokens(ARGS), &tokens(item))).collect();

        let sync = cfg!(feature = "blocking");
        assert_eq!(accepted[..4], [true; 4]);
        assert_eq!(accepted[4..], [false, sync, false, false, false, false]);
    }

    #[test]
    fn every_attribute_with_a_token_missing_or_cut_off_is_answered() {
        let all: Vec<TokenTree> = tokens(ARGS).into_iter().collect();
        for item in ITEMS.iter().map(|item| tokens(item)) {
            for at in 0..all.len() {
                let cut: TokenStream = all[..at].iter().cloned().collect();
                let before = all[..at].iter().cloned();
                let missing: TokenStream = before.chain(all[at + 1..].iter().cloned()).collect();
                let doubled: TokenStream = all[..=at].iter().chain(&all[at..]).cloned().collect();
                answers(&cut, &item);
                answers(&missing, &item);
                answers(&doubled, &item);
            }
        }
    }

    #[test]
    fn every_template_of_a_few_characters_is_answered() {
        let item = tokens(ITEMS[0]);
        let mut templates = vec![String::new()];
        for _ in 0..4 {
            let longer = templates.iter().flat_map(|template| {
                ["<", ">", "sku_id", ".", ":", "(", "é"].map(|piece| format!("{template}{piece}"))
            });
            templates = longer.collect();
            for template in &templates {
                answers(&quote!(key = #template), &item);
            }
        }
    }
}
