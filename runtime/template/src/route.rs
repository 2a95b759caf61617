//! What a placeholder means in a template for routes: a part of the request.
//!
//! Decides which parts there are and as what type a part is read. Reading a request, and writing the
//! value, is left to the layer.

use crate::grammar::{Placeholder, TemplateError};
use crate::suggest::nearest;

/// A part of a request, and as what it is read.
///
/// ```
/// use distlock_template::{RoutePart, RouteSource, Template, ValueType};
///
/// let template = "stock:lock:<sku_id as u64>";
/// let parsed = Template::parse(template)?;
/// let placeholder = parsed.placeholders().next().expect("there is one");
///
/// let part = RoutePart::parse(template, placeholder)?;
/// assert_eq!(part.source, RouteSource::Parameter("sku_id"));
/// assert_eq!(part.value_type, ValueType::Unsigned { bits: 64 });
/// # Ok::<(), distlock_template::TemplateError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
// Exhaustive, as the enums below: whoever fills a template in has to handle all there is.
pub struct RoutePart<'t> {
    /// Where the value comes from.
    pub source: RouteSource<'t>,
    /// What it must be, so that each value has one spelling.
    pub value_type: ValueType,
}

/// Where in a request a value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteSource<'t> {
    /// `<header:x-tenant>`
    Header(&'t str),
    /// `<method>`
    Method,
    /// `<sku_id>`: a parameter of the route's path.
    Parameter(&'t str),
    /// `<path>`: the whole path.
    Path,
    /// `<query:page>`
    Query(&'t str),
}

/// As what a value is read; then it is written again, so that `7`, `007` and `+7` are one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueType {
    /// `i8` to `i128`, `isize`
    Signed {
        /// How many bits it has.
        bits: u32,
    },
    /// `str`, or no type: the text as it is.
    Text,
    /// `u8` to `u128`, `usize`
    Unsigned {
        /// How many bits it has.
        bits: u32,
    },
    /// `uuid`, in any of its spellings.
    Uuid,
}

impl<'t> RoutePart<'t> {
    /// Reads a placeholder of `template`.
    ///
    /// # Errors
    ///
    /// It names no part of a request, or no known type. The text says what to write.
    pub fn parse(template: &str, placeholder: &Placeholder<'t>) -> Result<Self, TemplateError> {
        read(placeholder.text()).map_err(|(message, remedy)| {
            TemplateError::new(template, placeholder.span(), message, remedy)
        })
    }
}

/// What is wrong, and what to write.
type Refusal = (String, String);

fn read(text: &str) -> Result<RoutePart<'_>, Refusal> {
    let (part, value_type) = match split_type(text) {
        (part, Some(name)) => (part, find_type(part, name)?),
        (part, None) => (part, ValueType::Text),
    };
    let source = match part.split_once(':') {
        Some(("header", name)) => RouteSource::Header(header_name(name.trim())?),
        Some(("query", name)) if !name.trim().is_empty() => RouteSource::Query(name.trim()),
        Some(("query", _)) => {
            return Err(("`<query:>` names no field".into(), "as in `<query:page>`".into()));
        }
        Some((kind, name)) => return Err(unknown_kind(kind.trim(), name.trim())),
        None if part == "method" => RouteSource::Method,
        None if part == "path" => RouteSource::Path,
        None if is_name(part) => RouteSource::Parameter(part),
        None => return Err(no_part(part)),
    };
    let is_whole = matches!(source, RouteSource::Method | RouteSource::Path);
    if is_whole && value_type != ValueType::Text {
        return Err((format!("`{part}` is a text"), format!("write `<{part}>` without a type")));
    }
    Ok(RoutePart { source, value_type })
}

/// Takes the text of a placeholder apart: `sku_id` and `u64` of `sku_id as u64`.
///
/// ```
/// assert_eq!(distlock_template::split_type("sku_id as u64"), ("sku_id", Some("u64")));
/// assert_eq!(distlock_template::split_type("sku_id"), ("sku_id", None));
/// ```
#[must_use]
pub fn split_type(text: &str) -> (&str, Option<&str>) {
    let typed = text.rsplit_once(char::is_whitespace).and_then(|(rest, name)| {
        let part = rest.trim_end().strip_suffix("as")?;
        part.ends_with(char::is_whitespace).then(|| (part.trim_end(), Some(name)))
    });
    typed.unwrap_or((text, None))
}

fn find_type(part: &str, name: &str) -> Result<ValueType, Refusal> {
    if let Some((_, value_type)) = TYPES.iter().find(|(known, _)| *known == name) {
        return Ok(*value_type);
    }
    let meant = match name {
        "String" | "&str" | "string" | "text" => Some("str"),
        "int" | "integer" | "number" => Some("u64"),
        _ => nearest(name, TYPES.iter().map(|(known, _)| *known)),
    };
    let meant =
        meant.map_or_else(String::new, |meant| format!("did you mean `<{part} as {meant}>`? "));
    Err((
        format!("`{name}` is no type that a part of a request can be read as"),
        format!("{meant}there are i8 to i128, u8 to u128, isize, usize, uuid and str"),
    ))
}

fn header_name(name: &str) -> Result<&str, Refusal> {
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if !name.is_empty() && name.bytes().all(is_token) {
        return Ok(name);
    }
    Err((format!("`{name}` is no name of a header"), "as in `<header:x-tenant>`".into()))
}

fn is_name(part: &str) -> bool {
    part.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '-'))
}

fn unknown_kind(kind: &str, name: &str) -> Refusal {
    let remedy = nearest(kind, ["header", "query"])
        .map_or_else(|| PARTS.to_owned(), |meant| format!("did you mean `<{meant}:{name}>`?"));
    (format!("`{kind}:` is no part of a request"), remedy)
}

fn no_part(part: &str) -> Refusal {
    (
        format!("`{part}` is no part of a request: a route knows no variables of the handler"),
        format!("{PARTS}; for anything else give the layer a function"),
    )
}

const PARTS: &str = "write a parameter of the path with its type, as in `<sku_id as u64>`, or \
                     `<header:x-tenant>`, `<query:page>`, `<method>`, `<path>`";

const TYPES: &[(&str, ValueType)] = &[
    ("i8", ValueType::Signed { bits: 8 }),
    ("i16", ValueType::Signed { bits: 16 }),
    ("i32", ValueType::Signed { bits: 32 }),
    ("i64", ValueType::Signed { bits: 64 }),
    ("i128", ValueType::Signed { bits: 128 }),
    ("isize", ValueType::Signed { bits: isize::BITS }),
    ("u8", ValueType::Unsigned { bits: 8 }),
    ("u16", ValueType::Unsigned { bits: 16 }),
    ("u32", ValueType::Unsigned { bits: 32 }),
    ("u64", ValueType::Unsigned { bits: 64 }),
    ("u128", ValueType::Unsigned { bits: 128 }),
    ("usize", ValueType::Unsigned { bits: usize::BITS }),
    ("str", ValueType::Text),
    ("uuid", ValueType::Uuid),
];
