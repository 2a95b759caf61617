//! The options as they are written: name, value, each at most once. Parsing goes on after an error,
//! so that the next one is found as well.

use proc_macro2::{Ident, TokenStream, TokenTree};
use quote::ToTokens;
use syn::ext::IdentExt;
use syn::parse::{ParseStream, Parser};
use syn::{Error, Expr, ExprLit, Lit, Result, Token};

use crate::diagnostics::{Errors, did_you_mean, list};

/// What stands in the brackets of the attribute, in any order.
#[derive(Default)]
pub(crate) struct Args(Vec<Arg>);

/// One `name = value`.
#[derive(Clone)]
pub(crate) struct Arg {
    pub(crate) name: Ident,
    pub(crate) value: Expr,
}

/// The known options, and what a word that people use elsewhere is called here.
pub(crate) struct Known {
    pub(crate) options: &'static [&'static str],
    pub(crate) elsewhere: &'static [(&'static str, &'static str)],
}

impl Args {
    pub(crate) fn parse(tokens: TokenStream, known: &Known, errors: &mut Errors) -> Self {
        let mut args = Self::default();
        let parser = |input: ParseStream<'_>| {
            args.parse_all(input, known, errors);
            Ok(())
        };
        if let Err(error) = parser.parse2(tokens) {
            errors.push(error);
        }
        args
    }

    /// Parses `name = value, …` up to the end of `input`.
    pub(crate) fn parse_all(&mut self, input: ParseStream<'_>, known: &Known, errors: &mut Errors) {
        while !input.is_empty() {
            match parse_arg(input, known) {
                Ok(Parsed::Known(arg)) => self.set_once(arg, errors),
                Ok(Parsed::Unknown(error)) => errors.push(error),
                Err(error) => {
                    errors.push(error);
                    skip_to_next(input);
                }
            }
            if !input.is_empty() && !input.peek(Token![,]) {
                errors.push(input.error("expected a comma and the next option, or the end"));
                skip_to_next(input);
            }
            let _comma: Option<Token![,]> = input.parse().unwrap_or_default();
        }
    }

    fn set_once(&mut self, arg: Arg, errors: &mut Errors) {
        if self.get(&arg.name.to_string()).is_some() {
            errors.at(&arg.name, format!("`{}` is given twice; remove one of them", arg.name));
        } else {
            self.0.push(arg);
        }
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Arg> {
        self.0.iter().find(|arg| arg.name == name)
    }
}

impl Arg {
    /// The literal that the value is, if it is one.
    pub(crate) fn literal(&self) -> Option<&Lit> {
        literal(&self.value)
    }
}

/// Looks through the invisible group that a value from a `macro_rules!` variable stands in.
pub(crate) fn literal(value: &Expr) -> Option<&Lit> {
    match value {
        Expr::Group(group) => literal(&group.expr),
        Expr::Lit(ExprLit { attrs, lit }) if attrs.is_empty() => Some(lit),
        _ => None,
    }
}

enum Parsed {
    Known(Arg),
    Unknown(Error),
}

fn parse_arg(input: ParseStream<'_>, known: &Known) -> Result<Parsed> {
    if !(input.peek(Ident::peek_any) && input.peek2(Token![=]) && !input.peek2(Token![==])) {
        return Err(not_an_option(input, known));
    }
    let name = input.call(Ident::parse_any)?;
    let equals: Token![=] = input.parse()?;
    if input.is_empty() || input.peek(Token![,]) {
        return Err(Error::new_spanned(equals, format!("`{name}` needs a value after the `=`")));
    }
    let value: Expr = input.parse()?;
    if !known.options.iter().any(|option| name == option) {
        return Ok(Parsed::Unknown(unknown(&name, known)));
    }
    Ok(Parsed::Known(Arg { name, value }))
}

fn unknown(name: &Ident, known: &Known) -> Error {
    let word = name.to_string();
    let elsewhere = known.elsewhere.iter().find(|(other, _)| *other == word);
    let meant = match elsewhere {
        Some((_, here)) => format!("; it is called `{here}` here"),
        None => did_you_mean(&word, known.options.iter().copied()),
    };
    let options = list(known.options);
    Error::new_spanned(name, format!("unknown option `{word}`{meant}\nthe options are {options}"))
}

fn not_an_option(input: ParseStream<'_>, known: &Known) -> Error {
    if let Ok(text) = input.fork().parse::<syn::LitStr>() {
        return Error::new_spanned(
            &text,
            format!("options have names: write `key = {}`", text.token()),
        );
    }
    let Ok(name) = input.fork().call(Ident::parse_any) else {
        return input.error("expected an option, as in `wait = \"3s\"`");
    };
    let word = name.to_string();
    if known.options.contains(&word.as_str()) {
        Error::new_spanned(&name, format!("`{word}` needs a value: write `{word} = …`"))
    } else {
        unknown(&name, known)
    }
}

/// Skips what cannot be parsed, up to the comma before the next `name =` or to the end. Commas
/// alone do not end a value: closures and generic arguments have them as well.
fn skip_to_next(input: ParseStream<'_>) {
    while !input.is_empty() {
        let starts_next = |ahead: ParseStream<'_>| {
            let is_name = ahead.peek2(Ident::peek_any) && ahead.peek3(Token![=]);
            is_name || ahead.peek2(syn::parse::End)
        };
        if input.peek(Token![,]) && starts_next(input) {
            return;
        }
        let _skipped: Result<TokenTree> = input.parse();
    }
}

/// Renders tokens for a message.
pub(crate) fn source(tokens: impl ToTokens) -> String {
    tokens.to_token_stream().to_string()
}
