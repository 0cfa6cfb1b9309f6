//! What a packet means for a connection that has no socket.

use dormouse_reactor::tcp_state::TcpState;

use crate::segment::{Flags, Segment};

/// Distance from the next number beyond which a packet is not of this connection's present. The kernel's filter has
/// dropped most of these.
const WINDOW: u32 = 65_536;

/// What to do about a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    /// Nothing.
    Drop,
    /// The peer is alive, and its window is now this.
    Note {
        /// The window field.
        window: u16,
    },
    /// Send an acknowledgement: the peer asks whether we live, missed one, or is not the peer at all.
    Acknowledge,
    /// The peer has reset the connection.
    Gone,
    /// Data, or the end of the stream: the connection needs its socket.
    Wake,
}

/// Decides about a packet that has a record's addresses. Follows RFC 9293 §3.10.7.4 and RFC 5961 for an established
/// connection that has sent nothing which is not acknowledged.
pub fn answer(state: &TcpState, segment: &Segment) -> Answer {
    // An answer to a SYN or RST with another number makes a true peer that forgot the connection send a RST with the
    // right one; a false one learns nothing.
    if segment.flags.has(Flags::RST) {
        return match segment.sequence.wrapping_sub(state.receive_next()) {
            0 => Answer::Gone,
            1..WINDOW => Answer::Acknowledge,
            _ => Answer::Drop,
        };
    }
    if segment.flags.has(Flags::SYN) {
        return Answer::Acknowledge;
    }
    let is_old = state.send_next().wrapping_sub(segment.acknowledgement) < WINDOW;
    if !segment.flags.has(Flags::ACK) || !is_old {
        return Answer::Drop;
    }
    let beyond = segment.end().wrapping_sub(state.receive_next()) as i32;
    let ahead = segment.sequence.wrapping_sub(state.receive_next());
    match beyond {
        1.. if ahead < WINDOW || (ahead as i32) < 0 => Answer::Wake,
        1.. => Answer::Drop,
        0 if segment.data_len == 0 && !segment.flags.has(Flags::FIN) => Answer::Note {
            window: segment.window,
        },
        // A probe has the number before the next one; old data means that our acknowledgement was lost.
        _ => Answer::Acknowledge,
    }
}

#[cfg(test)]
mod tests;
