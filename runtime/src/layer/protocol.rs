//! Which protocol a request speaks, and so how it is answered.

use http::HeaderValue;
use http::header::{CONTENT_TYPE, HeaderMap};

/// The protocol of a request, by its content type.
#[derive(Clone, Debug)]
pub(crate) enum Protocol {
    /// With the content type of the answer.
    Grpc {
        content_type: HeaderValue,
    },
    Http,
}

impl Protocol {
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let Some(value) = headers.get(CONTENT_TYPE) else { return Self::Http };
        let name = value.as_bytes();
        let is = |prefix: &[u8]| {
            name.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix))
                && matches!(name.get(prefix.len()), None | Some(b'+' | b';' | b' '))
        };
        if is(b"application/grpc") {
            Self::Grpc { content_type: HeaderValue::from_static("application/grpc") }
        } else if is(b"application/grpc-web") || is(b"application/grpc-web-text") {
            // In a browser the answer must be of the kind that was asked for.
            Self::Grpc { content_type: value.clone() }
        } else {
            Self::Http
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_content_type_tells_the_protocol() {
        let is_grpc = |text: &'static str| {
            let headers = [(CONTENT_TYPE, HeaderValue::from_static(text))].into_iter().collect();
            matches!(Protocol::of(&headers), Protocol::Grpc { .. })
        };
        for text in ["application/grpc", "application/grpc+proto", "Application/gRPC;x=y"] {
            assert!(is_grpc(text), "{text}");
        }
        assert!(is_grpc("application/grpc-web+proto"));
        for text in ["application/json", "application/grpcx", "text/plain", ""] {
            assert!(!is_grpc(text), "{text}");
        }
        assert!(matches!(Protocol::of(&HeaderMap::new()), Protocol::Http));
    }
}
