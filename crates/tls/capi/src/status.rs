//! Status codes and messages.

use std::ffi::{CStr, c_char};

use dormouse_embed::{Corrupt, SealError, SessionError};

/// Status of a call. Anything but DORMOUSE_OK means that nothing was done, unless the function says otherwise.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum dormouse_status {
    /// Success.
    DORMOUSE_OK = 0,
    /// A null or misaligned pointer, an impossible length, or an unknown value.
    DORMOUSE_BAD_ARGUMENT = 1,
    /// Two buffers of one call overlap.
    DORMOUSE_OVERLAP = 2,
    /// The output has too little room; the result says how much is required (dormouse_receive():
    /// DORMOUSE_ANSWER_MAX).
    DORMOUSE_TOO_SMALL = 3,
    /// No such object: the handle is zero, was freed, or belongs to another kind.
    DORMOUSE_NO_SUCH_HANDLE = 4,
    /// The object is in use by another thread, or by the call that runs this callback.
    DORMOUSE_BUSY = 5,
    /// The 128 bytes hold no connection: empty, wiped, or another version.
    DORMOUSE_NO_CONNECTION = 6,
    /// The 128 bytes are damaged.
    DORMOUSE_BAD_CONNECTION = 7,
    /// The handshake is not done yet.
    DORMOUSE_HANDSHAKING = 8,
    /// The handshake has failed.
    DORMOUSE_HANDSHAKE_FAILED = 9,
    /// The handshake is done, and its connection was taken.
    DORMOUSE_FINISHED = 10,
    /// Output of the handshake is waiting: send it first.
    DORMOUSE_OUTPUT_WAITING = 11,
    /// A close_notify or fatal alert was sent, or a fatal alert received: nothing more can be sent.
    DORMOUSE_CLOSED = 12,
    /// The connection has failed: only a fatal alert can still be sent.
    DORMOUSE_FAILED = 13,
    /// The key reached its limit (RFC 8446 section 5.5). A TLS 1.2 connection must close.
    DORMOUSE_KEY_EXHAUSTED = 14,
    /// TLS 1.2 has no KeyUpdate.
    DORMOUSE_NOT_TLS13 = 15,
    /// Settings, a certificate or a key that cannot be used; the message says why.
    DORMOUSE_BAD_SETTINGS = 16,
    /// Not available: no such certificate, or the exporter is not enabled.
    DORMOUSE_NONE = 17,
    /// An internal error ended this connection or handshake; others are not affected.
    DORMOUSE_PANIC = 18,
    /// The cryptographic library reported an error.
    DORMOUSE_LIBRARY = 19,
}

pub(crate) use dormouse_status::*;

/// Size of a message, including its terminating zero.
pub const DORMOUSE_MESSAGE_MAX: usize = 252;

/// Status of a call that reads settings, with the reason in words.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct dormouse_result {
    /// The status.
    pub status: dormouse_status,
    /// UTF-8, terminated by a zero; truncated if too long, empty on success.
    pub message: [c_char; DORMOUSE_MESSAGE_MAX],
}

impl dormouse_result {
    pub(crate) const OK: dormouse_result = dormouse_result {
        status: DORMOUSE_OK,
        message: [0; DORMOUSE_MESSAGE_MAX],
    };

    pub(crate) fn new(status: dormouse_status, words: &str) -> dormouse_result {
        let mut message = [0; DORMOUSE_MESSAGE_MAX];
        write_text(words, &mut message);
        dormouse_result { status, message }
    }
}

impl From<dormouse_status> for dormouse_result {
    fn from(status: dormouse_status) -> Self {
        match status {
            DORMOUSE_OK => dormouse_result::OK,
            status => dormouse_result::new(status, text(status)),
        }
    }
}

/// Why a call that reads settings failed.
#[derive(Debug)]
pub(crate) struct Refusal {
    status: dormouse_status,
    words: String,
}

impl Refusal {
    /// Returns a refusal of the settings.
    pub(crate) fn settings(why: impl std::fmt::Display) -> Refusal {
        Refusal {
            status: DORMOUSE_BAD_SETTINGS,
            words: why.to_string(),
        }
    }
}

impl From<dormouse_status> for Refusal {
    fn from(status: dormouse_status) -> Self {
        Refusal {
            status,
            words: text(status).to_owned(),
        }
    }
}

impl From<Refusal> for dormouse_result {
    fn from(refusal: Refusal) -> Self {
        dormouse_result::new(refusal.status, &refusal.words)
    }
}

/// Writes text for C: whole characters, no zeros inside, and a terminating zero.
pub(crate) fn write_text(words: &str, room: &mut [c_char]) {
    let mut end = words.len().min(room.len().saturating_sub(1));
    while !words.is_char_boundary(end) {
        end -= 1;
    }
    let kept = words.as_bytes().get(..end).unwrap_or_default();
    for (to, from) in room.iter_mut().zip(kept) {
        *to = if *from == 0 { b'?' } else { *from } as c_char;
    }
    if let Some(end) = room.get_mut(end) {
        *end = 0;
    }
}

fn text(status: dormouse_status) -> &'static str {
    TEXTS[status as usize].to_str().unwrap_or_default()
}

/// The texts in the order of their numbers.
const TEXTS: [&CStr; 20] = [
    c"done",
    c"bad argument: a null or misaligned pointer, an impossible length, or an unknown value",
    c"two buffers overlap",
    c"the output has too little room",
    c"no such object: the handle is zero, was freed, or belongs to another kind",
    c"the object is in use by another thread, or by the call that runs this callback",
    c"the memory holds no connection: empty, wiped, or another version",
    c"the memory of the connection is damaged",
    c"the handshake is not done yet",
    c"the handshake has failed",
    c"the handshake is done, and its connection was taken",
    c"output of the handshake is waiting to be sent",
    c"the connection is closed for sending",
    c"the connection has failed",
    c"the key reached its limit; close the connection",
    c"TLS 1.2 has no KeyUpdate",
    c"the settings cannot be used",
    c"not available",
    c"an internal error ended this connection",
    c"the cryptographic library reported an error",
];

/// Returns the text of a status: a constant string.
#[unsafe(no_mangle)]
pub extern "C" fn dormouse_status_text(status: u32) -> *const c_char {
    let text = TEXTS.get(status as usize);
    text.map_or(c"no such status", |text| *text).as_ptr()
}

impl From<SealError> for dormouse_status {
    fn from(error: SealError) -> Self {
        match SessionError::from(error) {
            SessionError::Closed => DORMOUSE_CLOSED,
            SessionError::Failed => DORMOUSE_FAILED,
            SessionError::KeyExhausted => DORMOUSE_KEY_EXHAUSTED,
            SessionError::NotTls13 => DORMOUSE_NOT_TLS13,
            SessionError::BufferTooSmall { .. } => DORMOUSE_TOO_SMALL,
            SessionError::TooLong(_) => DORMOUSE_BAD_ARGUMENT,
            SessionError::Handshaking => DORMOUSE_NO_CONNECTION,
            _ => DORMOUSE_LIBRARY,
        }
    }
}

impl From<Corrupt> for dormouse_status {
    fn from(corrupt: Corrupt) -> Self {
        match corrupt {
            Corrupt::Empty | Corrupt::Layout(_) => DORMOUSE_NO_CONNECTION,
            _ => DORMOUSE_BAD_CONNECTION,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_has_a_text() {
        assert_eq!(text(DORMOUSE_OK), "done");
        assert_eq!(
            text(DORMOUSE_LIBRARY),
            "the cryptographic library reported an error"
        );
        assert_eq!(DORMOUSE_LIBRARY as usize + 1, TEXTS.len());
    }

    #[test]
    fn text_is_truncated_between_characters_and_ends_with_zero() {
        let mut room = [1; 6];
        write_text("aé\0éé", &mut room);
        assert_eq!(room.map(|c| c as u8), [b'a', 0xc3, 0xa9, b'?', 0, 1]);
        write_text("", &mut room);
        assert_eq!(room[0], 0);
    }
}
