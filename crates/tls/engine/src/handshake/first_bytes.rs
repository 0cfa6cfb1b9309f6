//! Distinguishes TLS from other protocols that are sent to a TLS port by mistake.

use crate::failure::{Blame, FailureKind, HandshakeFailure};
use crate::messages::content_type::{ALERT, HANDSHAKE};

/// Number of bytes that distinguish TLS from HTTP.
pub(crate) const DECISIVE_LEN: usize = 5;

const HTTP_METHODS: [&[u8]; 10] = [
    b"GET ",
    b"POST ",
    b"HEAD ",
    b"PUT ",
    b"DELETE ",
    b"OPTIONS ",
    b"PATCH ",
    b"CONNECT ",
    b"TRACE ",
    b"PRI * ",
];

/// Reply to a browser that uses http instead of https.
pub(crate) const HTTP_ANSWER: &[u8] = b"HTTP/1.1 400 Bad Request\r\n\
Content-Type: text/plain\r\n\
Content-Length: 48\r\n\
Connection: close\r\n\
\r\n\
This port speaks TLS; use https:// to talk to it";

/// Returns a failure if a client's first bytes are not TLS.
pub(crate) fn refuse_client(first: &[u8]) -> Option<HandshakeFailure> {
    if is_http(first) {
        return Some(HandshakeFailure::new(
            Blame::Peer,
            FailureKind::PlainHttp,
            "a plain HTTP request arrived at the TLS port; the client should use https",
        ));
    }
    if matches!(first, [high, _, 1, ..] if high & 0x80 != 0) {
        return Some(not_tls("an SSL 2 ClientHello (forbidden by RFC 6176)"));
    }
    refuse_foreign(first)
}

/// Returns a failure if a server's first bytes are not TLS.
pub(crate) fn refuse_server(first: &[u8]) -> Option<HandshakeFailure> {
    refuse_foreign(first)
}

/// Only a handshake record or an alert can be first (RFC 8446 §5.1).
fn refuse_foreign(first: &[u8]) -> Option<HandshakeFailure> {
    match first {
        [ALERT | HANDSHAKE, 3, ..] | [ALERT | HANDSHAKE] | [] => None,
        other => Some(not_tls(&format!(
            "\"{}\"",
            other
                .get(..DECISIVE_LEN.min(other.len()))
                .unwrap_or_default()
                .escape_ascii()
        ))),
    }
}

fn not_tls(what: &str) -> HandshakeFailure {
    HandshakeFailure::new(
        Blame::Peer,
        FailureKind::NotTls,
        format!("the peer does not speak TLS: its first bytes are {what}"),
    )
}

/// `first` has at most [`DECISIVE_LEN`] bytes, so methods are compared up to its length.
fn is_http(first: &[u8]) -> bool {
    first.len() >= DECISIVE_LEN
        && HTTP_METHODS.iter().any(|method| {
            let len = method.len().min(first.len());
            method.get(..len) == first.get(..len)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reply_has_its_content_length() {
        let text = std::str::from_utf8(HTTP_ANSWER).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("Content-Length: {}", body.len())));
    }

    #[test]
    fn protocols_are_distinguished() {
        for method in HTTP_METHODS {
            let first = &[method, b"/ HTTP/1.1"].concat()[..DECISIVE_LEN];
            assert_eq!(refuse_client(first).unwrap().kind, FailureKind::PlainHttp);
        }
        for first in [
            &b"SSH-2"[..],
            b"\0\0\0\0\0",
            &[0x80, 0x2e, 1, 3, 1],
            &[23, 3, 3, 0, 1],
        ] {
            assert_eq!(refuse_client(first).unwrap().kind, FailureKind::NotTls);
        }
        let postgres = refuse_client(&[0, 0, 0, 8, 4]).unwrap();
        assert!(postgres.reason.ends_with(r#" "\x00\x00\x00\x08\x04""#));
        assert!(refuse_client(&[22, 3, 1, 2, 0]).is_none());
        assert!(refuse_client(&[21, 3, 3, 0, 2]).is_none());
        assert_eq!(refuse_server(b"HTTP/").unwrap().kind, FailureKind::NotTls);
    }
}
