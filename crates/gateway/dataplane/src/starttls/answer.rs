//! One message of a server that is asked for TLS.

use dormouse_printable::line;

/// What the server says next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Awaited {
    Greeting,
    /// What the server can do: the answer to EHLO, the features of XMPP.
    Features,
    Consent,
    /// The server has consented.
    Nothing,
}

/// A whole message of a server.
pub(super) enum Heard {
    /// It is not what is awaited, and changes nothing.
    Passed(usize),
    /// It is what is awaited.
    Awaited(usize),
}

/// Why there is no TLS, in words.
pub(super) type Reason = String;

/// The message for an answer that is no consent.
pub(super) fn refused(answer: &[u8]) -> Reason {
    let text = String::from_utf8_lossy(answer.trim_ascii());
    format!("the server answered {}", line(&text))
}
