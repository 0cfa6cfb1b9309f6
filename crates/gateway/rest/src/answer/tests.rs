use std::net::SocketAddr;

use proptest::prelude::*;

use super::*;

const RECEIVE_NEXT: u32 = u32::MAX - 100;
const SEND_NEXT: u32 = 50;

fn state() -> TcpState {
    let local: SocketAddr = "192.0.2.1:443".parse().unwrap();
    let peer: SocketAddr = "198.51.100.7:50000".parse().unwrap();
    TcpState::invented(local, peer, SEND_NEXT, RECEIVE_NEXT)
}

/// A segment `ahead` of the next number.
fn segment(ahead: i32, flags: Flags, data_len: u32) -> Segment {
    Segment {
        flags,
        sequence: RECEIVE_NEXT.wrapping_add_signed(ahead),
        acknowledgement: SEND_NEXT,
        window: 500,
        data_len,
        timestamp: None,
    }
}

fn decide(ahead: i32, flags: Flags, data_len: u32) -> Answer {
    answer(&state(), &segment(ahead, flags, data_len))
}

#[test]
fn what_each_packet_means() {
    const ACK: Flags = Flags::ACK;
    const FIN: Flags = Flags(Flags::ACK.0 | Flags::FIN.0);
    let note = Answer::Note { window: 500 };
    for (ahead, flags, len, expected) in [
        // Data, the end, both; with old bytes before it; out of order.
        (0, ACK, 1, Answer::Wake),
        (0, FIN, 0, Answer::Wake),
        (0, FIN, 10, Answer::Wake),
        (-5, ACK, 10, Answer::Wake),
        (1448, ACK, 1448, Answer::Wake),
        // A probe; old data; an old end; an acknowledgement.
        (-1, ACK, 0, Answer::Acknowledge),
        (-1, ACK, 1, Answer::Acknowledge),
        (-1, FIN, 0, Answer::Acknowledge),
        (-1448, ACK, 1448, Answer::Acknowledge),
        (0, ACK, 0, note),
        // Far away; without an acknowledgement.
        (70_000, ACK, 10, Answer::Drop),
        (0, Flags::PSH, 10, Answer::Drop),
        // The end by force: exact, near, far.
        (0, Flags::RST, 0, Answer::Gone),
        (1, Flags::RST, 0, Answer::Acknowledge),
        (-1, Flags::RST, 0, Answer::Drop),
        (70_000, Flags::RST, 0, Answer::Drop),
        // A peer that has forgotten.
        (12_345_678, Flags::SYN, 0, Answer::Acknowledge),
    ] {
        assert_eq!(
            decide(ahead, flags, len),
            expected,
            "{ahead} {flags:?} {len}"
        );
    }
}

#[test]
fn an_acknowledgement_of_what_was_never_sent_wakes_nothing() {
    for (acknowledgement, expected) in [
        (SEND_NEXT, Answer::Wake),
        (SEND_NEXT.wrapping_sub(60_000), Answer::Wake),
        (SEND_NEXT + 1, Answer::Drop),
        (SEND_NEXT.wrapping_sub(70_000), Answer::Drop),
    ] {
        let segment = Segment {
            acknowledgement,
            ..segment(0, Flags::ACK, 10)
        };
        assert_eq!(answer(&state(), &segment), expected);
    }
}

proptest! {
    /// Of all numbers, one in 65,536 wakes or ends a connection: a guess costs that many packets.
    #[test]
    fn a_guessed_number_does_nothing(
        sequence: u32, acknowledgement: u32, flags: u8, data_len in 0..70_000u32,
    ) {
        let segment = Segment { flags: Flags(flags), sequence, acknowledgement, window: 1, data_len, timestamp: None };
        let far = sequence.wrapping_sub(RECEIVE_NEXT).wrapping_add(140_000) > 280_000;
        let answer = answer(&state(), &segment);
        if far {
            prop_assert!(!matches!(answer, Answer::Wake | Answer::Gone | Answer::Note { .. }), "{:?}", answer);
        }
    }
}
