//! What a parameter's pattern binds, and what it leaves behind.

use proc_macro2::{Ident, Span};
use syn::visit_mut::{self, VisitMut};
use syn::{FieldPat, Pat, PatIdent, PatWild, Token};

/// Whether the bindings take the whole value. What a pattern leaves (`_`, `..`, behind a `ref`)
/// lives on outside of them, and would be dropped after the lock is released.
pub(crate) fn takes_all(pat: &Pat) -> bool {
    match pat {
        Pat::Ident(name) => name.by_ref.is_none(),
        // Behind a reference nothing is owned.
        Pat::Reference(_) => true,
        Pat::Paren(inner) => takes_all(&inner.pat),
        Pat::Type(inner) => takes_all(&inner.pat),
        Pat::Tuple(tuple) => tuple.elems.iter().all(takes_all),
        Pat::TupleStruct(tuple) => tuple.elems.iter().all(takes_all),
        Pat::Slice(slice) => slice.elems.iter().all(takes_all),
        Pat::Struct(fields) => {
            fields.rest.is_none() && fields.fields.iter().all(|field| takes_all(&field.pat))
        }
        _ => false,
    }
}

/// The names that a pattern binds, in their order.
pub(crate) fn bindings(pat: &Pat) -> Vec<Ident> {
    struct Collect(Vec<Ident>);
    impl VisitMut for Collect {
        fn visit_pat_ident_mut(&mut self, name: &mut PatIdent) {
            // In `A(x) | B(x)` both are one binding.
            if is_binding(name) && !self.0.contains(&name.ident) {
                self.0.push(name.ident.clone());
            }
            visit_mut::visit_pat_ident_mut(self, name);
        }
    }
    let mut collect = Collect(Vec::new());
    collect.visit_pat_mut(&mut pat.clone());
    collect.0
}

/// The pattern to take a value apart in place, binding only what is `used`, by reference; and
/// whether it goes against a reference to the value. Nothing is moved.
pub(crate) fn by_reference(pat: &Pat, used: &dyn Fn(&Ident) -> bool) -> (Pat, bool) {
    // `&` in a pattern and bindings that are references by themselves exclude each other.
    let explicit = has_reference(pat);
    let binding = if explicit { Binding::Ref } else { Binding::Plain };
    (rebound(pat, used, binding), !explicit)
}

/// Whether a name in a pattern is a new variable; a unit struct or a constant looks the same.
fn is_binding(name: &PatIdent) -> bool {
    name.subpat.is_some()
        || !name.ident.to_string().trim_start_matches('_').starts_with(char::is_uppercase)
}

fn has_reference(pat: &Pat) -> bool {
    struct Find(bool);
    impl VisitMut for Find {
        fn visit_pat_reference_mut(&mut self, _: &mut syn::PatReference) {
            self.0 = true;
        }
    }
    let mut find = Find(false);
    find.visit_pat_mut(&mut pat.clone());
    find.0
}

#[derive(Clone, Copy)]
enum Binding {
    Plain,
    Ref,
}

fn rebound(pat: &Pat, used: &dyn Fn(&Ident) -> bool, binding: Binding) -> Pat {
    struct Rebind<'a> {
        used: &'a dyn Fn(&Ident) -> bool,
        binding: Binding,
    }
    impl VisitMut for Rebind<'_> {
        fn visit_pat_mut(&mut self, pat: &mut Pat) {
            if let Pat::Ident(name) = pat
                && name.subpat.is_none()
                && is_binding(name)
                && !(self.used)(&name.ident)
            {
                *pat = Pat::Wild(PatWild {
                    attrs: Vec::new(),
                    underscore_token: Token![_](name.ident.span()),
                });
                return;
            }
            visit_mut::visit_pat_mut(self, pat);
        }

        fn visit_field_pat_mut(&mut self, field: &mut FieldPat) {
            let shorthand = field.colon_token.is_none();
            visit_mut::visit_field_pat_mut(self, field);
            if shorthand && matches!(*field.pat, Pat::Wild(_)) {
                field.colon_token = Some(Token![:](Span::mixed_site()));
            }
        }

        fn visit_pat_ident_mut(&mut self, name: &mut PatIdent) {
            if is_binding(name) {
                name.mutability = None;
                match self.binding {
                    Binding::Plain => name.by_ref = None,
                    Binding::Ref => name.by_ref = Some(Token![ref](name.ident.span())),
                }
            }
            visit_mut::visit_pat_ident_mut(self, name);
        }
    }
    let mut pat = pat.clone();
    Rebind { used, binding }.visit_pat_mut(&mut pat);
    pat
}
