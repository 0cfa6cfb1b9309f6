//! One message of a client, and the answer to it.

/// How far the dialogue is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    /// The greeting is not in the output yet.
    New,
    /// The client's messages are read.
    Speaking,
    /// XMPP: the stream is open, and the client has read that it must start TLS.
    StreamOpen,
    /// XMPP: the client's request has begun, and its closing tag must follow.
    RequestOpen,
    /// The client gets TLS.
    Done,
    /// The client gets no TLS. When the output is sent, the connection ends.
    Over,
}

/// Why a client gets no TLS, in words.
pub type Refusal = &'static str;

/// What is said to one message.
pub(super) enum Answer {
    /// This, and the dialogue continues in this state.
    Say(Vec<u8>, State),
    /// This, then TLS begins.
    StartTls(Vec<u8>),
    /// Nothing: the message is the beginning of TLS itself.
    IsTls,
    /// This, then the connection ends, for this reason.
    End(Vec<u8>, Refusal),
}

/// A whole message, and the answer to it.
pub(super) struct Read {
    /// Length of the message.
    pub(super) len: usize,
    pub(super) answer: Answer,
}

impl Read {
    pub(super) fn of(len: usize, answer: Answer) -> Read {
        Read { len, answer }
    }
}
