//! Percent-decoding, once.

use std::borrow::Cow;

/// What is not UTF-8 once it is decoded.
#[derive(Debug)]
pub(crate) struct NotUtf8;

/// Decodes a field of a query: `%20` and `+` are blanks.
pub(crate) fn field(text: &str) -> Result<Cow<'_, str>, NotUtf8> {
    decode(text, |byte| if byte == b'+' { b' ' } else { byte }, |_| true)
}

/// Decodes a path. What would be taken for a separator of its segments, or for an encoded byte, stays
/// encoded, so that different paths stay different.
pub(crate) fn path(text: &str) -> Result<Cow<'_, str>, NotUtf8> {
    decode(text, |byte| byte, |byte| !matches!(byte, b'/' | b'%'))
}

/// `plain` maps the bytes that are not encoded; `decodes` tells which encoded ones are decoded.
fn decode(
    text: &str,
    plain: impl Fn(u8) -> u8,
    decodes: impl Fn(u8) -> bool,
) -> Result<Cow<'_, str>, NotUtf8> {
    if !text.bytes().any(|byte| byte == b'%' || plain(byte) != byte) {
        return Ok(Cow::Borrowed(text));
    }
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        let encoded = match after {
            [high, low, ..] if byte == b'%' => hex(*high).zip(hex(*low)),
            _ => None,
        };
        match encoded.map(|(high, low)| high << 4 | low) {
            Some(value) if decodes(value) => {
                decoded.push(value);
                rest = &after[2..];
            }
            Some(_) => {
                // In one spelling: %2f is %2F.
                decoded.push(b'%');
                decoded.extend(after[..2].to_ascii_uppercase());
                rest = &after[2..];
            }
            None => decoded.push(plain(byte)),
        }
    }
    String::from_utf8(decoded).map(Cow::Owned).map_err(|_| NotUtf8)
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_decoded_once() {
        let field = |text| field(text).map(Cow::into_owned).ok();
        assert_eq!(field("a").as_deref(), Some("a"));
        assert_eq!(field("a+b%20c%2Bd").as_deref(), Some("a b c+d"));
        assert_eq!(field("%2541%C3%BC").as_deref(), Some("%41ü"));
        assert_eq!(field("100%,%4,%zz").as_deref(), Some("100%,%4,%zz"));
        assert_eq!(field("%ff"), None);
    }

    #[test]
    fn spellings_of_a_path_are_one_and_different_paths_are_not() {
        let path = |text| path(text).map(Cow::into_owned).ok();
        assert_eq!(path("/%61/b").as_deref(), Some("/a/b"));
        assert_eq!(path("/a%2fb").as_deref(), Some("/a%2Fb"));
        assert_eq!(path("/a%252Fb").as_deref(), Some("/a%252Fb"));
        assert_eq!(path("/a+b").as_deref(), Some("/a+b"));
    }
}
