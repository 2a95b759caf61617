//! The parameters of a function: which names they bind, and how all of them get into the inner
//! block, used there or not. What stays outside of it would be dropped after the release.

use std::collections::HashSet;

use proc_macro2::{Ident, Span, TokenStream, TokenTree};
use quote::{quote, quote_spanned};
use syn::parse::Parser;
use syn::spanned::Spanned;
use syn::{Attribute, FnArg, Pat, PatIdent, ReceiverKind, Signature, Type};

use crate::pattern;

/// What the signature brings into scope.
#[derive(Default)]
pub(crate) struct Params {
    /// Everything that a placeholder may name.
    pub(crate) names: Vec<Ident>,
    pub(crate) receiver: Option<Ident>,
    /// Those of the names that are still there when the inner block has them: shared references.
    pub(crate) shared: Vec<Ident>,
    /// What the inner block has to take in, in order of declaration.
    pub(crate) owned: Vec<Owned>,
    /// Parameters that the signature now gives a name of ours.
    opened: Vec<Opened>,
    /// Those that another lock on the same function gave such a name; its body opens them.
    opened_inside: Vec<Opened>,
}

/// A variable that may own something.
pub(crate) struct Owned {
    pub(crate) attrs: Vec<Attribute>,
    pub(crate) name: Ident,
}

struct Opened {
    attrs: Vec<Attribute>,
    argument: Ident,
    pat: Pat,
}

impl Params {
    /// Reads the parameters. Those whose pattern leaves part of the value behind are renamed in
    /// the signature; all else stays as it is.
    pub(crate) fn take(sig: &mut Signature, body: &TokenStream) -> Self {
        let mut params = Self::default();
        params.names.extend(sig.generics.const_params().map(|param| param.ident.clone()));
        for (index, input) in sig.inputs.iter_mut().enumerate() {
            match input {
                FnArg::Receiver(receiver) => {
                    let name: Ident = receiver.self_token.into();
                    match receiver.kind {
                        ReceiverKind::Reference(_, _, None) => params.shared.push(name.clone()),
                        ReceiverKind::Reference(_, _, Some(_)) => {}
                        _ => params.owned.push(Owned { attrs: Vec::new(), name: name.clone() }),
                    }
                    params.receiver = Some(name);
                }
                FnArg::Typed(param) => {
                    let attrs = carried(&param.attrs);
                    let argument = argument(index, param.pat.span());
                    match opened_by_another(&param.pat, &argument, body) {
                        None => params.names.extend(pattern::bindings(&param.pat)),
                        Some(pat) => {
                            params.names.extend(pattern::bindings(&pat));
                            let argument = pattern::bindings(&param.pat).remove(0);
                            params.opened_inside.push(Opened {
                                attrs: attrs.clone(),
                                argument,
                                pat,
                            });
                        }
                    }
                    if !pattern::takes_all(&param.pat) {
                        let pat = std::mem::replace(&mut *param.pat, name_pattern(&argument));
                        params.owned.push(Owned { attrs: attrs.clone(), name: argument.clone() });
                        params.opened.push(Opened { attrs, argument, pat });
                        continue;
                    }
                    let bindings = pattern::bindings(&param.pat).into_iter();
                    match &*param.ty {
                        Type::Reference(ty) if ty.mutability.is_some() => {}
                        Type::Reference(_) => params.shared.extend(bindings),
                        _ => params
                            .owned
                            .extend(bindings.map(|name| Owned { attrs: attrs.clone(), name })),
                    }
                }
            }
        }
        params
    }

    /// The first statements of the inner block.
    pub(crate) fn hold(&self, used: &Words) -> TokenStream {
        // Captured variables are dropped in the order in which they are first named, parameters in
        // the reverse of their declaration.
        let captures = self.owned.iter().rev().map(|Owned { attrs, name }| {
            let span = Span::mixed_site().located_at(name.span());
            let allow = is_underscored(name).then(allow_underscored);
            quote_spanned!(span=> #(#attrs)* #allow let _ = &#name;)
        });
        let opened = self.opened.iter().filter(|opened| !matches!(opened.pat, Pat::Wild(_)));
        let opened =
            opened.map(|Opened { attrs, argument, pat }| quote!(#(#attrs)* let #pat = #argument;));
        // Being captured counts as a use; the compiler should still be able to say "unused".
        let unused = self.owned.iter().filter(|Owned { name, .. }| {
            *name != "self" && !is_underscored(name) && !used.contain(&name.to_string())
        });
        let unused = unused.map(|Owned { attrs, name }| quote!({ #(#attrs)* let #name = 0_u8; }));
        quote!(#(#captures)* #(#opened)* #(#unused)*)
    }

    /// Whether the inner block has variables that are parameters elsewhere.
    pub(crate) fn opens_any(&self) -> bool {
        self.opened.iter().any(|opened| !matches!(opened.pat, Pat::Wild(_)))
    }

    /// A name that `used` names and that only a pattern brings into the inner block.
    pub(crate) fn opened_in(&self, used: &Words) -> Option<Ident> {
        let mut names = self.all_opened().flat_map(|opened| pattern::bindings(&opened.pat));
        names.find(|name| used.name(&name.to_string()))
    }

    fn all_opened(&self) -> impl Iterator<Item = &Opened> {
        self.opened.iter().chain(&self.opened_inside)
    }

    /// What a statement of ours needs to be attributed with to use what `used` names.
    pub(crate) fn allow(&self, used: &Words) -> Option<TokenStream> {
        let mut names = self.names.iter().filter(|name| is_underscored(name));
        names.any(|name| used.contain(&name.to_string())).then(allow_underscored)
    }

    /// Statements that make what `used` names visible outside of the inner block, by reference.
    pub(crate) fn peek(&self, used: &Words) -> TokenStream {
        let uses = |name: &Ident| used.contain(&name.to_string());
        self.all_opened()
            .filter(|opened| pattern::bindings(&opened.pat).iter().any(uses))
            .map(|Opened { attrs, argument, pat }| {
                let allow = used.allow_unused(&pattern::bindings(pat));
                let (pat, of_reference) = pattern::by_reference(pat, &uses);
                let and = of_reference.then(|| quote!(&));
                quote!(#(#attrs)* #allow let #pat = #and #argument;)
            })
            .collect()
    }
}

/// The name that a parameter gets whose pattern is opened in the inner block.
fn argument(index: usize, at: Span) -> Ident {
    Ident::new(&format!("__arg{index}"), Span::mixed_site().located_at(at))
}

/// Finds the pattern that `pat` had before another lock on this function made it `argument`: as
/// `let PATTERN = argument;` in the body.
fn opened_by_another(pat: &Pat, argument: &Ident, body: &TokenStream) -> Option<Pat> {
    let Pat::Ident(name) = pat else { return None };
    if name.ident != *argument {
        return None;
    }
    let tokens: Vec<TokenTree> = body.clone().into_iter().collect();
    let is = |at: usize, word: &str| tokens.get(at).is_some_and(|token| token.to_string() == word);
    let here = (0..tokens.len()).filter(|start| is(*start, "let")).find_map(|start| {
        let end = (start + 1..tokens.len()).find(|at| is(*at, "=") || is(*at, ";"))?;
        let found = is(end, "=") && is(end + 1, &argument.to_string()) && is(end + 2, ";");
        let pattern: TokenStream = tokens[start + 1..end].iter().cloned().collect();
        found.then(|| Pat::parse_single.parse2(pattern).ok())?
    });
    here.or_else(|| {
        tokens.iter().find_map(|token| match token {
            TokenTree::Group(group) => opened_by_another(pat, argument, &group.stream()),
            _ => None,
        })
    })
}

/// Whether the name says that the variable is unused.
fn is_underscored(name: &Ident) -> bool {
    name.to_string().starts_with('_')
}

/// For code of ours that uses a variable all the same.
fn allow_underscored() -> TokenStream {
    quote!(#[allow(clippy::used_underscore_binding)])
}

/// The attributes of a parameter that its variables keep.
pub(crate) fn carried(attrs: &[Attribute]) -> Vec<Attribute> {
    let keeps = |attr: &&Attribute| {
        ["cfg", "allow", "warn", "deny"].iter().any(|name| attr.path().is_ident(name))
    };
    attrs.iter().filter(keeps).cloned().collect()
}

fn name_pattern(name: &Ident) -> Pat {
    Pat::Ident(PatIdent {
        attrs: Vec::new(),
        by_ref: None,
        mutability: None,
        ident: name.clone(),
        subpat: None,
    })
}

/// The words in some code: its identifiers, and its literals, since a format string names
/// variables as well.
#[derive(Default)]
pub(crate) struct Words {
    identifiers: HashSet<String>,
    literals: String,
}

impl Words {
    pub(crate) fn of(tokens: TokenStream) -> Self {
        let mut words = Self::default();
        words.add(tokens);
        words
    }

    pub(crate) fn add(&mut self, tokens: TokenStream) {
        for token in tokens {
            match token {
                TokenTree::Group(group) => self.add(group.stream()),
                TokenTree::Ident(name) => {
                    self.identifiers.insert(name.to_string());
                }
                TokenTree::Literal(literal) => self.literals.push_str(&literal.to_string()),
                TokenTree::Punct(_) => {}
            }
        }
    }

    pub(crate) fn contain(&self, name: &str) -> bool {
        let part_of_word = |c: char| c.is_alphanumeric() || c == '_';
        self.identifiers.contains(name)
            || self.literals.split(|c| !part_of_word(c)).any(|word| word == name)
    }

    /// Whether the code names the variable, as far as that can be told without doubt.
    fn name(&self, name: &str) -> bool {
        let in_format = |end| self.literals.contains(&format!("{{{name}{end}"));
        self.identifiers.contains(name) || in_format("}") || in_format(":")
    }

    /// For code that uses some of `names`, if that is only guessed from a literal.
    fn allow_unused(&self, names: &[Ident]) -> Option<TokenStream> {
        let guessed = |name: &Ident| {
            let name = name.to_string();
            !self.identifiers.contains(&name) && self.contain(&name)
        };
        names.iter().any(guessed).then(|| quote!(#[allow(unused_variables)]))
    }
}
