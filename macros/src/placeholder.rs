//! What may stand between the brackets of a template in Rust code: a variable or `self`, then
//! fields, tuple indices, method calls and indexing; or a constant `Self::NAME`.

use std::borrow::Cow;

use distlock_template::{Placeholder, Template, TemplateError};
use proc_macro2::{Group, Ident, Span, TokenStream, TokenTree};
use quote::{ToTokens, quote};
use syn::{Expr, ExprPath, LitStr, PathArguments};

use crate::diagnostics::{did_you_mean, list};

/// The names that placeholders may use.
pub(crate) enum Scope<'a> {
    /// Those of a function: its bindings, and its `self` if it has one.
    Function { names: &'a [Ident], receiver: Option<&'a Ident> },
    /// Whatever the compiler finds where the literal stands.
    Open { receiver: Option<&'a Ident> },
}

/// Turns a placeholder of `literal`, whose text is `template`, into an expression.
pub(crate) fn expand(
    placeholder: &Placeholder<'_>,
    template: &str,
    literal: &LitStr,
    scope: &Scope<'_>,
) -> Result<TokenStream, TemplateError> {
    let refuse = |(message, remedy): Refusal| {
        TemplateError::new(template, placeholder.span(), message, remedy)
    };
    let expr: Expr = syn::parse_str(&scope.spelling(placeholder.text()))
        .map_err(|_error| refuse(not_a_value(placeholder.text(), scope)))?;
    check(&expr, placeholder.text(), scope).map_err(refuse)?;
    Ok(scope.resolve(expr.into_token_stream(), literal.span()))
}

/// What is wrong, and what to write.
type Refusal = (String, String);

fn check(expr: &Expr, written: &str, scope: &Scope<'_>) -> Result<(), Refusal> {
    match expr {
        Expr::Path(path) if path.attrs.is_empty() && path.qself.is_none() => {
            check_path(path, written, scope)
        }
        Expr::Field(field) => check(&field.base, written, scope),
        Expr::MethodCall(call) => check(&call.receiver, written, scope),
        Expr::Index(index) => check(&index.expr, written, scope),
        Expr::Paren(paren) => check(&paren.expr, written, scope),
        _ => Err(not_a_value(written, scope)),
    }
}

fn check_path(path: &ExprPath, written: &str, scope: &Scope<'_>) -> Result<(), Refusal> {
    let path = &path.path;
    let plain =
        path.segments.iter().all(|segment| matches!(segment.arguments, PathArguments::None));
    let Scope::Function { names, receiver } = scope else {
        return if plain { Ok(()) } else { Err(not_a_value(written, scope)) };
    };
    if let Some(name) = path.get_ident() {
        if name == "self" {
            return match receiver {
                Some(_) => Ok(()),
                None => Err((
                    String::from("there is no `self` here: the function has no receiver"),
                    parameters(names),
                )),
            };
        }
        return if names.contains(name) { Ok(()) } else { Err(unknown_name(name, names)) };
    }
    let is_constant = path.leading_colon.is_none()
        && path.segments.len() == 2
        && path.segments[0].ident == "Self";
    if plain && is_constant { Ok(()) } else { Err(not_a_value(written, scope)) }
}

fn unknown_name(name: &Ident, names: &[Ident]) -> Refusal {
    let written = name.to_string();
    let known: Vec<String> = names.iter().map(ToString::to_string).collect();
    let meant = did_you_mean(&written, known.iter().map(String::as_str));
    let constant = if written.chars().any(char::is_lowercase) {
        String::new()
    } else {
        format!("; a constant is written `<Self::{written}>`")
    };
    let message = format!("no parameter is named `{written}`{meant}");
    (message, format!("{}{constant}", parameters(names)))
}

fn parameters(names: &[Ident]) -> String {
    match names {
        [] => String::from("the function has no named parameters"),
        [one] => format!("the only parameter is `{one}`"),
        all => format!("the parameters are {}", list(all)),
    }
}

fn not_a_value(written: &str, scope: &Scope<'_>) -> Refusal {
    let what = match scope {
        Scope::Function { .. } => "a parameter",
        Scope::Open { .. } => "a variable",
    };
    let layer = ["header:", "query:"].iter().any(|source| written.starts_with(source))
        || written.contains(" as ");
    if layer {
        return (
            format!("`<{written}>` is for routes, where a template is filled in from the request"),
            format!("name {what} here, as in `<sku_id>`"),
        );
    }
    (
        format!("`{written}` is not {what} with its fields and method calls"),
        format!(
            "write {what}, as in `<sku_id>`, `<order.id>`, `<pair.0>` or `<name.as_str()>`; for \
             anything else write `key = {{ let part = …; lock_key!(\"…:<part>\") }}`"
        ),
    )
}

impl Scope<'_> {
    /// A parameter `r#type` is `<type>` in a template as well.
    fn spelling<'t>(&self, written: &'t str) -> Cow<'t, str> {
        let raw = format!("r#{written}");
        match self {
            Scope::Function { names, .. } if names.iter().any(|name| *name == raw) => raw.into(),
            Scope::Function { .. } | Scope::Open { .. } => written.into(),
        }
    }

    /// Makes the names mean the bindings, even where a `macro_rules!` supplies the literal, and
    /// lets every error point at the literal.
    fn resolve(&self, tokens: TokenStream, literal: Span) -> TokenStream {
        // After `.` and `::` stands a member; after `..` a name again.
        let mut before = String::new();
        tokens
            .into_iter()
            .map(|mut token| {
                let is_name = before != "." && before != "::";
                match &token {
                    TokenTree::Punct(mark) if before.len() < 2 => before.push(mark.as_char()),
                    _ => before.clear(),
                }
                match &mut token {
                    TokenTree::Ident(name) if is_name => *name = self.resolve_name(name, literal),
                    TokenTree::Group(group) => {
                        let inner = self.resolve(group.stream(), literal);
                        *group = Group::new(group.delimiter(), inner);
                        group.set_span(generated_at(literal));
                    }
                    other => other.set_span(generated_at(literal)),
                }
                token
            })
            .collect()
    }

    fn resolve_name(&self, name: &Ident, literal: Span) -> Ident {
        let binding = match self {
            Scope::Function { receiver, .. } | Scope::Open { receiver } if name == "self" => {
                *receiver
            }
            Scope::Function { names, .. } => names.iter().find(|binding| *binding == name),
            Scope::Open { .. } => None,
        };
        match binding {
            Some(binding) => {
                let mut name = binding.clone();
                name.set_span(literal.resolved_at(binding.span()));
                name
            }
            None => {
                let mut name = name.clone();
                name.set_span(literal);
                name
            }
        }
    }
}

/// Where `literal` stands, but code of the macro's own: no lint of the user's applies to it.
pub(crate) fn generated_at(literal: Span) -> Span {
    Span::mixed_site().located_at(literal)
}

/// Finds text that is literal for us but was probably meant as a placeholder: `{sku_id}` and
/// `#{sku_id}` mean the parameter in other libraries.
pub(crate) fn mistaken_for_text(
    template: &str,
    parsed: &Template<'_>,
    names: &[Ident],
) -> Option<TemplateError> {
    let is_text = |at: usize| parsed.placeholders().all(|part| !part.span().contains(&at));
    names.iter().find_map(|name| {
        ["${", "#{", "{"].iter().find_map(|open| {
            let written = format!("{open}{name}}}");
            let at = template.match_indices(&written).map(|(at, _)| at).find(|at| is_text(*at))?;
            Some(TemplateError::new(
                template,
                at..at + written.len(),
                format!("`{written}` is literal text, so every call would share one lock"),
                format!(
                    "write `<{name}>` for the value of `{name}`, or `{{<{name}>}}` for a Redis \
                     Cluster hash tag around it"
                ),
            ))
        })
    })
}

/// `&value`, at the literal.
pub(crate) fn reference(value: &TokenStream, literal: Span) -> TokenStream {
    let and = syn::Token![&](generated_at(literal));
    quote!(#and #value)
}
