//! A client's session tickets, which arrive after the handshake.

use dormouse_embed::{UnixTime, at_rest};

use crate::boundary::dormouse_connection;
use crate::connection::{dormouse_received, receive};
use crate::handshake::{dormouse_handshake, with};

/// Like dormouse_receive(), for a client that uses the server's session tickets: `handshake` receives them. It
/// must be the finished, unfreed handshake of this connection. Use this function until
/// dormouse_handshake_awaits_tickets() returns 0, or until you have waited long enough (a second is plenty);
/// then free the handshake.
///
/// # Safety
/// See dormouse_receive().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dormouse_receive_tickets(
    connection: *mut dormouse_connection,
    handshake: dormouse_handshake,
    buffer: *mut u8,
    buffer_len: usize,
    output: *mut u8,
    output_room: usize,
) -> dormouse_received {
    let received = with(handshake, |handshake| {
        let tickets = handshake.tickets.as_mut();
        // SAFETY: guaranteed by the caller.
        let received = unsafe {
            receive(
                connection,
                (buffer, buffer_len),
                (output, output_room),
                |state, buffer, output| {
                    at_rest::receive(state, UnixTime::now(), buffer, output, tickets)
                },
            )
        };
        handshake.drop_satisfied_tickets();
        Ok(received)
    });
    received.unwrap_or_else(dormouse_received::none)
}

/// Returns 1 if a client's handshake waits for session tickets: see dormouse_receive_tickets().
#[unsafe(no_mangle)]
pub extern "C" fn dormouse_handshake_awaits_tickets(handshake: dormouse_handshake) -> i32 {
    let awaits = with(handshake, |handshake| Ok(handshake.tickets.is_some()));
    i32::from(awaits.unwrap_or(false))
}
