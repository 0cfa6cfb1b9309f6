//! Handshake messages that arrive after the handshake, fragmented in any way.
//!
//! Of a message, the state stores only the header (four bytes) and the number of remaining bytes. That is
//! enough: a KeyUpdate's value is its last byte, tickets are passed to the caller as they arrive, and of a
//! ClientHello that requests renegotiation only the end matters.

use crate::error::Reason;
use crate::key::OpenKey;
use crate::layout::{KEY_UPDATE_ASKED, KEY_UPDATE_REQUESTED};
use crate::limits::{HANDSHAKE_MESSAGE_MAX, KEY_UPDATES_MAX};
use crate::peer_alert::warn;
use crate::state::{Direction, State};
use crate::suite::{Role, Version};

const HELLO_REQUEST: u8 = 0;
const CLIENT_HELLO: u8 = 1;
const NEW_SESSION_TICKET: u8 = 4;
const KEY_UPDATE: u8 = 24;
const HEADER_LEN: u8 = 4;

/// Effects of the handshake bytes of one record.
#[derive(Default)]
pub(crate) struct Received {
    /// Bytes at the start of the content that belong to tickets.
    pub(crate) ticket_len: usize,
    /// Whether a renegotiation request was completed.
    pub(crate) renegotiation: bool,
}

/// Processes the content of a handshake record, which is not empty.
pub(crate) fn receive(
    state: &mut State,
    key: &mut OpenKey,
    content: &[u8],
) -> Result<Received, Reason> {
    let mut received = Received::default();
    let mut at = 0;
    while at < content.len() {
        at += if state.message_have < HEADER_LEN {
            take_header_byte(state, content[at])?
        } else {
            take_body(state, &content[at..])
        };
        let kind = state.message_header[0];
        if kind == NEW_SESSION_TICKET {
            received.ticket_len = at;
        }
        if state.message_have == HEADER_LEN && state.message_left == 0 {
            let last = content[at - 1];
            state.message_have = 0;
            state.message_header = [0; 4];
            match kind {
                KEY_UPDATE if at < content.len() => return Err(Reason::KeyUpdateNotAtBoundary),
                KEY_UPDATE => update_read_key(state, key, last)?,
                HELLO_REQUEST | CLIENT_HELLO => {
                    warn(state)?;
                    received.renegotiation = true;
                }
                _ => {}
            }
        }
    }
    Ok(received)
}

/// Checks a message as early as possible: its type at the first byte, its length at the last header byte.
fn take_header_byte(state: &mut State, byte: u8) -> Result<usize, Reason> {
    let have = usize::from(state.message_have);
    state.message_header[have] = byte;
    state.message_have += 1;
    if have == 0 {
        expect(state.version(), state.role(), byte)?;
    }
    if state.message_have == HEADER_LEN {
        let [kind, high, middle, low] = state.message_header;
        let body_len = u32::from_be_bytes([0, high, middle, low]);
        state.message_left = expect_len(kind, body_len)?;
    }
    Ok(1)
}

fn take_body(state: &mut State, rest: &[u8]) -> usize {
    let taken = rest.len().min(usize::from(state.message_left));
    // `taken` is at most `message_left`, which is a u16.
    state.message_left -= taken as u16;
    taken
}

/// Accepts only the messages that are allowed after the handshake (RFC 8446 §4.6, RFC 5246 §7.4.1).
///
/// In TLS 1.3 a ClientHello after the handshake: "it MUST terminate the connection with an "unexpected_message"
/// alert" (§4.1.2). A CertificateRequest, since we never offer post_handshake_auth: "MUST send an
/// "unexpected_message" fatal alert" (§4.6.2). All other messages are unexpected too (§6.2).
fn expect(version: Version, role: Role, kind: u8) -> Result<(), Reason> {
    match (version, role, kind) {
        (Version::Tls13, _, KEY_UPDATE)
        | (Version::Tls13, Role::Client, NEW_SESSION_TICKET)
        | (Version::Tls12, Role::Server, CLIENT_HELLO)
        | (Version::Tls12, Role::Client, HELLO_REQUEST) => Ok(()),
        _ => Err(Reason::HandshakeType(kind)),
    }
}

fn expect_len(kind: u8, body_len: u32) -> Result<u16, Reason> {
    match (kind, body_len) {
        (KEY_UPDATE, 1) | (HELLO_REQUEST, 0) => {}
        (KEY_UPDATE | HELLO_REQUEST, _) => return Err(Reason::HandshakeLength(kind, body_len)),
        _ => {}
    }
    match u16::try_from(body_len) {
        Ok(len) if usize::from(len) <= HANDSHAKE_MESSAGE_MAX => Ok(len),
        _ => Err(Reason::HandshakeTooLong(kind, body_len)),
    }
}

/// "After receiving a KeyUpdate, the receiver MUST update its receiving keys" (RFC 8446 §4.6.3).
fn update_read_key(state: &mut State, key: &mut OpenKey, request_update: u8) -> Result<(), Reason> {
    if request_update > 1 {
        return Err(Reason::KeyUpdateValue(request_update));
    }
    if state.key_updates >= KEY_UPDATES_MAX {
        return Err(Reason::TooManyKeyUpdates);
    }
    state.key_updates += 1;
    if request_update == 1 {
        state.set(KEY_UPDATE_REQUESTED);
    }
    state.unset(KEY_UPDATE_ASKED);
    if !state.replace_secret(Direction::Read) {
        return Err(Reason::Cipher);
    }
    key.0.expand(state, Direction::Read);
    Ok(())
}
