//! As much of the Redis protocol as the proxy and the command log need: where a frame ends, what
//! words a request has, and whether a frame from the server answers a request.

/// The length of the first complete frame in `bytes`, RESP2, RESP3 or an inline request; `None` if it
/// is not complete yet.
pub(super) fn frame_length(bytes: &[u8]) -> Option<usize> {
    let line = line_length(bytes)?;
    let count = || -> i64 {
        std::str::from_utf8(&bytes[1..line - 2])
            .ok()
            .and_then(|text| text.parse().ok())
            .unwrap_or(0)
    };
    match bytes[0] {
        b'$' | b'=' | b'!' => {
            let Ok(length) = usize::try_from(count()) else { return Some(line) };
            let end = line + length + 2;
            (bytes.len() >= end).then_some(end)
        }
        b'*' | b'~' | b'>' => elements(bytes, line, count()),
        b'%' => elements(bytes, line, 2 * count()),
        // Attributes stand before the value that they describe.
        b'|' => elements(bytes, line, 2 * count() + 1),
        _ => Some(line),
    }
}

/// The words of a request: `["SET", "key", "value"]`.
pub(super) fn words(request: &[u8]) -> Vec<String> {
    if !request.starts_with(b"*") {
        return String::from_utf8_lossy(request).split_whitespace().map(str::to_owned).collect();
    }
    let mut words = Vec::new();
    let mut rest = &request[line_length(request).unwrap_or(request.len())..];
    while let (Some(line), Some(length)) = (line_length(rest), frame_length(rest)) {
        let end = length.saturating_sub(2).max(line);
        words.push(String::from_utf8_lossy(&rest[line..end]).into_owned());
        rest = &rest[length..];
    }
    words
}

/// What a frame from the server is to the requests of its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// One of the confirmations of a request that changes subscriptions.
    Confirmation,
    /// A message, which answers no request.
    Message,
    /// The answer to the oldest open request.
    Reply,
}

/// Tells what a frame from the server is. `subscribed`: whether the connection ever subscribed; before
/// that an array is always a reply.
pub(super) fn role(frame: &[u8], subscribed: bool) -> Role {
    let push = frame.starts_with(b">");
    let may_be_message = push || (subscribed && frame.starts_with(b"*"));
    if !may_be_message {
        return Role::Reply;
    }
    match words(&[b"*", &frame[1..]].concat()).first().map(String::as_str) {
        Some(kind) if kind.ends_with("subscribe") => Role::Confirmation,
        Some(kind) if push || kind.ends_with("message") => Role::Message,
        _ => Role::Reply,
    }
}

fn elements(bytes: &[u8], start: usize, count: i64) -> Option<usize> {
    let mut end = start;
    for _ in 0..count {
        end += frame_length(&bytes[end..])?;
    }
    Some(end)
}

fn line_length(bytes: &[u8]) -> Option<usize> {
    bytes.windows(2).position(|pair| pair == b"\r\n").map(|end| end + 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_of_every_shape_are_measured() {
        for frame in [
            "+OK\r\n",
            "-ERR no\r\n",
            ":12\r\n",
            "_\r\n",
            "$3\r\na\r\n\r\n",
            "$-1\r\n",
            "*-1\r\n",
            "*0\r\n",
            "*2\r\n$1\r\na\r\n*1\r\n:1\r\n",
            "%1\r\n+a\r\n:1\r\n",
            ">2\r\n$7\r\nmessage\r\n:1\r\n",
            "|1\r\n+ttl\r\n:1\r\n$1\r\nv\r\n",
            "PING\r\n",
        ] {
            let stream = format!("{frame}+NEXT\r\n");
            assert_eq!(frame_length(stream.as_bytes()), Some(frame.len()), "{frame:?}");
            assert_eq!(frame_length(&frame.as_bytes()[..frame.len() - 1]), None, "{frame:?}");
        }
    }

    #[test]
    fn words_are_those_of_the_request() {
        assert_eq!(words(b"*3\r\n$3\r\nSET\r\n$3\r\na\r\n\r\n$0\r\n\r\n"), ["SET", "a\r\n", ""]);
        assert_eq!(words(b"PING now\r\n"), ["PING", "now"]);
    }

    #[test]
    fn messages_and_confirmations_are_told_from_replies() {
        assert_eq!(role(b"+OK\r\n", false), Role::Reply);
        assert_eq!(role(b">2\r\n$7\r\nmessage\r\n$1\r\nc\r\n", false), Role::Message);
        assert_eq!(role(b">2\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n", true), Role::Confirmation);
        assert_eq!(role(b"*2\r\n$8\r\npmessage\r\n$1\r\nc\r\n", true), Role::Message);
        assert_eq!(role(b"*1\r\n$7\r\nmessage\r\n", false), Role::Reply);
    }
}
