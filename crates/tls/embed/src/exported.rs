//! Sessions as bytes, so that they can continue in another process or after a restart.
//!
//! ```text
//! | state 128 |                                                                    at rest
//! | state 128 | received 4 | unsent 4 | received bytes | unsent bytes |          otherwise
//! ```
//!
//! Lengths are little-endian; the state has the machine's byte order, as in memory.

use dormouse_engine::stream::Connection;
use dormouse_record::State;
use zerocopy::IntoBytes as _;
use zeroize::Zeroizing;

use crate::error::{ImportError, SessionError};
use crate::session::{Flight, Session};

/// Length of a session at rest.
pub const STATE_LEN: usize = size_of::<State>();

/// Maximum length of an export.
pub const EXPORT_MAX: usize = 1 << 30;

const LENGTHS: usize = 8;

impl Session {
    /// Ends this session here and returns the bytes with which it continues elsewhere, together with its
    /// socket: 128 bytes if it is at rest. They are secret.
    ///
    /// Import the bytes exactly once. If two sessions continue from them, both use the same key with the same
    /// sequence numbers, which reveals plaintext to an attacker. So a session can be exported only once.
    /// Tickets that have not arrived yet are ignored.
    ///
    /// # Errors
    /// The session cannot be exported. With more than [`EXPORT_MAX`] bytes in flight it is [`SessionError::Unsent`], and
    /// the session continues here.
    pub fn export(&mut self) -> Result<Zeroizing<Vec<u8>>, SessionError> {
        if self.is_handshaking() {
            return Err(SessionError::Handshaking);
        }
        if self.state.is_empty() && !matches!(self.flight.as_deref(), Some(Flight::Poisoned)) {
            return Err(SessionError::Exported);
        }
        let room = export_len(self.unopened().len(), self.output().len())?;
        self.ignore_tickets();
        let (mut received, mut unsent) = (Zeroizing::new(Vec::new()), Vec::new());
        match self.flight.as_deref_mut() {
            Some(Flight::Poisoned) => return Err(SessionError::Poisoned),
            _ if self.state.failed() => return Err(SessionError::Failed),
            Some(Flight::Connection(connection)) => {
                unsent = connection.take_output();
                *received = connection.take_unopened();
            }
            Some(Flight::Hello { .. }) | None => {}
        }
        let mut bytes = Zeroizing::new(Vec::with_capacity(room));
        bytes.extend_from_slice(self.state.as_bytes());
        if room > STATE_LEN {
            for part in [received.len(), unsent.len()] {
                bytes.extend_from_slice(&(part as u32).to_le_bytes());
            }
            bytes.extend_from_slice(&received);
            bytes.extend_from_slice(&unsent);
        }
        self.state.wipe();
        self.flight = None;
        Ok(bytes)
    }

    /// Restores an exported session. Wipe the bytes afterwards, and never use them again.
    ///
    /// The state is checked: layout version, codes, flags and ranges.
    pub fn import(bytes: &[u8]) -> Result<Session, ImportError> {
        let wrong = ImportError::Length(bytes.len());
        let (state, rest) = bytes.split_at_checked(STATE_LEN).ok_or(wrong)?;
        let mut session = Session {
            state: State::empty(),
            flight: None,
        };
        session.state.as_mut_bytes().copy_from_slice(state);
        session.state.validate().map_err(ImportError::State)?;
        if rest.is_empty() {
            return Ok(session);
        }
        let (received_len, rest) = rest.split_first_chunk::<4>().ok_or(wrong)?;
        let (unsent_len, rest) = rest.split_first_chunk::<4>().ok_or(wrong)?;
        let [received_len, unsent_len] =
            [received_len, unsent_len].map(|len| u32::from_le_bytes(*len) as usize);
        let (received, unsent) = rest.split_at_checked(received_len).ok_or(wrong)?;
        if unsent.len() != unsent_len || bytes.len() > EXPORT_MAX {
            return Err(wrong);
        }
        let connection = Connection::in_flight(received.to_vec(), unsent.to_vec());
        session.flight = Some(Box::new(Flight::Connection(connection)));
        Ok(session)
    }
}

/// Length of an export with these bytes in flight, if it can be imported.
fn export_len(received: usize, unsent: usize) -> Result<usize, SessionError> {
    let len = match received.saturating_add(unsent) {
        0 => STATE_LEN,
        parts => parts.saturating_add(STATE_LEN + LENGTHS),
    };
    match len <= EXPORT_MAX {
        true => Ok(len),
        false => Err(SessionError::Unsent),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_export_is_longer_than_an_import_may_be() {
        assert_eq!(export_len(0, 0), Ok(STATE_LEN));
        assert_eq!(export_len(5, 7), Ok(STATE_LEN + LENGTHS + 12));
        let most = EXPORT_MAX - STATE_LEN - LENGTHS;
        assert_eq!(export_len(0, most), Ok(EXPORT_MAX));
        for (received, unsent) in [(1, most), (most + 1, 0), (usize::MAX, 1)] {
            assert_eq!(export_len(received, unsent), Err(SessionError::Unsent));
        }
    }
}
