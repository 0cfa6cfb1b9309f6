//! TCP headers for connections that rest, from anyone on the network.

use std::net::SocketAddr;

use dormouse_reactor::steering::{Captured, Digest};
use dormouse_reactor::tcp_state::TcpState;
use dormouse_rest::{Answer, Checked, Flags, Segment, acknowledge, answer, check, copy};

use super::choice;

/// Numbers of the invented connection, which the seeds have too.
const SEND_NEXT: u32 = 1000;
const RECEIVE_NEXT: u32 = 2000;

/// A packet, whole or cut. The first byte chooses the family, and whether it was cut.
pub(crate) fn run(data: &[u8]) {
    let (how, bytes) = choice(data);
    let [local, peer] = match how & 1 {
        0 => ["192.0.2.1:443", "198.51.100.7:50000"],
        _ => ["[2001:db8::1]:443", "[2001:db8::7]:50000"],
    }
    .map(|text| text.parse::<SocketAddr>().expect("an address"));
    let missing = usize::from(how >> 1) * 300;
    let packet = Captured {
        digest: Digest(1),
        source: peer,
        destination: local,
        len: bytes.len() + missing,
        bytes,
    };
    let checked = check(&packet);
    if bytes.len() >= 18 {
        let is_cut = matches!(checked, Checked::Beginning | Checked::Unknown);
        assert_eq!(is_cut, missing > 0);
    }
    let state = TcpState::invented(local, peer, SEND_NEXT, RECEIVE_NEXT);
    let Some(segment) = Segment::parse(bytes, packet.len) else {
        return;
    };
    assert!(segment.data_len as usize + 20 <= packet.len);
    let decided = answer(&state, &segment);
    if decided == Answer::Gone {
        assert!(segment.flags.has(Flags::RST) && segment.sequence == RECEIVE_NEXT);
    }
    if decided == Answer::Wake {
        assert!(segment.acknowledgement.wrapping_sub(SEND_NEXT) as i32 <= 0);
        assert!(segment.end().wrapping_sub(RECEIVE_NEXT) as i32 > 0);
    }
    let mut out = Vec::new();
    copy(&packet, &mut out);
    let header = if local.is_ipv4() { 20 } else { 40 };
    let again = Captured {
        len: bytes.len(),
        bytes: out.get(header..).expect("an IP header"),
        ..packet
    };
    assert_eq!(check(&again), Checked::Whole);
    let copied = Segment::parse(again.bytes, again.len);
    if missing == 0 {
        assert_eq!(copied, Some(segment));
    } else if let Some(copied) = copied {
        assert!(
            !copied.flags.has(Flags::FIN),
            "a cut packet ends the stream"
        );
        assert_eq!(copied.sequence, segment.sequence);
    }
    let echo = segment.timestamp.unwrap_or(0);
    acknowledge(&state, how & 2 != 0, echo, &mut out);
    assert!(out.len() <= header + 32);
}
