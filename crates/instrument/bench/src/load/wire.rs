//! Received bytes of a TLS connection, as results of a measurement.

use dormouse_engine::stream::{Connection, End, Event};
use dormouse_engine::{HandshakeInfo, UnixTime, alert_name};
use dormouse_record::{CONTENT_MAX, State};

/// Maximum plaintext that is sealed before it is sent.
pub(super) const SEAL_AHEAD: usize = 4 * CONTENT_MAX;

/// The contents of received bytes.
pub(super) enum Received {
    /// Plaintext, or nothing; all of it was passed on.
    All,
    /// The end of the handshake. Bytes after it are not taken yet.
    Established(Box<HandshakeInfo>),
    /// The peer will send nothing more.
    Ended,
}

/// Opens `bytes` and passes the plaintext to `take`.
pub(super) fn receive<E: From<String>>(
    connection: &mut Connection,
    tls: &mut State,
    mut bytes: &mut [u8],
    mut take: impl FnMut(&[u8]) -> Result<(), E>,
) -> Result<Received, E> {
    let now = UnixTime::now();
    loop {
        match connection.handle(tls, now, &mut bytes) {
            Event::InputUsed => return Ok(Received::All),
            Event::Established(info) => return Ok(Received::Established(info)),
            Event::Data(plain) => take(plain)?,
            Event::Ticket(_) => {}
            Event::Ended(End::Closed | End::Truncated) => return Ok(Received::Ended),
            Event::Ended(End::Alert(number)) => {
                let name = alert_name(number);
                return Err(format!("the server sent a fatal alert: {name}").into());
            }
            Event::Ended(End::Refused(refusal)) => {
                return Err(format!("record refused: {refusal}").into());
            }
            Event::Ended(End::Handshake(failure)) => return Err(failure.reason.into()),
        }
    }
}
