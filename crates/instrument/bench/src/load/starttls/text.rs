//! Protocols of text: SMTP, IMAP, POP3, XMPP.

use super::turn::{Turn, nothing, quoted, turn};

pub(super) static SMTP: [Turn; 3] = [
    turn(nothing, smtp_greeting),
    // Strict servers refuse `localhost`.
    turn(|_| b"EHLO [127.0.0.1]\r\n".to_vec(), smtp_extensions),
    turn(|_| b"STARTTLS\r\n".to_vec(), smtp_ready),
];

fn smtp_greeting(bytes: &[u8]) -> Result<Option<usize>, String> {
    smtp_reply(bytes, b"220")
}

fn smtp_extensions(bytes: &[u8]) -> Result<Option<usize>, String> {
    let Some(length) = smtp_reply(bytes, b"250")? else {
        return Ok(None);
    };
    let reply = bytes.get(..length).unwrap_or_default();
    let mut lines = reply.split(|byte| *byte == b'\n');
    let offers = lines.any(|line| {
        let name = line.get(4..).unwrap_or_default().trim_ascii();
        name.eq_ignore_ascii_case(b"STARTTLS")
    });
    if offers {
        Ok(Some(length))
    } else {
        Err("the server does not offer STARTTLS".into())
    }
}

fn smtp_ready(bytes: &[u8]) -> Result<Option<usize>, String> {
    smtp_reply(bytes, b"220")
}

/// Reads a reply, whose last line has a space after its code.
fn smtp_reply(bytes: &[u8], code: &[u8; 3]) -> Result<Option<usize>, String> {
    let mut length = 0;
    while let Some(line) = line(bytes.get(length..).unwrap_or_default()) {
        if !line.starts_with(code) {
            return Err(format!("the server answered {}", quoted(line)));
        }
        length += line.len();
        if line.get(3) != Some(&b'-') {
            return Ok(Some(length));
        }
    }
    Ok(None)
}

pub(super) static IMAP: [Turn; 2] = [
    turn(nothing, imap_greeting),
    turn(|_| b"a1 STARTTLS\r\n".to_vec(), imap_ready),
];

fn imap_greeting(bytes: &[u8]) -> Result<Option<usize>, String> {
    accepted(bytes, &[b"* OK"])
}

/// Reads up to the tagged line; untagged ones may come before it.
fn imap_ready(bytes: &[u8]) -> Result<Option<usize>, String> {
    let mut length = 0;
    while let Some(line) = line(bytes.get(length..).unwrap_or_default()) {
        length += line.len();
        if !line.starts_with(b"* ") {
            return accepted(line, &[b"a1 OK"]).map(|_| Some(length));
        }
    }
    Ok(None)
}

pub(super) static POP3: [Turn; 2] = [
    turn(nothing, pop3_ok),
    turn(|_| b"STLS\r\n".to_vec(), pop3_ok),
];

fn pop3_ok(bytes: &[u8]) -> Result<Option<usize>, String> {
    accepted(bytes, &[b"+OK"])
}

pub(super) static XMPP: [Turn; 2] = [
    turn(xmpp_stream, xmpp_features),
    turn(
        |_| b"<starttls xmlns='urn:ietf:params:xml:ns:xmpp-tls'/>".to_vec(),
        xmpp_proceed,
    ),
];

/// The beginning of a stream to a server of this name.
pub(super) fn xmpp_stream(server_name: &str) -> Vec<u8> {
    // Characters of XML cannot be part of a host name.
    let is_name = |c: &char| c.is_ascii_alphanumeric() || ".-_:[]".contains(*c);
    let name: String = server_name.chars().filter(is_name).collect();
    format!(
        "<?xml version='1.0'?><stream:stream to='{name}' version='1.0' xmlns='jabber:client' \
         xmlns:stream='http://etherx.jabber.org/streams'>"
    )
    .into_bytes()
}

/// Reads up to the end of the features, or to what comes instead of them.
fn xmpp_features(bytes: &[u8]) -> Result<Option<usize>, String> {
    const END: &[u8] = b"</stream:features>";
    let first = |part: &[u8]| find(bytes, part).unwrap_or(usize::MAX);
    let (end, none) = (first(END), first(b"<stream:features/>"));
    let error = first(b"<stream:error");
    if error < end.min(none) {
        let error = bytes.get(error..).unwrap_or_default();
        return Err(format!("the server answered {}", quoted(error)));
    }
    let Some(features) = bytes.get(..end.min(none)) else {
        return Ok(None);
    };
    if none < end || find(features, b"urn:ietf:params:xml:ns:xmpp-tls").is_none() {
        return Err("the server does not offer STARTTLS".into());
    }
    Ok(Some(end + END.len()))
}

fn xmpp_proceed(bytes: &[u8]) -> Result<Option<usize>, String> {
    let Some(at) = bytes.iter().position(|byte| *byte == b'>') else {
        return Ok(None);
    };
    let element = bytes.get(..=at).unwrap_or_default();
    if !element.trim_ascii_start().starts_with(b"<proceed") {
        return Err(format!("the server answered {}", quoted(element)));
    }
    // Both forms are possible: `<proceed …/>` and `<proceed …></proceed>`.
    if element.ends_with(b"/>") {
        return Ok(Some(at + 1));
    }
    let end = b"</proceed>";
    Ok(find(bytes, end).map(|at| at + end.len()))
}

/// Accepts a line with one of these beginnings.
fn accepted(bytes: &[u8], beginnings: &[&[u8]]) -> Result<Option<usize>, String> {
    let Some(line) = line(bytes) else {
        return Ok(None);
    };
    let is_accepted = |beginning: &&[u8]| {
        let start = line.get(..beginning.len());
        start.is_some_and(|start| start.eq_ignore_ascii_case(beginning))
    };
    if beginnings.iter().any(is_accepted) {
        Ok(Some(line.len()))
    } else {
        Err(format!("the server answered {}", quoted(line)))
    }
}

/// The first line, with its end.
fn line(bytes: &[u8]) -> Option<&[u8]> {
    let end = bytes.iter().position(|byte| *byte == b'\n')?;
    bytes.get(..=end)
}

fn find(bytes: &[u8], part: &[u8]) -> Option<usize> {
    bytes.windows(part.len()).position(|window| window == part)
}
