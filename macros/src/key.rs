//! A key template in Rust code, as an expression that fills it in.

use distlock_template::{Segment, Template};
use proc_macro2::TokenStream;
use quote::quote_spanned;
use syn::LitStr;

use crate::diagnostics::Errors;
use crate::placeholder::{self, Scope, generated_at};

/// Expands `literal` to an expression of type `LockKey`.
pub(crate) fn expand(
    literal: &LitStr,
    scope: &Scope<'_>,
    private: &TokenStream,
    errors: &mut Errors,
) -> Option<TokenStream> {
    let text = literal.value();
    let template = match Template::parse(&text) {
        Ok(template) => template,
        Err(error) => {
            errors.at(literal, error);
            return None;
        }
    };
    let span = generated_at(literal.span());
    let mut complete = true;
    let mut parts = TokenStream::new();
    for segment in template.segments() {
        match segment {
            Segment::Literal(text) => {
                let text = text.as_ref();
                parts.extend(quote_spanned!(span=> .literal(#text)));
            }
            Segment::Placeholder(part) => {
                let name = part.text();
                match placeholder::expand(part, &text, literal, scope) {
                    Ok(value) => {
                        let value = placeholder::reference(&value, literal.span());
                        parts.extend(quote_spanned!(span=> .value(#name, #value)));
                    }
                    Err(error) => {
                        errors.at(literal, error);
                        complete = false;
                    }
                }
            }
        }
    }
    if let Scope::Function { names, .. } = scope
        && let Some(error) = placeholder::mistaken_for_text(&text, &template, names)
    {
        errors.at(literal, error);
        complete = false;
    }
    complete.then(|| quote_spanned!(span=> #private::KeyBuilder::new(#text) #parts .finish()))
}
