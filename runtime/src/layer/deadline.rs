//! Until when an answer is of use to whoever asked.

use std::time::Duration;

use http::request::Parts;
use tokio::time::Instant;

use super::protocol::Protocol;

/// The moment after which nobody waits for the answer any more.
///
/// As an extension of a request it bounds the wait of [`LockLayer`](super::LockLayer): put it there in
/// a middleware of your own that knows the deadline, further out. Of gRPC requests the layer reads the
/// header `grpc-timeout` by itself.
///
/// ```
/// use std::time::Duration;
///
/// use distlock::layer::Deadline;
///
/// let mut request = http::Request::new(());
/// request.extensions_mut().insert(Deadline::after(Duration::from_secs(2)));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadline(Instant);

impl Deadline {
    /// Lies `duration` from now.
    #[must_use]
    pub fn after(duration: Duration) -> Self {
        let now = Instant::now();
        Self(now.checked_add(duration).unwrap_or(now + FAR))
    }

    /// Lies at `instant`.
    #[must_use]
    pub fn at(instant: std::time::Instant) -> Self {
        Self(instant.into())
    }
}

/// How long the asker of this request still waits, if that is known. A part is taken off for the
/// answer's way back.
pub(crate) fn time_left(parts: &Parts, protocol: &Protocol) -> Option<Duration> {
    let by_extension = parts
        .extensions
        .get::<Deadline>()
        .map(|deadline| deadline.0.saturating_duration_since(Instant::now()));
    let by_header = match protocol {
        Protocol::Grpc { .. } => parts.headers.get("grpc-timeout"),
        Protocol::Http => None,
    };
    let by_header = by_header.and_then(|value| grpc_timeout(value.to_str().ok()?));
    let left = by_extension.into_iter().chain(by_header).min()?;
    Some(left - (left / 10).min(WAY_BACK))
}

/// Reads `100m`: at most eight digits and a unit. Whatever else stands there is no deadline.
fn grpc_timeout(text: &str) -> Option<Duration> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.is_empty() || digits.len() > 8 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let number: u64 = digits.parse().ok()?;
    Some(match unit {
        "H" => Duration::from_secs(number * 60 * 60),
        "M" => Duration::from_secs(number * 60),
        "S" => Duration::from_secs(number),
        "m" => Duration::from_millis(number),
        "u" => Duration::from_micros(number),
        "n" => Duration::from_nanos(number),
        _ => return None,
    })
}

const FAR: Duration = Duration::from_secs(365 * 24 * 60 * 60);
const WAY_BACK: Duration = Duration::from_millis(20);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_unit_is_read_and_nothing_else() {
        assert_eq!(grpc_timeout("2H"), Some(Duration::from_secs(7200)));
        assert_eq!(grpc_timeout("1M"), Some(Duration::from_secs(60)));
        assert_eq!(grpc_timeout("99999999S"), Some(Duration::from_secs(99_999_999)));
        assert_eq!(grpc_timeout("150m"), Some(Duration::from_millis(150)));
        assert_eq!(grpc_timeout("5u"), Some(Duration::from_micros(5)));
        assert_eq!(grpc_timeout("7n"), Some(Duration::from_nanos(7)));
        for text in ["", "S", "5", "5s", "123456789S", "-5S", "+5S", "5ü", "ü"] {
            assert_eq!(grpc_timeout(text), None, "{text}");
        }
    }
}
