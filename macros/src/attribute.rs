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
    function.check(boxed.is_some(), errors);
    let body = match boxed {
        Some(boxed) => {
            let args = match &boxed.params.receiver {
                Some(receiver) => args.with_receiver(receiver),
                None => args,
            };
            let plan = check::plan(&args, &boxed.params, errors)?;
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
            let plan = check::plan(&args, &params, errors)?;
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
