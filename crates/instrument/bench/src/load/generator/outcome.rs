//! The outcome of an event on a connection, and the messages of failures.

use dormouse_reactor::socket::Shortage;

/// Next step of a connection after an event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum NextAction {
    /// Wait for the next event.
    Wait,
    /// Close it: its work is done.
    Close,
}

pub(super) type FlowResult = Result<NextAction, String>;

pub(super) fn connect_words(error: &std::io::Error) -> String {
    match Shortage::of(error) {
        Some(Shortage::Descriptors) => "connect: out of descriptors (raise `ulimit -n`)".into(),
        Some(Shortage::Ports) => "connect: out of local ports (see net.ipv4.ip_local_port_range, or give more --source addresses)".into(),
        _ if error.kind() == std::io::ErrorKind::ConnectionRefused => "connect: refused (nothing listens there)".into(),
        _ => format!("connect: {error}"),
    }
}

pub(super) fn handshake_words(reason: &impl std::fmt::Display) -> String {
    format!("handshake: {reason}")
}

pub(super) fn starttls_words(reason: &impl std::fmt::Display) -> String {
    format!("STARTTLS: {reason}")
}
