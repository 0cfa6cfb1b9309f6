use dormouse_reactor::steering::Digest;

use super::*;

fn addresses(text: [&str; 2]) -> [SocketAddr; 2] {
    text.map(|address| address.parse().unwrap())
}

fn families() -> [[SocketAddr; 2]; 2] {
    [
        addresses(["192.0.2.1:443", "198.51.100.7:50000"]),
        addresses(["[2001:db8::1]:443", "[2001:db8::7]:50000"]),
    ]
}

/// A packet as a program copies it, from what [`copy`] or [`acknowledge`] wrote.
fn captured(packet: &[u8], [source, destination]: [SocketAddr; 2]) -> Captured<'_> {
    let bytes = &packet[if source.is_ipv4() { 20 } else { 40 }..];
    Captured {
        digest: Digest(1),
        source,
        destination,
        len: bytes.len(),
        bytes,
    }
}

#[test]
fn an_acknowledgement_is_read_as_it_was_written() {
    for [local, peer] in families() {
        let state = TcpState::invented(local, peer, 1000, 2000);
        let mut packet = Vec::new();
        for (is_probe, sequence) in [(false, 1000), (true, 999)] {
            acknowledge(&state, is_probe, 77, &mut packet);
            let captured = captured(&packet, [local, peer]);
            assert_eq!(check(&captured), Checked::Whole);
            let segment = Segment::parse(captured.bytes, captured.len).unwrap();
            assert_eq!(segment.flags, Flags::ACK);
            assert_eq!(
                (segment.sequence, segment.acknowledgement),
                (sequence, 2000)
            );
            assert_eq!(segment.data_len, 0);
            assert!(segment.timestamp.is_some());
        }
    }
}

#[test]
fn damage_is_seen_and_what_hardware_would_complete_is_not_damage() {
    for [local, peer] in families() {
        let state = TcpState::invented(local, peer, 1000, 2000);
        let mut packet = Vec::new();
        acknowledge(&state, false, 0, &mut packet);
        let start = if local.is_ipv4() { 20 } else { 40 };
        let len = packet.len() - start;
        for at in start..packet.len() {
            packet[at] ^= 1;
            let damaged = captured(&packet, [local, peer]);
            assert_eq!(check(&damaged), Checked::Damaged, "at {at}");
            // A cut packet's checksum covers what is missing.
            let cut = Captured {
                len: 9000,
                ..damaged
            };
            assert_eq!(check(&cut), Checked::Unknown);
            packet[at] ^= 1;
        }
        for len in [len, 9000] {
            let sum = fold(pseudo_header(local, peer, len)).to_be_bytes();
            packet[start + CHECKSUM_AT..][..2].copy_from_slice(&sum);
            let unfinished = Captured {
                len,
                ..captured(&packet, [local, peer])
            };
            let expected = match len {
                9000 => Checked::Beginning,
                _ => Checked::Whole,
            };
            assert_eq!(check(&unfinished), expected);
        }
    }
}

#[test]
fn a_cut_packet_does_not_end_the_stream() {
    for [local, peer] in families() {
        let start = if local.is_ipv4() { 20 } else { 40 };
        let mut bytes = vec![0; 20];
        (bytes[12], bytes[FLAGS_AT]) = (5 << 4, Flags::ACK.0 | Flags::FIN.0 | Flags::PSH.0);
        bytes.extend_from_slice(b"data");
        let whole = Captured {
            digest: Digest(1),
            source: peer,
            destination: local,
            len: bytes.len(),
            bytes: &bytes,
        };
        let mut packet = Vec::new();
        copy(&whole, &mut packet);
        assert_eq!(packet[start + FLAGS_AT], bytes[FLAGS_AT]);
        assert!(packet.ends_with(b"data"));
        assert_eq!(check(&captured(&packet, [peer, local])), Checked::Whole);
        copy(&Captured { len: 5000, ..whole }, &mut packet);
        assert_eq!(packet[start + FLAGS_AT], Flags::ACK.0);
        assert_eq!(check(&captured(&packet, [peer, local])), Checked::Whole);
    }
}

#[test]
fn headers_that_lie_are_refused() {
    let mut bytes = [0; 60];
    for (offset, len, is_read) in [
        (5, 20, true),
        (5, 19, false),
        (4, 60, false),
        (0, 60, false),
        (15, 60, true),
        (15, 59, false),
    ] {
        bytes[12] = offset << 4;
        let part = &bytes[..len];
        assert_eq!(
            Segment::parse(part, len).is_some(),
            is_read,
            "{offset} {len}"
        );
    }
    // Options that do not end, and options of no length.
    for options in [
        [TIMESTAMPS, 10, 0, 0],
        [3, 0, 3, 0],
        [9, 255, 0, 0],
        [1, 1, 1, 9],
    ] {
        assert_eq!(timestamp(&options), None);
    }
    let late = [1, 2, 4, 5, 5, TIMESTAMPS, 10, 0, 0, 0, 9, 0, 0, 0, 0, 0];
    assert_eq!(timestamp(&late), Some(9));
}
