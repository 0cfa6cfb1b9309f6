//! Tokens: epoll's 64 bits of user data per descriptor.
//!
//! A token names the owner of an event and its generation, so that an event of a connection that has
//! ended is not attributed to the next connection in its place.
//!
//! ```text
//! | kind 4 | generation 28 | index 32 |
//! ```

const GENERATION_BITS: u32 = 28;

/// The bits of a generation that a token holds.
pub(crate) const GENERATION_MASK: u32 = (1 << GENERATION_BITS) - 1;

/// Index and generation of a table entry.
pub(crate) type Id = (u32, u32);

pub(crate) use dormouse_handover::slot::Side;

/// Owner of an event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Token {
    Connection(Id, Side),
    Handshake(Id),
    /// An outbound TLS connection that is not established yet.
    Origination(Id),
    Listener(usize),
    /// The channel to main.
    Orders,
    /// The channel to the repair process.
    Repair,
    Unknown,
}

fn pack(kind: u64, (index, generation): Id) -> u64 {
    kind << 60 | u64::from(generation & GENERATION_MASK) << 32 | u64::from(index)
}

pub(crate) fn connection(id: Id, side: Side) -> u64 {
    pack(if side == Side::Tls { 1 } else { 2 }, id)
}

pub(crate) fn handshake(id: Id) -> u64 {
    pack(3, id)
}

pub(crate) fn listener(n: usize) -> u64 {
    pack(4, (n as u32, 0))
}

pub(crate) fn orders() -> u64 {
    pack(5, (0, 0))
}

pub(crate) fn origination(id: Id) -> u64 {
    pack(6, id)
}

pub(crate) fn repair() -> u64 {
    pack(7, (0, 0))
}

pub(crate) fn parse(token: u64) -> Token {
    let index = token as u32;
    let id = (index, (token >> 32) as u32 & GENERATION_MASK);
    match token >> 60 {
        1 => Token::Connection(id, Side::Tls),
        2 => Token::Connection(id, Side::Plain),
        3 => Token::Handshake(id),
        4 => Token::Listener(index as usize),
        5 => Token::Orders,
        6 => Token::Origination(id),
        7 => Token::Repair,
        _ => Token::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_round_trip() {
        let id = (7, 0x0fff_fffe);
        for side in [Side::Tls, Side::Plain] {
            assert_eq!(parse(connection(id, side)), Token::Connection(id, side));
        }
        assert_eq!(parse(handshake(id)), Token::Handshake(id));
        assert_eq!(parse(origination(id)), Token::Origination(id));
        assert_eq!(parse(listener(2)), Token::Listener(2));
        assert_eq!(parse(orders()), Token::Orders);
        assert_eq!(parse(repair()), Token::Repair);
        assert_eq!(parse(0), Token::Unknown);
    }
}
