//! What epoll's 64 bits per descriptor say: whose event it is, and of which generation, so that an
//! event of a connection that has ended meanwhile is not taken for one of its successor.
//!
//! ```text
//! | kind 4 | generation 28 | index 32 |
//! ```

use crate::established::interest::Side;

const GENERATION_BITS: u32 = 28;

/// The bits of a generation that are compared.
pub(crate) const GENERATION_MASK: u32 = (1 << GENERATION_BITS) - 1;

/// Whose event it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Token {
    Connection {
        index: u32,
        generation: u32,
        side: Side,
    },
    Handshake {
        index: u32,
        generation: u32,
    },
    /// A TLS connection of ours which is on its way.
    Origination {
        index: u32,
        generation: u32,
    },
    Listener(usize),
    /// The channel to main.
    Orders,
    Unknown,
}

fn pack(kind: u64, generation: u32, index: u32) -> u64 {
    kind << 60 | u64::from(generation & GENERATION_MASK) << 32 | u64::from(index)
}

pub(crate) fn connection(index: u32, generation: u32, side: Side) -> u64 {
    pack(if side == Side::Tls { 1 } else { 2 }, generation, index)
}

pub(crate) fn handshake(index: u32, generation: u32) -> u64 {
    pack(3, generation, index)
}

pub(crate) fn listener(n: usize) -> u64 {
    pack(4, 0, n as u32)
}

pub(crate) fn orders() -> u64 {
    pack(5, 0, 0)
}

pub(crate) fn origination(index: u32, generation: u32) -> u64 {
    pack(6, generation, index)
}

pub(crate) fn parse(token: u64) -> Token {
    let index = token as u32;
    let generation = (token >> 32) as u32 & GENERATION_MASK;
    match token >> 60 {
        1 => Token::Connection {
            index,
            generation,
            side: Side::Tls,
        },
        2 => Token::Connection {
            index,
            generation,
            side: Side::Plain,
        },
        3 => Token::Handshake { index, generation },
        4 => Token::Listener(index as usize),
        5 => Token::Orders,
        6 => Token::Origination { index, generation },
        _ => Token::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_say_what_was_put_in() {
        for side in [Side::Tls, Side::Plain] {
            let token = connection(7, 0x0fff_fffe, side);
            assert_eq!(
                parse(token),
                Token::Connection {
                    index: 7,
                    generation: 0x0fff_fffe,
                    side
                }
            );
        }
        assert_eq!(
            parse(handshake(9, 3)),
            Token::Handshake {
                index: 9,
                generation: 3
            }
        );
        assert_eq!(
            parse(origination(9, 3)),
            Token::Origination {
                index: 9,
                generation: 3
            }
        );
        assert_eq!(parse(listener(2)), Token::Listener(2));
        assert_eq!(parse(orders()), Token::Orders);
        assert_eq!(parse(0), Token::Unknown);
    }
}
