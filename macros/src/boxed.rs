//! What `#[async_trait]` makes of an async method:
//!
//! ```text
//! Box::pin(async move { …; let __self = self; let a = a; let __ret: T = { body }; __ret })
//! ```
//!
//! The lock goes around the body, not around the boxing: everything up to the last `let` stays, and
//! only its value is replaced. Other attributes may have wrapped all of that once more.

use proc_macro2::{Delimiter, Group, Ident, Span, TokenStream, TokenTree};
use quote::{ToTokens, quote};
use syn::parse::Parser;
use syn::{Block, Expr, FnArg, Pat, PatType, Signature, Stmt, Type};

use crate::params::{Owned, Params, carried};
use crate::pattern;

/// A boxed method, taken apart.
pub(crate) struct Boxed {
    tokens: TokenStream,
    /// The way to the statements: which token is the next group to open.
    path: Vec<usize>,
    statements: Vec<Stmt>,
    /// Which statement has the body as its value.
    body_at: usize,
    pub(crate) params: Params,
    pub(crate) output: Type,
    pub(crate) body: TokenStream,
    pub(crate) body_span: Span,
}

impl Boxed {
    /// Recognises the shape; `None` for any other.
    pub(crate) fn find(sig: &Signature, body: &TokenStream) -> Option<Self> {
        if !is_boxed(sig) {
            return None;
        }
        let (path, statements, body_at) = locate(body)?;
        let Stmt::Local(local) = &statements[body_at] else { return None };
        let Pat::Type(PatType { ty, .. }) = &local.pat else { return None };
        let Expr::Block(block) = &*local.init.as_ref()?.expr else { return None };
        let stmts = &block.block.stmts;
        Some(Self {
            tokens: body.clone(),
            path,
            body_at,
            params: params(sig, &statements[..body_at]),
            output: (**ty).clone(),
            body: quote!(#(#stmts)*),
            body_span: block.block.brace_token.span.join(),
            statements,
        })
    }

    /// The method's body with `body` in place of the one that was found.
    pub(crate) fn with_body(&self, body: &TokenStream) -> TokenStream {
        let statements =
            self.statements.iter().enumerate().map(|(at, statement)| match statement {
                Stmt::Local(local) if at == self.body_at => {
                    let pat = &local.pat;
                    quote!(let #pat = { #body };)
                }
                other => other.to_token_stream(),
            });
        replace(&self.tokens, &self.path, &quote!(#(#statements)*))
    }
}

/// Whether the signature is one that `#[async_trait]` has made.
pub(crate) fn is_boxed(sig: &Signature) -> bool {
    sig.generics.lifetimes().any(|param| param.lifetime.ident == "async_trait")
}

/// Finds the statements that end in the body, from the outside to the inside.
fn locate(tokens: &TokenStream) -> Option<(Vec<usize>, Vec<Stmt>, usize)> {
    let groups = || {
        tokens.clone().into_iter().enumerate().filter_map(|(at, token)| match token {
            TokenTree::Group(group) => Some((at, group)),
            _ => None,
        })
    };
    let here = groups().filter(|(_, group)| group.delimiter() == Delimiter::Brace).find_map(
        |(at, group)| {
            let statements = Block::parse_within.parse2(group.stream()).ok()?;
            let body_at = body_statement(&statements)?;
            Some((vec![at], statements, body_at))
        },
    );
    here.or_else(|| {
        groups().find_map(|(at, group)| {
            let (mut path, statements, body_at) = locate(&group.stream())?;
            path.insert(0, at);
            Some((path, statements, body_at))
        })
    })
}

/// The tokens with other ones inside the group at `path`.
fn replace(tokens: &TokenStream, path: &[usize], inside: &TokenStream) -> TokenStream {
    let Some((next, rest)) = path.split_first() else { return inside.clone() };
    tokens
        .clone()
        .into_iter()
        .enumerate()
        .map(|(at, token)| match token {
            TokenTree::Group(group) if at == *next => {
                let stream = replace(&group.stream(), rest, inside);
                let mut replaced = Group::new(group.delimiter(), stream);
                replaced.set_span(group.span());
                TokenTree::Group(replaced)
            }
            other => other,
        })
        .collect()
}

/// Finds `let __ret: T = { body };` before a final `__ret`, or `let _: () = { body };` at the end.
fn body_statement(statements: &[Stmt]) -> Option<usize> {
    let (last, others) = statements.split_last()?;
    let (at, name) = match last {
        Stmt::Local(_) => (others.len(), "_"),
        Stmt::Expr(Expr::Path(path), None) if path.path.is_ident("__ret") => {
            (others.len().checked_sub(1)?, "__ret")
        }
        _ => return None,
    };
    let Stmt::Local(local) = &statements[at] else { return None };
    let Pat::Type(PatType { pat, .. }) = &local.pat else { return None };
    let is_block = matches!(local.init.as_ref().map(|init| &*init.expr), Some(Expr::Block(_)));
    (is_block && pat.to_token_stream().to_string() == name).then_some(at)
}

/// What is in scope before the body: what the statements bind, and the parameters that they leave
/// where they are.
fn params(sig: &Signature, statements: &[Stmt]) -> Params {
    let mut params = Params::default();
    for statement in statements {
        let Stmt::Local(local) = statement else { continue };
        for name in pattern::bindings(&local.pat) {
            if name == "__self" {
                params.receiver = Some(name.clone());
            } else if !is_positional(&name) {
                params.names.push(name.clone());
            }
            params.owned.push(Owned { attrs: carried(&local.attrs), name });
        }
    }
    for input in &sig.inputs {
        let FnArg::Typed(param) = input else { continue };
        for name in pattern::bindings(&param.pat) {
            if !is_positional(&name) && !params.names.contains(&name) {
                params.names.push(name);
            }
        }
    }
    params
}

/// `__arg1`: what `#[async_trait]` calls a parameter that has a pattern.
fn is_positional(name: &Ident) -> bool {
    name.to_string().strip_prefix("__arg").is_some_and(|rest| rest.parse::<usize>().is_ok())
}
