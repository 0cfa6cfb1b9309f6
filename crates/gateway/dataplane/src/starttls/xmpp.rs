//! XMPP (RFC 6120 §5): two tags of the client, of which only the names and a few attributes are read.

use super::answer::{Awaited, Heard, Reason, refused};
use super::message::{Answer, Read, Refusal, State};
use std::hash::{BuildHasher as _, RandomState};

const TLS_NAMESPACE: &str = "urn:ietf:params:xml:ns:xmpp-tls";
/// A client's request for TLS.
pub(super) const REQUEST: &[u8] = b"<starttls xmlns='urn:ietf:params:xml:ns:xmpp-tls'/>";
const NO_XML: Refusal = "the client's bytes are not XML as XMPP has it";

/// Reads the next tag.
pub(super) fn read(received: &[u8], state: State) -> Result<Option<Read>, Refusal> {
    let blank = received
        .iter()
        .take_while(|byte| byte.is_ascii_whitespace());
    let blank = blank.count();
    let tag = received.get(blank..).unwrap_or_default();
    let Some(len) = tag_len(tag)? else {
        return Ok(None);
    };
    let tag = std::str::from_utf8(tag.get(1..len - 1).unwrap_or_default()).map_err(|_| NO_XML)?;
    let read = |answer| Ok(Some(Read::of(blank + len, answer)));
    if tag.starts_with('?') && state == State::Speaking {
        return read(Answer::Say(Vec::new(), state));
    }
    let (name, attributes) = parts(tag)?;
    match (state, name) {
        (State::Speaking, "stream:stream") => {
            let answer = stream(&attributes)?;
            read(Answer::Say(answer, State::StreamOpen))
        }
        (State::StreamOpen, "starttls") if value(&attributes, "xmlns") == Some(TLS_NAMESPACE) => {
            match tag.ends_with('/') {
                true => read(proceed()),
                false => read(Answer::Say(Vec::new(), State::RequestOpen)),
            }
        }
        (State::RequestOpen, "/starttls") => read(proceed()),
        (State::StreamOpen, "/stream:stream") => read(Answer::End(
            b"</stream:stream>".to_vec(),
            "the client closed its stream without TLS",
        )),
        (State::StreamOpen, _) => {
            let error = "<stream:error><policy-violation xmlns='urn:ietf:params:xml:ns:xmpp-streams'/></stream:error></stream:stream>";
            read(Answer::End(error.into(), "the client did not start TLS"))
        }
        _ => Err(NO_XML),
    }
}

/// The header of a client's stream to a server of this name.
pub(super) fn opening(server_name: &str) -> Vec<u8> {
    // Other characters are not part of a host name.
    let is_name = |c: &char| c.is_ascii_alphanumeric() || ".-_:".contains(*c);
    let to: String = server_name.chars().filter(is_name).collect();
    format!(
        "<?xml version='1.0'?><stream:stream to='{to}' version='1.0' xmlns='jabber:client' \
         xmlns:stream='http://etherx.jabber.org/streams'>"
    )
    .into_bytes()
}

/// Reads a server's next tag, or the text before it.
pub(super) fn hear(received: &[u8], awaited: Awaited) -> Result<Option<Heard>, Reason> {
    let text = received.iter().position(|&byte| byte == b'<');
    match text.unwrap_or(received.len()) {
        0 => {}
        len => return Ok(Some(Heard::Passed(len))),
    }
    let no_xml = "the server's bytes are not XML as XMPP has it";
    let Some(len) = tag_len(received).map_err(|_| no_xml)? else {
        return Ok(None);
    };
    let tag = received.get(1..len - 1).unwrap_or_default();
    let is_whole = tag.ends_with(b"/");
    let mut name = tag.split(|byte| byte.is_ascii_whitespace() || *byte == b'/');
    let is_end = tag.starts_with(b"/");
    let name = name.nth(usize::from(is_end)).unwrap_or_default();
    match (name, awaited) {
        (b"stream:error" | b"failure", _) => Err(refused(received)),
        (b"stream:stream", _) if is_end => Err(refused(received)),
        (b"stream:features", Awaited::Features) | (b"proceed", Awaited::Consent)
            if is_whole || is_end =>
        {
            Ok(Some(Heard::Awaited(len)))
        }
        _ => Ok(Some(Heard::Passed(len))),
    }
}

fn proceed() -> Answer {
    Answer::StartTls(format!("<proceed xmlns='{TLS_NAMESPACE}'/>").into_bytes())
}

/// The header of our stream, and its features.
fn stream(attributes: &[(&str, &str)]) -> Result<Vec<u8>, Refusal> {
    let namespace = match value(attributes, "xmlns") {
        Some("jabber:server") => "jabber:server",
        _ => "jabber:client",
    };
    let to = value(attributes, "to").unwrap_or_default();
    let is_plain = |c: char| !c.is_control() && !"<>&'\"".contains(c);
    if to.len() > 255 || !to.chars().all(is_plain) {
        return Err("the client's stream is for an invalid domain");
    }
    let from = match to {
        "" => String::new(),
        to => format!(" from='{to}'"),
    };
    // Each stream has an id that nobody can predict (RFC 6120 §4.7.3). After the handshake the backend chooses another.
    let id = RandomState::new().hash_one(to);
    let answer = format!(
        "<?xml version='1.0'?><stream:stream{from} id='{id:016x}' version='1.0' xml:lang='en' xmlns='{namespace}' \
         xmlns:stream='http://etherx.jabber.org/streams'>\
         <stream:features><starttls xmlns='{TLS_NAMESPACE}'><required/></starttls></stream:features>"
    );
    Ok(answer.into_bytes())
}

/// Length of the tag at the beginning. `None`: it is incomplete.
fn tag_len(received: &[u8]) -> Result<Option<usize>, Refusal> {
    match received {
        [] | [b'<'] => return Ok(None),
        // No comments and no document types (RFC 6120 §11.1).
        [b'<', b'!', ..] => return Err(NO_XML),
        [b'<', ..] => {}
        _ => return Err(NO_XML),
    }
    let mut quote = None;
    for (n, &byte) in received.iter().enumerate().skip(1) {
        match (quote, byte) {
            (None, b'>') => return Ok(Some(n + 1)),
            (None, b'\'' | b'"') => quote = Some(byte),
            (None, b'<') => return Err(NO_XML),
            (Some(open), _) if open == byte => quote = None,
            _ => {}
        }
    }
    Ok(None)
}

/// The name of a tag, and its attributes.
type Parts<'a> = (&'a str, Vec<(&'a str, &'a str)>);

fn parts(tag: &str) -> Result<Parts<'_>, Refusal> {
    let tag = tag.strip_suffix('/').unwrap_or(tag);
    let (name, mut rest) = tag
        .split_once(|c: char| c.is_ascii_whitespace())
        .unwrap_or((tag, ""));
    let mut attributes = Vec::new();
    loop {
        rest = rest.trim_ascii_start();
        if rest.is_empty() {
            return Ok((name, attributes));
        }
        let (key, value) = rest.split_once('=').ok_or(NO_XML)?;
        let value = value.trim_ascii_start();
        let quote = value
            .chars()
            .next()
            .filter(|c| "'\"".contains(*c))
            .ok_or(NO_XML)?;
        let (value, behind) = value
            .get(1..)
            .and_then(|value| value.split_once(quote))
            .ok_or(NO_XML)?;
        attributes.push((key.trim_ascii_end(), value));
        rest = behind;
    }
}

fn value<'a>(attributes: &[(&str, &'a str)], key: &str) -> Option<&'a str> {
    let found = attributes.iter().find(|(name, _)| *name == key);
    found.map(|&(_, value)| value)
}
