//! The greeting of a backend, which a client that has started TLS does not expect any more.

use dormouse_config::Starttls;

/// Maximum length of a greeting.
pub(crate) const GREETING_MAX: usize = 4096;

/// The first bytes of a backend.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Greeting {
    /// Its greeting may go on.
    Partial,
    /// Its greeting has this length. It is not for the client. Length 0: the backend does not welcome its client, and the
    /// client shall read why.
    Complete(usize),
}

/// Finds the end of a backend's greeting in its first bytes. `None`: in this protocol the client speaks first.
pub fn greeting(protocol: Starttls, received: &[u8]) -> Option<Greeting> {
    let welcome: &[u8] = match protocol {
        Starttls::Smtp => b"2",
        Starttls::Imap => b"* OK",
        Starttls::Pop3 => b"+OK",
        Starttls::Xmpp | Starttls::Ldap | Starttls::Postgres | Starttls::Off => return None,
    };
    let known = received.get(..welcome.len()).unwrap_or(received);
    if !welcome
        .get(..known.len())
        .is_some_and(|start| start.eq_ignore_ascii_case(known))
    {
        return Some(Greeting::Complete(0));
    }
    let mut end = 0;
    for line in received.split_inclusive(|&byte| byte == b'\n') {
        end += line.len();
        // SMTP has a hyphen behind the code on all lines but the last (RFC 5321 §4.2.1).
        let goes_on = protocol == Starttls::Smtp && line.get(3) == Some(&b'-');
        if line.ends_with(b"\n") && !goes_on {
            return Some(Greeting::Complete(end));
        }
    }
    Some(Greeting::Partial)
}
