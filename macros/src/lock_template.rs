//! `lock_template!(pub STOCK = "stock:lock:<sku_id>", wait = "3s", lease = "10s")`.

use distlock_template::{Placeholder, RoutePart, Segment, Template, TemplateError, split_type};
use proc_macro2::{Ident, Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::parse::{ParseStream, Parser};
use syn::{Attribute, LitStr, Result, Token, Visibility};

use crate::args::{Args, Known};
use crate::diagnostics::Errors;
use crate::expand::private_door;
use crate::lock_key::parse_crate;
use crate::settings::{DEFAULT_LEASE, Settings};

const KNOWN: Known = Known {
    options: &[
        "wait",
        "lease",
        "max_hold",
        "fencing",
        "max_waiters",
        "on_lost",
        "reentrant",
        "release",
        "strict",
    ],
    elsewhere: &[
        ("timeout", "wait"),
        ("ttl", "lease"),
        ("expire", "lease"),
        ("lease_time", "lease"),
    ],
};

pub(crate) fn lock_template(input: TokenStream) -> TokenStream {
    let mut errors = Errors::default();
    let mut items = TokenStream::new();
    let parser = |input: ParseStream<'_>| {
        let path = parse_crate(input)?;
        let private = private_door(path.as_ref());
        if input.is_empty() {
            return Err(syn::Error::new(
                Span::call_site(),
                "`lock_template!` declares locks, as in \
                 `lock_template!(pub STOCK = \"stock:lock:<sku_id>\", wait = \"3s\")`",
            ));
        }
        while !input.is_empty() {
            let declaration: Declaration = Declaration::parse(input, &mut errors)?;
            items.extend(declaration.expand(&private, &mut errors));
        }
        Ok(())
    };
    if let Err(error) = parser.parse2(input) {
        errors.push(error);
    }
    let errors = errors.into_tokens();
    quote!(#errors #items)
}

struct Declaration {
    attrs: Vec<Attribute>,
    vis: Visibility,
    name: Ident,
    template: LitStr,
    settings: Settings,
}

impl Declaration {
    /// One declaration, up to `;` or the end.
    fn parse(input: ParseStream<'_>, errors: &mut Errors) -> Result<Self> {
        let attrs = input.call(Attribute::parse_outer)?;
        let vis = input.parse()?;
        let name = input.parse().map_err(|error: syn::Error| {
            syn::Error::new(
                error.span(),
                "a lock needs a name: `lock_template!(pub STOCK = \"stock:lock:<sku_id>\")`",
            )
        })?;
        let _equals: Token![=] = input.parse()?;
        let template = input.parse()?;
        let mut tokens = TokenStream::new();
        while !input.is_empty() && !input.peek(Token![;]) {
            let token: proc_macro2::TokenTree = input.parse()?;
            tokens.extend([token]);
        }
        let _semicolon: Option<Token![;]> = input.parse()?;
        let args = Args::parse(without_comma(tokens, errors), &KNOWN, errors);
        let settings = Settings::read(&args, Some(DEFAULT_LEASE), errors);
        Ok(Self { attrs, vis, name, template, settings })
    }

    fn expand(&self, private: &TokenStream, errors: &mut Errors) -> TokenStream {
        let Self { attrs, vis, name, template, settings } = self;
        let text = template.value();
        let (arguments, parts) = match Template::parse(&text) {
            Ok(parsed) => fill(&parsed, &text, template, errors),
            Err(error) => {
                errors.at(template, error);
                (Vec::new(), TokenStream::new())
            }
        };
        let key = Ident::new("key", Span::mixed_site().located_at(name.span()));
        let arguments = arguments.iter().map(|argument| argument.expand(private));
        let options = settings.expand(private, None);
        let debug = name.to_string();
        let documented = attrs.iter().any(|attr| attr.path().is_ident("doc"));
        let text_in_docs = format!("The lock `{text}`.");
        let doc = (!documented).then(|| quote!(#[doc = #text_in_docs]));
        let key_doc = format!("Fills `{text}` in.");
        quote_spanned! {Span::mixed_site()=>
            #(#attrs)*
            #doc
            #[allow(non_camel_case_types, clippy::upper_case_acronyms)]
            #[derive(#private::Clone, #private::Copy)]
            #vis struct #name;

            impl #name {
                #[doc = #key_doc]
                #[allow(clippy::unused_self)]
                #vis fn #key(self, #(#arguments),*) -> #private::LockKey {
                    #private::KeyBuilder::new(#text)
                        #parts
                        .options(<Self as #private::Template>::options())
                        .finish()
                }
            }

            impl #private::Debug for #name {
                fn fmt(&self, f: &mut #private::Formatter<'_>) -> #private::FmtResult {
                    f.write_str(#debug)
                }
            }

            impl #private::Template for #name {
                const TEMPLATE: &'static #private::str = #text;

                fn options() -> #private::LockOptions {
                    #options
                }
            }
        }
    }
}

/// One argument of `key`.
struct Argument {
    name: Ident,
    /// What a route reads it as.
    read_as: Option<String>,
}

impl Argument {
    /// Prints the argument. What a route reads as a type is taken as exactly that: by any other type
    /// the same value could have another spelling, and so another lock.
    fn expand(&self, private: &TokenStream) -> TokenStream {
        let name = &self.name;
        match self.read_as.as_deref() {
            None => quote_spanned! {name.span()=>
                #name: &(impl #private::KeyPart + ?#private::Sized)
            },
            Some("uuid") => quote_spanned! {name.span()=>
                #name: &(impl #private::UuidPart + ?#private::Sized)
            },
            Some(primitive) => {
                let primitive = Ident::new(primitive, Span::mixed_site());
                quote_spanned!(name.span()=> #name: &#private::#primitive)
            }
        }
    }
}

/// The arguments of `key`, one for each name, and what fills them in.
fn fill(
    template: &Template<'_>,
    text: &str,
    literal: &LitStr,
    errors: &mut Errors,
) -> (Vec<Argument>, TokenStream) {
    let mut arguments: Vec<Argument> = Vec::new();
    let mut parts = TokenStream::new();
    for segment in template.segments() {
        match segment {
            Segment::Literal(text) => {
                let text = text.as_ref();
                parts.extend(quote!(.literal(#text)));
            }
            Segment::Placeholder(placeholder) => match argument(placeholder, text, &arguments) {
                Ok(mut argument) => {
                    argument.name.set_span(Span::mixed_site().located_at(literal.span()));
                    let (written, name) = (placeholder.text(), &argument.name);
                    parts.extend(quote!(.value(#written, #name)));
                    if arguments.iter().all(|other| other.name != argument.name) {
                        arguments.push(argument);
                    }
                }
                Err(error) => errors.at(literal, error),
            },
        }
    }
    (arguments, parts)
}

fn argument(
    placeholder: &Placeholder<'_>,
    text: &str,
    others: &[Argument],
) -> std::result::Result<Argument, TemplateError> {
    let written = placeholder.text();
    let (name, read_as) = split_type(written);
    let Ok(name) = syn::parse_str::<Ident>(name) else {
        return Err(TemplateError::new(
            text,
            placeholder.span(),
            format!("`{written}` is no name"),
            "name what `key(..)` is called with, as in `<sku_id>`; for a route, give its type as \
             well: `<sku_id as u64>`",
        ));
    };
    if read_as.is_some() {
        RoutePart::parse(text, placeholder)?;
    }
    let other = others.iter().find(|other| other.name == name);
    if let Some(other) = other.filter(|other| other.read_as.as_deref() != read_as) {
        let first = other
            .read_as
            .as_deref()
            .map_or_else(|| format!("<{name}>"), |read_as| format!("<{name} as {read_as}>"));
        return Err(TemplateError::new(
            text,
            placeholder.span(),
            format!("`{name}` is read in two ways, and `key(..)` takes it once"),
            format!("write `{first}`, as before"),
        ));
    }
    Ok(Argument { name, read_as: read_as.map(str::to_owned) })
}

/// The comma between the template and its settings.
fn without_comma(tokens: TokenStream, errors: &mut Errors) -> TokenStream {
    let mut tokens = tokens.into_iter();
    match tokens.next() {
        Some(proc_macro2::TokenTree::Punct(comma)) if comma.as_char() == ',' => {}
        Some(other) => {
            errors.at(other, "expected a comma and the settings of the lock, or the end");
        }
        None => {}
    }
    tokens.collect()
}
