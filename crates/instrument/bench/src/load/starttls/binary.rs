//! Protocols of binary messages: LDAP, PostgreSQL, MySQL.

use super::turn::{Turn, nothing, quoted, turn};

pub(super) static LDAP: [Turn; 1] = [turn(|_| LDAP_STARTTLS.to_vec(), ldap_ready)];

/// LDAPMessage 1, ExtendedRequest with the object identifier 1.3.6.1.4.1.1466.20037 (RFC 4511 §4.14.1).
const LDAP_STARTTLS: &[u8] = b"\x30\x1d\x02\x01\x01\x77\x18\x80\x161.3.6.1.4.1.1466.20037";
/// LDAPMessage 2, SearchRequest for the root entry without attributes. Every server answers it without a login.
pub(super) const LDAP_SEARCH: &[u8] = b"\x30\x25\x02\x01\x02\x63\x20\x04\x00\x0a\x01\x00\x0a\x01\x00\x02\x01\x00\x02\x01\x00\x01\x01\x00\x87\x0bobjectClass\x30\x00";
const LDAP_ANSWER_MAX: usize = 0xff_ffff;
const BER_SEQUENCE: u8 = 0x30;
const LDAP_EXTENDED_RESPONSE: u8 = 0x78;

/// Reads an ExtendedResponse: message id, then the result code.
fn ldap_ready(bytes: &[u8]) -> Result<Option<usize>, String> {
    let no_ldap = || "the server does not answer with LDAP".to_owned();
    let Some((kind, message, length)) = ber(bytes)? else {
        return Ok(None);
    };
    if kind != BER_SEQUENCE {
        return Err(no_ldap());
    }
    let (_, _, id) = ber(message)?.ok_or_else(no_ldap)?;
    let rest = message.get(id..).unwrap_or_default();
    let (kind, response, _) = ber(rest)?.ok_or_else(no_ldap)?;
    let (_, code, _) = ber(response)?.ok_or_else(no_ldap)?;
    match (kind, code) {
        (LDAP_EXTENDED_RESPONSE, [0]) => Ok(Some(length)),
        (LDAP_EXTENDED_RESPONSE, [code]) => {
            Err(format!("the server refuses with LDAP's result code {code}"))
        }
        _ => Err(no_ldap()),
    }
}

/// An element of BER: its tag, its content, and its length with the head.
type Element<'a> = (u8, &'a [u8], usize);

/// Reads an element; `None` if more bytes are needed.
fn ber(bytes: &[u8]) -> Result<Option<Element<'_>>, String> {
    let (Some(&tag), Some(&short)) = (bytes.first(), bytes.get(1)) else {
        return Ok(None);
    };
    let (head, length) = if short < 0x80 {
        (2, usize::from(short))
    } else {
        let count = usize::from(short & 0x7f);
        // Active Directory always writes four bytes.
        if count > 4 {
            return Err("the server does not answer with LDAP".into());
        }
        let Some(long) = bytes.get(2..2 + count) else {
            return Ok(None);
        };
        let length = long
            .iter()
            .fold(0, |sum, byte| sum << 8 | usize::from(*byte));
        if length > LDAP_ANSWER_MAX {
            return Err("the server's answer is longer than LDAP allows here".into());
        }
        (2 + count, length)
    };
    let content = bytes.get(head..head + length);
    Ok(content.map(|content| (tag, content, head + length)))
}

pub(super) static POSTGRES: [Turn; 1] = [turn(|_| POSTGRES_SSL_REQUEST.to_vec(), postgres_ready)];

/// SSLRequest: the length 8 and the code 80877103.
const POSTGRES_SSL_REQUEST: &[u8] = &[0, 0, 0, 8, 4, 210, 22, 47];

fn postgres_ready(bytes: &[u8]) -> Result<Option<usize>, String> {
    match bytes.first() {
        None => Ok(None),
        Some(b'S') => Ok(Some(1)),
        Some(b'N') => Err("the server does not offer TLS (ssl = off)".into()),
        Some(b'E') => Err("the server answered with an error".into()),
        Some(_) => Err("the server does not speak PostgreSQL's protocol".into()),
    }
}

/// StartupMessage of protocol 3.0 for the user `postgres`. The server answers with a request to log in, or refuses.
pub(super) fn postgres_startup() -> Vec<u8> {
    let body = b"\x00\x03\x00\x00user\0postgres\0database\0postgres\0\0";
    let length = u32::try_from(body.len() + 4).unwrap_or(0);
    [&length.to_be_bytes(), &body[..]].concat()
}

pub(super) static MYSQL: [Turn; 2] = [
    turn(nothing, mysql_greeting),
    Turn {
        say: |_| mysql_packet(1, &mysql_client_part()),
        read: None,
    },
];

const MYSQL_GREETING_MAX: usize = 1024;
const MYSQL_ERROR: u8 = 0xff;
const MYSQL_PROTOCOL: u8 = 10;
const CLIENT_SSL: u16 = 0x0800;
/// CLIENT_PROTOCOL_41, CLIENT_SSL, CLIENT_SECURE_CONNECTION and CLIENT_PLUGIN_AUTH.
const MYSQL_CAPABILITIES: u32 = 0x0000_0200 | CLIENT_SSL as u32 | 0x0000_8000 | 0x0008_0000;

/// Reads the server's first packet: protocol, version, connection id, scramble, capabilities.
fn mysql_greeting(bytes: &[u8]) -> Result<Option<usize>, String> {
    let Some([a, b, c, _]) = bytes.first_chunk() else {
        return Ok(None);
    };
    let length = 4 + (usize::from(*a) | usize::from(*b) << 8 | usize::from(*c) << 16);
    // Texts of other protocols look like a long packet.
    if length > MYSQL_GREETING_MAX {
        return Err("the server does not speak MySQL's protocol".into());
    }
    let Some(body) = bytes.get(4..length) else {
        return Ok(None);
    };
    match body.first() {
        Some(&MYSQL_PROTOCOL) => {}
        Some(&MYSQL_ERROR) => {
            let text = body.get(3..).unwrap_or_default();
            return Err(format!("the server answered {}", quoted(text)));
        }
        _ => return Err("the server does not speak MySQL's protocol".into()),
    }
    // The version ends with a zero; a connection id, eight bytes of scramble and a zero follow.
    let version = body.iter().position(|byte| *byte == 0);
    let capabilities = version
        .and_then(|end| body.get(end + 14..end + 16)?.first_chunk())
        .map_or(0, |bytes| u16::from_le_bytes(*bytes));
    if capabilities & CLIENT_SSL == 0 {
        return Err("the server does not offer TLS".into());
    }
    Ok(Some(length))
}

/// SSLRequest: capabilities, maximum packet, character set and 23 reserved bytes. A login begins with the same bytes.
fn mysql_client_part() -> Vec<u8> {
    const PACKET_MAX: u32 = 1 << 24;
    const UTF8MB4: u8 = 45;
    let mut part = Vec::with_capacity(32);
    part.extend_from_slice(&MYSQL_CAPABILITIES.to_le_bytes());
    part.extend_from_slice(&PACKET_MAX.to_le_bytes());
    part.push(UTF8MB4);
    part.resize(32, 0);
    part
}

/// HandshakeResponse for the user `dormouse` without a password, which the server answers and most refuse.
pub(super) fn mysql_login() -> Vec<u8> {
    let mut login = mysql_client_part();
    login.extend_from_slice(b"dormouse\0\0mysql_native_password\0");
    mysql_packet(2, &login)
}

fn mysql_packet(number: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len()).unwrap_or(0).to_le_bytes();
    let mut packet = length.get(..3).unwrap_or_default().to_vec();
    packet.push(number);
    packet.extend_from_slice(body);
    packet
}
