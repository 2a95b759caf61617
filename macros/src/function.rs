//! The item under the attribute: its signature is parsed, its body stays tokens.

use proc_macro2::{Ident, Span, TokenStream, TokenTree};
use quote::{ToTokens, TokenStreamExt};
use syn::parse::{ParseStream, Parser};
use syn::{Attribute, Error, Result, Signature, Token, Visibility, braced, token};

use crate::boxed::is_boxed;
use crate::diagnostics::Errors;

/// A function with a body.
pub(crate) struct Function {
    attrs: Vec<Attribute>,
    vis: Visibility,
    defaultness: Option<Token![default]>,
    pub(crate) sig: Signature,
    brace: token::Brace,
    inner_attrs: Vec<Attribute>,
    pub(crate) body: TokenStream,
}

impl Function {
    /// Parses `item`, and refuses what cannot be locked at all.
    pub(crate) fn parse(item: TokenStream) -> Result<Self> {
        let parser = |input: ParseStream<'_>| {
            let attrs = input.call(Attribute::parse_outer)?;
            let vis: Visibility = input.parse()?;
            let defaultness: Option<Token![default]> =
                if input.peek(Token![default]) { Some(input.parse()?) } else { None };
            refuse_other_item(input)?;
            let sig: Signature = input.parse()?;
            if input.peek(Token![;]) {
                return Err(Error::new_spanned(
                    &sig.ident,
                    "this method has no body to lock; put `#[distributed_lock]` on the methods \
                     that implement it",
                ));
            }
            let content;
            let brace = braced!(content in input);
            let inner_attrs = content.call(Attribute::parse_inner)?;
            let body = content.parse()?;
            Ok(Self { attrs, vis, defaultness, sig, brace, inner_attrs, body })
        };
        parser.parse2(item)
    }

    /// Refuses what is no async function. What `#[async_trait]` made of one counts as one.
    pub(crate) fn check(&self, is_boxed: bool, errors: &mut Errors) {
        let sig = &self.sig;
        if let Some(constness) = &sig.constness {
            errors.at(
                constness,
                "a `const fn` can run in the compiler, where there is no lock; remove `const` and \
                 make it an `async fn`",
            );
        } else if let Some(abi) = &sig.abi {
            errors.at(
                abi,
                "an `extern` function is called by foreign code, which cannot wait for a lock; \
                 lock an `async fn` and call that from it",
            );
        } else if sig.asyncness.is_none() && !is_boxed {
            let (at, message) = self.not_async();
            errors.at(at, message);
        }
    }

    fn not_async(&self) -> (TokenStream, &'static str) {
        let fn_token = self.sig.fn_token.to_token_stream();
        if contains_all(&self.body, &mut vec!["Builder", "enable_all", "block_on"]) {
            return (
                self.sig.ident.to_token_stream(),
                "this is what `#[tokio::test]` or `#[tokio::main]` made of an `async fn`; put \
                 `#[distributed_lock]` above that attribute",
            );
        }
        let starts_with_box = matches!(
            self.body.clone().into_iter().next(),
            Some(TokenTree::Ident(name)) if name == "Box"
        );
        if starts_with_box || is_boxed(&self.sig) {
            return (
                fn_token,
                "this function boxes a future in a way that is not known here, and the lock has to \
                 be held while the body runs; put `#[distributed_lock]` above the other attributes \
                 of the function, or on an `async fn` that this one calls",
            );
        }
        (
            fn_token,
            "`#[distributed_lock]` goes on an `async fn`, and this is a plain `fn`; write `async fn`",
        )
    }

    /// The function with another body in the same braces.
    pub(crate) fn with_body(&self, sig: &Signature, body: TokenStream) -> TokenStream {
        let mut tokens = TokenStream::new();
        tokens.append_all(&self.attrs);
        self.vis.to_tokens(&mut tokens);
        self.defaultness.to_tokens(&mut tokens);
        sig.to_tokens(&mut tokens);
        self.brace.surround(&mut tokens, |tokens| {
            tokens.append_all(&self.inner_attrs);
            tokens.extend(body);
        });
        tokens
    }

    /// Where the body stands.
    pub(crate) fn body_span(&self) -> Span {
        self.brace.span.join()
    }
}

/// Names the item that the attribute was put on by mistake.
fn refuse_other_item(input: ParseStream<'_>) -> Result<()> {
    let ahead = input.fork();
    // Of the keywords that may come before `fn`, only `unsafe` starts other items as well.
    let _unsafe: Option<Token![unsafe]> = ahead.parse()?;
    let Ok(word) = ahead.call(<Ident as syn::ext::IdentExt>::parse_any) else { return Ok(()) };
    let item = word.to_string();
    let remedy = match item.as_str() {
        "impl" | "trait" => "put it on the methods that need the lock",
        "mod" => "put it on the functions that need the lock",
        "struct" | "enum" | "union" | "static" | "type" | "use" | "let" | "macro_rules" => {
            "put it on the function that needs the lock"
        }
        "const" if ahead.peek(syn::Ident) => "put it on the function that needs the lock",
        _ => return Ok(()),
    };
    Err(Error::new_spanned(
        &word,
        format!("`#[distributed_lock]` goes on an `async fn`, not on `{item}` items; {remedy}"),
    ))
}

fn contains_all(tokens: &TokenStream, words: &mut Vec<&str>) -> bool {
    for token in tokens.clone() {
        match token {
            TokenTree::Ident(name) => words.retain(|word| name != word),
            TokenTree::Group(group) => {
                contains_all(&group.stream(), words);
            }
            _ => {}
        }
    }
    words.is_empty()
}
