//! Answers to HTTP requests: `application/problem+json` (RFC 9457).

use std::fmt::Write;

use bytes::Bytes;
use http::Response;
use http::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER};

use super::meaning::Meaning;
use super::rejection::Rejection;

pub(crate) fn response(rejection: &Rejection, meaning: &Meaning) -> Response<Bytes> {
    let mut response = Response::new(Bytes::from(document(rejection, meaning)));
    *response.status_mut() = meaning.status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    if let Some(delay) = rejection.retry_after() {
        // Whole seconds, and never zero: that would ask for a busy loop.
        let seconds = delay.as_secs() + u64::from(delay.subsec_nanos() > 0);
        headers.insert(RETRY_AFTER, HeaderValue::from(seconds.max(1)));
    }
    response
}

fn document(rejection: &Rejection, meaning: &Meaning) -> String {
    let mut json = String::with_capacity(256);
    json.push_str("{\"type\":");
    string(&mut json, &[TYPE, meaning.name]);
    json.push_str(",\"title\":");
    string(&mut json, &[meaning.title]);
    // Writing to a String cannot fail.
    let _ = write!(json, ",\"status\":{}", meaning.status.as_u16());
    json.push_str(",\"detail\":");
    string(&mut json, &[meaning.detail]);
    for (name, value) in rejection.details() {
        json.push_str(",\"");
        json.push_str(name);
        json.push_str("\":");
        string(&mut json, &[value]);
    }
    json.push('}');
    json
}

fn string(json: &mut String, pieces: &[&str]) {
    json.push('"');
    for character in pieces.iter().flat_map(|piece| piece.chars()) {
        match character {
            '"' => json.push_str("\\\""),
            '\\' => json.push_str("\\\\"),
            c if c < ' ' => {
                let _ = write!(json, "\\u{:04x}", u32::from(c));
            }
            c => json.push(c),
        }
    }
    json.push('"');
}

const TYPE: &str = "urn:distlock:";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_escaped() {
        let mut json = String::new();
        string(&mut json, &["a\"b\\c", "\n\u{1}ü"]);
        assert_eq!(json, r#""a\"b\\c\u000a\u0001ü""#);
    }
}
