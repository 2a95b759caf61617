//! The options as they are written: name, value, each at most once. Parsing goes on after an error,
//! so that the next one is found as well.

use proc_macro2::{Group, Ident, TokenStream, TokenTree};
use quote::{ToTokens, quote};
use syn::ext::IdentExt;
use syn::parse::{ParseStream, Parser};
use syn::{Error, Expr, ExprLit, Lit, Result, Token};

use crate::diagnostics::{Errors, did_you_mean, list};

/// What stands in the brackets of the attribute, in any order.
#[derive(Default)]
pub(crate) struct Args {
    all: Vec<Arg>,
    /// Names whose value could not be read. They are there all the same.
    faulty: Vec<String>,
}

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
                Parsed::Known(arg) => self.set_once(arg, errors),
                Parsed::Unknown(error) => errors.push(error),
                Parsed::Faulty(name, error) => {
                    self.faulty.push(name);
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
            self.all.push(arg);
        }
    }

    /// The same options for a place where `self` is called `receiver`.
    pub(crate) fn with_receiver(mut self, receiver: &Ident) -> Self {
        for arg in &mut self.all {
            let renamed = rename_self(arg.value.to_token_stream(), receiver);
            // What was an expression is one with another name in it, too.
            if let Ok(value) = syn::parse2(renamed) {
                arg.value = value;
            }
        }
        self
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Arg> {
        self.all.iter().find(|arg| arg.name == name)
    }

    /// Whether the option was written, be it with a mistake.
    pub(crate) fn mention(&self, name: &str) -> bool {
        self.get(name).is_some() || self.faulty.iter().any(|faulty| faulty == name)
    }
}

impl Arg {
    /// The literal that the value is, if it is one.
    pub(crate) fn literal(&self) -> Option<&Lit> {
        literal(&self.value)
    }
}

/// Renames `self`; `lock_key!`, whose literal may name it, is told the name.
fn rename_self(tokens: TokenStream, receiver: &Ident) -> TokenStream {
    let mut before = [String::new(), String::new()];
    let rename = |token: TokenTree| {
        let word = token.to_string();
        let in_lock_key = before == ["lock_key", "!"];
        before.swap(0, 1);
        before[1] = word;
        match token {
            TokenTree::Ident(name) if name == "self" => TokenTree::Ident(receiver.clone()),
            TokenTree::Group(group) => {
                let stream = rename_self(group.stream(), receiver);
                let stream = if in_lock_key { quote!(self = #receiver, #stream) } else { stream };
                let mut renamed = Group::new(group.delimiter(), stream);
                renamed.set_span(group.span());
                TokenTree::Group(renamed)
            }
            other => other,
        }
    };
    tokens.into_iter().map(rename).collect()
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
    /// With the name that was meant.
    Faulty(String, Error),
    Unknown(Error),
}

fn parse_arg(input: ParseStream<'_>, known: &Known) -> Parsed {
    if !(input.peek(Ident::peek_any) && input.peek2(Token![=]) && !input.peek2(Token![==])) {
        return not_an_option(input, known);
    }
    let word = input.fork().call(Ident::parse_any).map(|name| name.to_string());
    match parse_pair(input) {
        Ok(arg) if known.options.iter().any(|option| arg.name == option) => Parsed::Known(arg),
        Ok(arg) => Parsed::Unknown(unknown(&arg.name, known)),
        Err(error) => Parsed::Faulty(word.unwrap_or_default(), error),
    }
}

fn parse_pair(input: ParseStream<'_>) -> Result<Arg> {
    let name = input.call(Ident::parse_any)?;
    let equals: Token![=] = input.parse()?;
    if input.is_empty() || input.peek(Token![,]) {
        return Err(Error::new_spanned(equals, format!("`{name}` needs a value after the `=`")));
    }
    Ok(Arg { name, value: input.parse()? })
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

fn not_an_option(input: ParseStream<'_>, known: &Known) -> Parsed {
    if let Ok(text) = input.fork().parse::<syn::LitStr>() {
        let message = format!("options have names: write `key = {}`", text.token());
        return Parsed::Faulty(String::from("key"), Error::new_spanned(&text, message));
    }
    let Ok(name) = input.fork().call(Ident::parse_any) else {
        let error = input.error("expected an option, as in `wait = \"3s\"`");
        return Parsed::Faulty(String::new(), error);
    };
    let word = name.to_string();
    let error = if known.options.contains(&word.as_str()) {
        Error::new_spanned(&name, format!("`{word}` needs a value: write `{word} = …`"))
    } else {
        unknown(&name, known)
    };
    Parsed::Faulty(word, error)
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
