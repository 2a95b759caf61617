//! Answers to gRPC requests: a status in a response that has no body ("trailers-only").
//!
//! Written by hand: two small messages are no reason to depend on a protobuf library, and so the
//! answer is the same with and without the feature `tonic`.

use std::fmt::Write;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{HeaderName, Response};

use super::meaning::Meaning;
use super::rejection::Rejection;

pub(crate) fn response(
    rejection: &Rejection,
    meaning: &Meaning,
    content_type: &HeaderValue,
) -> Response<Bytes> {
    let mut message = meaning.detail.to_owned();
    for (name, value) in rejection.details() {
        // Writing to a String cannot fail.
        let _ = write!(message, " ({name}: {value})");
    }
    let mut response = Response::new(Bytes::new());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, content_type.clone());
    headers.insert(GRPC_STATUS, HeaderValue::from(u16::from(meaning.grpc_code)));
    if let Ok(message) = HeaderValue::from_str(&percent_encoded(&message)) {
        headers.insert(GRPC_MESSAGE, message);
    }
    if let Some(delay) = rejection.retry_after() {
        let details = base64(&status_with_retry_info(meaning.grpc_code, &message, delay));
        if let Ok(details) = HeaderValue::from_str(&details) {
            headers.insert(GRPC_STATUS_DETAILS, details);
        }
    }
    response
}

/// A `google.rpc.Status` whose details are one `google.rpc.RetryInfo`.
pub(crate) fn status_with_retry_info(code: u8, message: &str, delay: Duration) -> Vec<u8> {
    let mut duration = Vec::new();
    varint_field(&mut duration, 1, delay.as_secs());
    varint_field(&mut duration, 2, u64::from(delay.subsec_nanos()));
    let mut retry_info = Vec::new();
    bytes_field(&mut retry_info, 1, &duration);
    let mut any = Vec::new();
    bytes_field(&mut any, 1, b"type.googleapis.com/google.rpc.RetryInfo");
    bytes_field(&mut any, 2, &retry_info);
    let mut status = Vec::new();
    varint_field(&mut status, 1, u64::from(code));
    bytes_field(&mut status, 2, message.as_bytes());
    bytes_field(&mut status, 3, &any);
    status
}

fn varint_field(message: &mut Vec<u8>, number: u8, value: u64) {
    // What is zero is left out.
    if value != 0 {
        message.push(number << 3);
        varint(message, value);
    }
}

fn bytes_field(message: &mut Vec<u8>, number: u8, value: &[u8]) {
    message.push(number << 3 | 2);
    varint(message, value.len() as u64);
    message.extend_from_slice(value);
}

fn varint(message: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        message.push(value as u8 | 0x80);
        value >>= 7;
    }
    message.push(value as u8);
}

/// As gRPC wants it in `grpc-message`.
fn percent_encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if matches!(byte, b' '..=b'~') && byte != b'%' {
            encoded.push(char::from(byte));
        } else {
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

/// Standard base64 without padding, as gRPC wants it in binary headers.
fn base64(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let byte = |index: usize| u32::from(chunk.get(index).copied().unwrap_or_default());
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for index in 0..=chunk.len() {
            let sextet = bits >> (18 - 6 * index) & 0x3f;
            text.push(char::from(BASE64[sextet as usize]));
        }
    }
    text
}

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
const GRPC_STATUS_DETAILS: HeaderName = HeaderName::from_static("grpc-status-details-bin");

const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_unpadded() {
        let cases = [("", ""), ("f", "Zg"), ("fo", "Zm8"), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")];
        for (text, expected) in cases {
            assert_eq!(base64(text.as_bytes()), expected);
        }
        assert_eq!(base64(&[0xfb, 0xff]), "+/8");
    }

    #[test]
    fn messages_keep_to_printable_ascii() {
        assert_eq!(percent_encoded("100% ü\n"), "100%25 %C3%BC%0A");
    }

    #[test]
    fn status_is_what_protobuf_says() {
        let status = status_with_retry_info(10, "x", Duration::from_millis(1500));
        let url = b"type.googleapis.com/google.rpc.RetryInfo";
        let mut expected = vec![0x08, 10, 0x12, 1, b'x', 0x1a, 2 + 40 + 2 + 10, 0x0a, 40];
        expected.extend_from_slice(url);
        // 500_000_000 nanoseconds take five bytes.
        expected
            .extend_from_slice(&[0x12, 10, 0x0a, 8, 0x08, 1, 0x10, 0x80, 0xca, 0xb5, 0xee, 0x01]);
        assert_eq!(status, expected);
    }
}
