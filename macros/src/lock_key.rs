//! `lock_key!("stock:lock:<sku_id>")`.

use proc_macro2::{Ident, TokenStream};
use quote::quote;
use syn::parse::{ParseStream, Parser};
use syn::{LitStr, Path, Result, Token};

use crate::diagnostics::Errors;
use crate::expand::private_door;
use crate::key;
use crate::placeholder::Scope;

pub(crate) fn lock_key(input: TokenStream) -> TokenStream {
    let Input { path, receiver, template } = match parse.parse2(input) {
        Ok(input) => input,
        Err(error) => return error.to_compile_error(),
    };
    let private = private_door(path.as_ref());
    let mut errors = Errors::default();
    let scope = Scope::Open { receiver: receiver.as_ref() };
    let key = key::expand(&template, &scope, &private, &mut errors);
    match (key, errors.into_tokens()) {
        (Some(key), None) => key,
        (_, errors) => quote!({ #errors }),
    }
}

struct Input {
    path: Option<Path>,
    /// What `self` is called here.
    receiver: Option<Ident>,
    template: LitStr,
}

/// `crate = path, self = name, "template"`: the path comes from the wrapper in `distlock`, the name
/// from the attribute, and what the user writes is the template.
fn parse(input: ParseStream<'_>) -> Result<Input> {
    let path = parse_crate(input)?;
    let receiver = parse_receiver(input)?;
    let template: LitStr = input.parse().map_err(|error| {
        syn::Error::new(
            error.span(),
            "`lock_key!` takes a template, as in `lock_key!(\"stock:lock:<sku_id>\")`",
        )
    })?;
    let _comma: Option<Token![,]> = input.parse()?;
    if !input.is_empty() {
        return Err(input.error(
            "`lock_key!` takes one template and nothing else: it fills it in from the variables in \
             scope, as in `lock_key!(\"stock:lock:<sku_id>\")`",
        ));
    }
    Ok(Input { path, receiver, template })
}

fn parse_receiver(input: ParseStream<'_>) -> Result<Option<Ident>> {
    if !input.peek(Token![self]) || !input.peek2(Token![=]) {
        return Ok(None);
    }
    let _self: Token![self] = input.parse()?;
    let _equals: Token![=] = input.parse()?;
    let receiver = input.parse()?;
    let _comma: Token![,] = input.parse()?;
    Ok(Some(receiver))
}

/// `crate = path,` in front of what the user wrote.
pub(crate) fn parse_crate(input: ParseStream<'_>) -> Result<Option<Path>> {
    if !input.peek(Token![crate]) || !input.peek2(Token![=]) {
        return Ok(None);
    }
    let _crate: Token![crate] = input.parse()?;
    let _equals: Token![=] = input.parse()?;
    let path = input.call(Path::parse_mod_style)?;
    let _comma: Token![,] = input.parse()?;
    Ok(Some(path))
}
