//! Protocols of binary messages: LDAP and PostgreSQL.

use super::answer::{Heard, Reason, refused};
use super::message::{Answer, Read, Refusal, State};

const NO_LDAP: Refusal = "the client's bytes are not LDAP";
const BER_SEQUENCE: u8 = 0x30;
const BER_INTEGER: u8 = 0x02;
const LDAP_EXTENDED_REQUEST: u8 = 0x77;
const LDAP_EXTENDED_RESPONSE: u8 = 0x78;
const LDAP_UNBIND: u8 = 0x42;
const LDAP_REQUEST_ID: u8 = 1;
const LDAP_SUCCESS: u8 = 0;
/// confidentialityRequired (RFC 4511 Appendix A.2).
const LDAP_NEEDS_TLS: u8 = 13;
/// Tag of the requestName of an ExtendedRequest.
const LDAP_REQUEST_NAME: u8 = 0x80;
/// The requestName for StartTLS (RFC 4511 §4.14.1).
const LDAP_STARTTLS: &[u8] = b"1.3.6.1.4.1.1466.20037";

/// Reads an LDAPMessage: its id, then the operation.
pub(super) fn ldap(received: &[u8]) -> Result<Option<Read>, Refusal> {
    // What is not a sequence will be none, however it goes on.
    if received.first().is_some_and(|&tag| tag != BER_SEQUENCE) {
        return Err(NO_LDAP);
    }
    let Some((_, message, len)) = element(received)? else {
        return Ok(None);
    };
    let (tag, id, id_len) = element(message)?.ok_or(NO_LDAP)?;
    if tag != BER_INTEGER || !(1..=4).contains(&id.len()) {
        return Err(NO_LDAP);
    }
    let operation = message.get(id_len..).unwrap_or_default();
    let (operation, content, _) = element(operation)?.ok_or(NO_LDAP)?;
    let response = match operation {
        LDAP_EXTENDED_REQUEST if asks_for_tls(content)? => {
            let answer = ldap_result(id, LDAP_EXTENDED_RESPONSE, LDAP_SUCCESS, b"");
            return Ok(Some(Read::of(len, Answer::StartTls(answer))));
        }
        LDAP_UNBIND => {
            let quit = Answer::End(Vec::new(), "the client quit without TLS");
            return Ok(Some(Read::of(len, quit)));
        }
        // bind, search, modify, add, delete, rename, compare
        0x60 | 0x63 | 0x66 | 0x68 | 0x6c | 0x6e => match operation {
            0x63 => 0x65,
            request => request + 1,
        },
        0x4a => 0x6b,
        LDAP_EXTENDED_REQUEST => LDAP_EXTENDED_RESPONSE,
        _ => return Err(NO_LDAP),
    };
    let answer = ldap_result(id, response, LDAP_NEEDS_TLS, b"StartTLS first");
    Ok(Some(Read::of(len, Answer::Say(answer, State::Speaking))))
}

/// Whether an ExtendedRequest is the one for StartTLS, which has a name and no value.
fn asks_for_tls(request: &[u8]) -> Result<bool, Refusal> {
    let name = element(request)?;
    Ok(name == Some((LDAP_REQUEST_NAME, LDAP_STARTTLS, request.len())))
}

/// LDAPMessage 1: the ExtendedRequest for StartTLS.
pub(super) fn ldap_request() -> Vec<u8> {
    let name = [&[LDAP_REQUEST_NAME, short(LDAP_STARTTLS)], LDAP_STARTTLS].concat();
    let operation = [&[LDAP_EXTENDED_REQUEST, short(&name)], name.as_slice()].concat();
    let message = [&[BER_INTEGER, 1, LDAP_REQUEST_ID], operation.as_slice()].concat();
    [&[BER_SEQUENCE, short(&message)], message.as_slice()].concat()
}

/// Reads the response to [`ldap_request`]: its id, then the result's code, name and text.
pub(super) fn ldap_consent(received: &[u8]) -> Result<Option<Heard>, Reason> {
    const NO_LDAP: &str = "the server does not answer with LDAP";
    // What is not a sequence will be none, however it goes on.
    if received.first().is_some_and(|&tag| tag != BER_SEQUENCE) {
        return Err(NO_LDAP.to_owned());
    }
    let Some((_, message, len)) = element(received).map_err(|_| NO_LDAP)? else {
        return Ok(None);
    };
    let next = |bytes| element(bytes).ok().flatten().ok_or(NO_LDAP);
    let (_, id, id_len) = next(message)?;
    let (operation, result, _) = next(message.get(id_len..).unwrap_or_default())?;
    let (_, code, code_len) = next(result)?;
    if operation != LDAP_EXTENDED_RESPONSE {
        return Err(NO_LDAP.to_owned());
    }
    match (id, code) {
        ([LDAP_REQUEST_ID], [LDAP_SUCCESS]) => Ok(Some(Heard::Awaited(len))),
        (_, code) => {
            let (_, _, name_len) = next(result.get(code_len..).unwrap_or_default())?;
            let (_, text, _) = next(result.get(code_len + name_len..).unwrap_or_default())?;
            let code = code.last().copied().unwrap_or_default();
            let text = String::from_utf8_lossy(text);
            Err(refused(format!("LDAP result {code}: {text}").as_bytes()))
        }
    }
}

/// A response with a result code and a text for people.
fn ldap_result(id: &[u8], response: u8, code: u8, text: &[u8]) -> Vec<u8> {
    let result = [&[0x0a, 1, code, 0x04, 0, 0x04, short(text)], text].concat();
    let response = [&[response, short(&result)], result.as_slice()].concat();
    let id = [&[BER_INTEGER, short(id)], id].concat();
    let message = [id, response].concat();
    [&[BER_SEQUENCE, short(&message)], message.as_slice()].concat()
}

/// The length of our own short contents.
fn short(content: &[u8]) -> u8 {
    u8::try_from(content.len())
        .ok()
        .filter(|&len| len < 0x80)
        .expect("a short content")
}

/// An element of BER: its tag, its content, and its length with the head.
type Element<'a> = (u8, &'a [u8], usize);

/// Reads an element; `None` if more bytes are needed. Its length is written in four bytes at most: Windows always
/// writes that many.
fn element(bytes: &[u8]) -> Result<Option<Element<'_>>, Refusal> {
    let (Some(&tag), Some(&first)) = (bytes.first(), bytes.get(1)) else {
        return Ok(None);
    };
    let (head, len) = match usize::from(first) {
        len @ ..=0x7f => (2, len),
        0x81..=0x84 => {
            let count = usize::from(first & 0x7f);
            let Some(long) = bytes.get(2..2 + count) else {
                return Ok(None);
            };
            let len = long
                .iter()
                .fold(0, |sum, &byte| sum << 8 | usize::from(byte));
            (2 + count, len)
        }
        _ => return Err(NO_LDAP),
    };
    let content = bytes.get(head..head + len);
    Ok(content.map(|content| (tag, content, head + len)))
}

/// The codes of PostgreSQL's first messages.
const SSL_REQUEST: [u8; 4] = 80_877_103_u32.to_be_bytes();
const GSS_REQUEST: [u8; 4] = 80_877_104_u32.to_be_bytes();
const CANCEL_REQUEST: [u8; 4] = 80_877_102_u32.to_be_bytes();
/// The content type of a TLS record with a ClientHello.
const TLS_HANDSHAKE: u8 = 22;

/// Reads the first message: its length, then its code. A client may also begin with TLS (`sslnegotiation=direct`).
pub(super) fn postgres(received: &[u8]) -> Result<Option<Read>, Refusal> {
    if received.first() == Some(&TLS_HANDSHAKE) {
        return Ok(Some(Read::of(0, Answer::IsTls)));
    }
    let Some((&len, rest)) = received.split_first_chunk::<4>() else {
        return Ok(None);
    };
    let Some(&code) = rest.first_chunk::<4>() else {
        return Ok(None);
    };
    let answer = match (u32::from_be_bytes(len), code) {
        (8, SSL_REQUEST) => Answer::StartTls(b"S".to_vec()),
        (8, GSS_REQUEST) => Answer::Say(NO_ENCRYPTION.to_vec(), State::Speaking),
        // Since protocol 3.2 the secret key of a session may be longer than four bytes.
        (16.., CANCEL_REQUEST) => Answer::End(
            Vec::new(),
            "the client sent a request to cancel in plaintext",
        ),
        (8.., [0, 3, _, _]) => Answer::End(
            postgres_error("28000", "this server accepts connections with TLS only"),
            "the client began without TLS",
        ),
        _ => return Err("the client's bytes are not PostgreSQL's protocol"),
    };
    Ok(Some(Read::of(8, answer)))
}

/// SSLRequest.
pub(super) fn postgres_request() -> Vec<u8> {
    [8_u32.to_be_bytes(), SSL_REQUEST].concat()
}

/// Reads the answer to [`postgres_request`], a single byte.
pub(super) fn postgres_consent(received: &[u8]) -> Result<Option<Heard>, Reason> {
    match received {
        [] => Ok(None),
        [b'S', ..] => Ok(Some(Heard::Awaited(1))),
        [b'N', ..] => Err("the server answered N: it has no TLS".to_owned()),
        answer => Err(refused(answer)),
    }
}

/// How a client of PostgreSQL begins on a connection that `connect` encrypts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Beginning {
    /// Its first message may become a request for encryption.
    Partial,
    /// It asks for encryption, and is told that there is none here: a server that has TLS already does not expect that.
    /// The request has this length.
    AsksForEncryption(usize),
    /// Everything is for the server.
    Session,
}

/// Finds out how a client begins.
pub fn postgres_beginning(received: &[u8]) -> Beginning {
    let requests = [SSL_REQUEST, GSS_REQUEST].map(|code| [8_u32.to_be_bytes(), code].concat());
    for request in &requests {
        if received.starts_with(request) {
            return Beginning::AsksForEncryption(request.len());
        }
    }
    match requests.iter().any(|one| one.starts_with(received)) {
        true => Beginning::Partial,
        false => Beginning::Session,
    }
}

/// What a client that asks for encryption is told.
pub(crate) const NO_ENCRYPTION: &[u8] = b"N";

/// ErrorResponse.
fn postgres_error(code: &str, message: &str) -> Vec<u8> {
    let fields = format!("SFATAL\0VFATAL\0C{code}\0M{message}\0\0");
    let len = u32::try_from(4 + fields.len()).expect("a short message");
    [b"E", &len.to_be_bytes()[..], fields.as_bytes()].concat()
}
