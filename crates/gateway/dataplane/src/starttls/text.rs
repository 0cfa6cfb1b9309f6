//! Protocols of lines: SMTP, IMAP, POP3.

use super::message::{Answer, Read, Refusal, State};
use dormouse_config::Starttls;

/// What the client said before it left.
const QUIT: Refusal = "the client quit without TLS";

/// What the server says first before TLS; nothing in protocols where the client speaks first.
pub(super) fn greeting(protocol: Starttls, host: &str) -> Vec<u8> {
    match protocol {
        Starttls::Imap => format!("* OK [CAPABILITY {IMAP}] {host} ready\r\n").into_bytes(),
        other => greeting_over_tls(other, host),
    }
}

/// What a server says first on a connection that TLS protects already. Clients of IMAP ask it for its capabilities.
pub(crate) fn greeting_over_tls(protocol: Starttls, host: &str) -> Vec<u8> {
    match protocol {
        Starttls::Smtp => format!("220 {host} ESMTP\r\n").into_bytes(),
        Starttls::Imap => format!("* OK {host} ready\r\n").into_bytes(),
        Starttls::Pop3 => format!("+OK {host} ready\r\n").into_bytes(),
        Starttls::Xmpp | Starttls::Ldap | Starttls::Postgres | Starttls::Off => Vec::new(),
    }
}

/// A line without its end, and its length with it. `None`: it is incomplete. Lines end with CRLF, or with LF alone, as
/// most servers accept them.
fn line(received: &[u8]) -> Option<(&[u8], usize)> {
    let end = received.iter().position(|&byte| byte == b'\n')?;
    let line = received.get(..end).unwrap_or_default();
    Some((line.strip_suffix(b"\r").unwrap_or(line), end + 1))
}

/// The first word of a line in upper case, and what follows the space behind it.
fn word(line: &[u8]) -> (Vec<u8>, &[u8]) {
    let end = line.iter().position(|&byte| byte == b' ');
    let (word, rest) = line.split_at(end.unwrap_or(line.len()));
    (word.to_ascii_uppercase(), rest.get(1..).unwrap_or_default())
}

fn say(answer: impl Into<Vec<u8>>) -> Answer {
    Answer::Say(answer.into(), State::Speaking)
}

/// RFC 5321, RFC 3207.
pub(super) fn smtp(received: &[u8], host: &str) -> Result<Option<Read>, Refusal> {
    let Some((line, len)) = line(received) else {
        return Ok(None);
    };
    let (command, rest) = word(line);
    let answer = match command.as_slice() {
        b"STARTTLS" if rest.is_empty() => Answer::StartTls(b"220 2.0.0 Ready for TLS\r\n".to_vec()),
        b"STARTTLS" => say(*b"501 5.5.4 No parameters allowed\r\n"),
        b"EHLO" => say(format!(
            "250-{host}\r\n250-STARTTLS\r\n250 ENHANCEDSTATUSCODES\r\n"
        )),
        b"HELO" => say(format!("250 {host}\r\n")),
        b"NOOP" | b"RSET" => say(*b"250 2.0.0 OK\r\n"),
        b"QUIT" => Answer::End(b"221 2.0.0 Bye\r\n".to_vec(), QUIT),
        _ => say(*b"530 5.7.0 Must issue a STARTTLS command first\r\n"),
    };
    Ok(Some(Read::of(len, answer)))
}

/// The capabilities before TLS.
const IMAP: &str = "IMAP4rev1 STARTTLS LOGINDISABLED";

/// RFC 9051 §6.2.1.
pub(super) fn imap(received: &[u8]) -> Result<Option<Read>, Refusal> {
    let Some((line, len)) = line(received) else {
        return Ok(None);
    };
    let (_, rest) = word(line);
    // The tag is repeated as it was sent.
    let tag = line.split(|&byte| byte == b' ').next().unwrap_or_default();
    if !is_tag(tag) {
        return Ok(Some(Read::of(len, say(*b"* BAD Invalid tag\r\n"))));
    }
    let tag = String::from_utf8_lossy(tag);
    let (command, rest) = word(rest);
    let answer = match (command.as_slice(), rest.is_empty()) {
        (b"STARTTLS", true) => {
            Answer::StartTls(format!("{tag} OK Begin TLS negotiation now\r\n").into_bytes())
        }
        (b"CAPABILITY", true) => say(format!("* CAPABILITY {IMAP}\r\n{tag} OK Completed\r\n")),
        (b"NOOP", true) => say(format!("{tag} OK Completed\r\n")),
        (b"LOGOUT", true) => Answer::End(
            format!("* BYE Logging out\r\n{tag} OK Completed\r\n").into_bytes(),
            QUIT,
        ),
        (b"", _) | (b"STARTTLS" | b"CAPABILITY" | b"NOOP" | b"LOGOUT", false) => {
            say(format!("{tag} BAD Syntax error\r\n"))
        }
        _ => say(format!("{tag} NO [PRIVACYREQUIRED] STARTTLS first\r\n")),
    };
    Ok(Some(Read::of(len, answer)))
}

/// Whether this is a tag of a command (RFC 9051 §9), of a length that real clients use.
fn is_tag(tag: &[u8]) -> bool {
    let is_of_tag = |byte: &u8| byte.is_ascii_graphic() && !b"(){%*\"\\]+".contains(byte);
    (1..=64).contains(&tag.len()) && tag.iter().all(is_of_tag)
}

/// RFC 2595 §4.
pub(super) fn pop3(received: &[u8]) -> Result<Option<Read>, Refusal> {
    let Some((line, len)) = line(received) else {
        return Ok(None);
    };
    let (command, rest) = word(line);
    let answer = match (command.as_slice(), rest.is_empty()) {
        (b"STLS", true) => Answer::StartTls(b"+OK Begin TLS negotiation\r\n".to_vec()),
        (b"CAPA", true) => say(*b"+OK Capabilities follow\r\nSTLS\r\nRESP-CODES\r\n.\r\n"),
        (b"QUIT", true) => Answer::End(b"+OK Bye\r\n".to_vec(), QUIT),
        _ => say(*b"-ERR STLS first\r\n"),
    };
    Ok(Some(Read::of(len, answer)))
}
