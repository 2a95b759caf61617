//! The item under the attribute: its signature is parsed, its body stays tokens.

use proc_macro2::{Ident, Span, TokenStream, TokenTree};
use quote::{ToTokens, TokenStreamExt};
use syn::parse::{ParseStream, Parser};
use syn::{
    Attribute, Error, GenericArgument, PathArguments, Result, ReturnType, Signature, Token, Type,
    TypeParamBound, Visibility, braced, token,
};

use crate::boxed::is_boxed;
use crate::diagnostics::Errors;

/// How a function runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Async,
    Sync,
}

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

    /// Tells how the function runs, and refuses what cannot be locked. What `#[async_trait]` made of
    /// an async function counts as one.
    pub(crate) fn check(&self, is_boxed: bool, errors: &mut Errors) -> Kind {
        let sig = &self.sig;
        let is_async = sig.asyncness.is_some() || is_boxed;
        if let Some(constness) = &sig.constness {
            errors.at(
                constness,
                "a `const fn` can run in the compiler, where there is no lock; remove `const`",
            );
        } else if let Some(abi) = &sig.abi {
            errors.at(
                abi,
                "an `extern` function is called by foreign code, which knows no locks; lock another \
                 function and call that from it",
            );
        } else if !is_async && let Some((at, message)) = self.refuse_sync() {
            errors.at(at, message);
        }
        if is_async { Kind::Async } else { Kind::Sync }
    }

    /// Why a function that is not async cannot be locked.
    fn refuse_sync(&self) -> Option<(TokenStream, &'static str)> {
        let fn_token = self.sig.fn_token.to_token_stream();
        // Others may start a runtime as well; what tokio's attributes make of a function also has
        // this text, or this variable.
        let starts_runtime =
            contains_all(&self.body, &mut vec!["Builder", "enable_all", "block_on"]);
        let by_tokio = ["\"Failed building the Runtime\"", "body"];
        if starts_runtime && by_tokio.iter().any(|word| contains_all(&self.body, &mut vec![word])) {
            return Some((
                self.sig.ident.to_token_stream(),
                "this is what `#[tokio::test]` or `#[tokio::main]` made of an `async fn`; put \
                 `#[distributed_lock]` above that attribute",
            ));
        }
        if boxes_async(&self.body) || is_boxed(&self.sig) {
            return Some((
                fn_token,
                "this function boxes a future in a way that is not known here, and the lock has to \
                 be held while the body runs; put `#[distributed_lock]` above the other attributes \
                 of the function, or on an `async fn` that this one calls",
            ));
        }
        if let ReturnType::Type(_, output) = &self.sig.output
            && is_future(output)
        {
            return Some((
                output.to_token_stream(),
                "a function that returns a future would release the lock before the future has done \
                 its work; write `async fn`",
            ));
        }
        (!BLOCKING).then_some((fn_token, NOT_BLOCKING))
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
        format!("`#[distributed_lock]` goes on functions, not on `{item}` items; {remedy}"),
    ))
}

/// Whether the body is `Box::pin(async …)`.
fn boxes_async(body: &TokenStream) -> bool {
    let tokens: Vec<TokenTree> = body.clone().into_iter().collect();
    let [TokenTree::Ident(name), .., TokenTree::Group(argument)] = &tokens[..] else {
        return false;
    };
    let first = argument.stream().into_iter().next();
    name == "Box" && matches!(first, Some(TokenTree::Ident(word)) if word == "async")
}

/// Whether the type says that it is a future, boxed or not. What does not say so, a trait bound
/// judges.
fn is_future(output: &Type) -> bool {
    let bounds = match output {
        Type::ImplTrait(opaque) => &opaque.bounds,
        Type::TraitObject(object) => &object.bounds,
        Type::Group(group) => return is_future(&group.elem),
        Type::Paren(paren) => return is_future(&paren.elem),
        Type::Path(path) => {
            let Some(last) = path.path.segments.last() else { return false };
            let PathArguments::AngleBracketed(arguments) = &last.arguments else { return false };
            return (last.ident == "Pin" || last.ident == "Box")
                && matches!(arguments.args.first(), Some(GenericArgument::Type(inner)) if is_future(inner));
        }
        _ => return false,
    };
    bounds.iter().any(|bound| match bound {
        TypeParamBound::Trait(bound) => {
            bound.path.segments.last().is_some_and(|name| name.ident == "Future")
        }
        _ => false,
    })
}

fn contains_all(tokens: &TokenStream, words: &mut Vec<&str>) -> bool {
    for token in tokens.clone() {
        match token {
            TokenTree::Ident(name) => words.retain(|word| name != word),
            TokenTree::Literal(text) => words.retain(|word| text.to_string() != *word),
            TokenTree::Group(group) => {
                contains_all(&group.stream(), words);
            }
            TokenTree::Punct(_) => {}
        }
    }
    words.is_empty()
}

/// Whether distlock can lock functions that are not async.
const BLOCKING: bool = cfg!(feature = "blocking");

const NOT_BLOCKING: &str = "a function that is not async blocks its thread while it waits for the \
                            lock, which needs the feature \"blocking\" of distlock; switch it on, or \
                            write `async fn`";
