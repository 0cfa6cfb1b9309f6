//! Effects of an alert from the peer on the state (RFC 8446 §6, RFC 5246 §7.2).

use crate::alert::AlertDescription;
use crate::error::Reason;
use crate::layout::{CLOSED, FAILED, HALF_FATAL, HALF_WARNING, PEER_CLOSED};
use crate::limits::WARNINGS_MAX;
use crate::state::State;
use crate::suite::Version;

/// Effect of the alerts in one record.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Received {
    /// Warnings only, or half an alert: the connection continues.
    Warnings,
    Closed,
    Failed(u8),
}

/// Processes the content of an alert record, which is not empty.
pub(crate) fn receive(state: &mut State, content: &[u8]) -> Result<Received, Reason> {
    match state.version() {
        Version::Tls13 => receive_tls13(state, content),
        Version::Tls12 => receive_tls12(state, content),
    }
}

/// "a record with an Alert type MUST contain exactly one message" (RFC 8446 §5.1). The level "can safely be
/// ignored" (§6); only the description counts.
fn receive_tls13(state: &mut State, content: &[u8]) -> Result<Received, Reason> {
    let &[_level, description] = content else {
        return Err(Reason::AlertLength(content.len()));
    };
    match description {
        CLOSE_NOTIFY => Ok(close(state)),
        // The peer will send a close_notify next.
        USER_CANCELED => warn(state).map(|()| Received::Warnings),
        // "Unknown Alert types MUST be treated as error alerts" (§6), like all other alerts.
        _ => Ok(fail(state, description)),
    }
}

/// The closure alerts (RFC 8446 §6.1). In TLS 1.3 all other alerts are errors.
const CLOSE_NOTIFY: u8 = AlertDescription::CloseNotify.code();
const USER_CANCELED: u8 = AlertDescription::UserCanceled.code();

/// Whether this is a well-formed TLS 1.3 error alert.
pub(crate) fn is_error(version: Version, content: &[u8]) -> bool {
    version == Version::Tls13
        && matches!(content, &[_, description] if ![CLOSE_NOTIFY, USER_CANCELED].contains(&description))
}

/// RFC 5246 §6.2.1 allows several alerts in a record, and an alert split over two records.
fn receive_tls12(state: &mut State, content: &[u8]) -> Result<Received, Reason> {
    for &byte in content {
        let fatal = state.has(HALF_FATAL);
        if !fatal && !state.has(HALF_WARNING) {
            state.set(match byte {
                1 => HALF_WARNING,
                2 => HALF_FATAL,
                _ => return Err(Reason::AlertLevel(byte)),
            });
            continue;
        }
        state.unset(HALF_WARNING | HALF_FATAL);
        if byte == CLOSE_NOTIFY {
            return Ok(close(state));
        }
        if fatal {
            return Ok(fail(state, byte));
        }
        warn(state)?;
    }
    Ok(Received::Warnings)
}

/// "Any data received after a closure alert has been received MUST be ignored" (RFC 8446 §6.1). Our own
/// direction stays open: see half-close in the crate's documentation.
fn close(state: &mut State) -> Received {
    state.set(PEER_CLOSED);
    Received::Closed
}

/// "Upon transmission or receipt of a fatal alert message, both parties MUST immediately close the connection"
/// (RFC 8446 §6.2): nothing more is sent or received, not even an alert of ours.
fn fail(state: &mut State, description: u8) -> Received {
    state.set(FAILED | PEER_CLOSED | CLOSED);
    Received::Failed(description)
}

/// Counts a warning, or a renegotiation request that we answer with a warning.
pub(crate) fn warn(state: &mut State) -> Result<(), Reason> {
    if state.warnings >= WARNINGS_MAX {
        return Err(Reason::TooManyWarnings);
    }
    state.warnings += 1;
    Ok(())
}
