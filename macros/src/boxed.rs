//! What `#[async_trait]` makes of an async method:
//!
//! ```text
//! Box::pin(async move { …; let __self = self; let a = a; let __ret: T = { body }; __ret })
//! ```
//!
//! The lock goes around the body, not around the boxing: everything up to the last `let` stays, and
//! only its value is replaced.

use proc_macro2::{Delimiter, Group, Ident, Span, TokenStream, TokenTree};
use quote::{ToTokens, quote};
use syn::parse::Parser;
use syn::{Block, Expr, FnArg, Pat, PatType, Signature, Stmt, Type};

use crate::params::{Owned, Params, carried};
use crate::pattern;

/// A boxed method, taken apart.
pub(crate) struct Boxed {
    /// Up to the group that holds the statements.
    before: TokenStream,
    boxed: Group,
    future_head: TokenStream,
    statements: Vec<Stmt>,
    future_span: Span,
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
        let mut before: Vec<TokenTree> = body.clone().into_iter().collect();
        let boxed = pop_group(&mut before, Delimiter::Parenthesis)?;
        if !ends_with(&before, "Box :: pin") {
            return None;
        }
        let mut future_head: Vec<TokenTree> = boxed.stream().into_iter().collect();
        let future = pop_group(&mut future_head, Delimiter::Brace)?;
        if !ends_with(&future_head, "async move") || future_head.len() != 2 {
            return None;
        }
        let statements = Block::parse_within.parse2(future.stream()).ok()?;
        let body_at = body_statement(&statements)?;
        let Stmt::Local(local) = &statements[body_at] else { return None };
        let Pat::Type(PatType { ty, .. }) = &local.pat else { return None };
        let Expr::Block(block) = &*local.init.as_ref()?.expr else { return None };
        let stmts = &block.block.stmts;
        let body = quote!(#(#stmts)*);
        let body_span = block.block.brace_token.span.join();
        let output = (**ty).clone();
        let params = params(sig, &statements[..body_at]);
        Some(Self {
            before: before.into_iter().collect(),
            future_head: future_head.into_iter().collect(),
            future_span: future.span(),
            boxed,
            body_at,
            params,
            output,
            body,
            body_span,
            statements,
        })
    }

    /// The method's body with `body` in place of the one that was found.
    pub(crate) fn with_body(&self, body: &TokenStream) -> TokenStream {
        let statements = self.statements.iter().enumerate().map(|(at, statement)| {
            let Stmt::Local(local) = statement else { return statement.to_token_stream() };
            if at != self.body_at {
                return statement.to_token_stream();
            }
            let pat = &local.pat;
            quote!(let #pat = { #body };)
        });
        let mut future = Group::new(Delimiter::Brace, quote!(#(#statements)*));
        future.set_span(self.future_span);
        let head = &self.future_head;
        let mut boxed = Group::new(self.boxed.delimiter(), quote!(#head #future));
        boxed.set_span(self.boxed.span());
        let before = &self.before;
        quote!(#before #boxed)
    }
}

fn pop_group(tokens: &mut Vec<TokenTree>, delimiter: Delimiter) -> Option<Group> {
    match tokens.pop()? {
        TokenTree::Group(group) if group.delimiter() == delimiter => Some(group),
        _ => None,
    }
}

fn ends_with(tokens: &[TokenTree], words: &str) -> bool {
    let tokens: TokenStream = tokens.iter().cloned().collect();
    tokens.to_string().replace(' ', "").ends_with(&words.replace(' ', ""))
}

/// Finds `let __ret: T = { body };` before a final `__ret`, or `let _: () = { body };` at the end.
fn body_statement(statements: &[Stmt]) -> Option<usize> {
    let (last, others) = statements.split_last()?;
    let at = match last {
        Stmt::Local(_) => others.len(),
        Stmt::Expr(Expr::Path(path), None) => {
            let returned = path.path.get_ident()?;
            let Some(Stmt::Local(local)) = others.last() else { return None };
            let Pat::Type(PatType { pat, .. }) = &local.pat else { return None };
            let Pat::Ident(name) = &**pat else { return None };
            if name.ident != *returned {
                return None;
            }
            others.len() - 1
        }
        _ => return None,
    };
    Some(at)
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
