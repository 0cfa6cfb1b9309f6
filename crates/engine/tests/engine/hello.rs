//! A look at the ClientHello tells who comes back.

use dormouse_engine::{ExpectedHandshake, Handshake, HandshakeLimits, Protocols, Version};
use dormouse_testkit::{Pair, PairSettings, now};

fn first_flight(pair: &Pair) -> Vec<u8> {
    let (mut client, _): (Handshake, Handshake) = pair.handshakes();
    client.handle_input(now(), &[]).unwrap();
    client.output().to_vec()
}

/// In both versions; and at every cut it is known that the message is not whole.
#[test]
fn clients_which_come_back_are_recognised() {
    assert!(HandshakeLimits::default().bytes_max > 4096);
    for version in [Version::Tls12, Version::Tls13] {
        let pair = Pair::new(PairSettings {
            protocols: Protocols {
                min: version,
                max: version,
            },
            resumption: true,
            ..PairSettings::default()
        });
        assert_eq!(
            ExpectedHandshake::of(&first_flight(&pair)),
            ExpectedHandshake::Full,
            "{version:?}"
        );
        pair.connect_and_take_tickets();
        let again = first_flight(&pair);
        assert_eq!(
            ExpectedHandshake::of(&again),
            ExpectedHandshake::Resumption,
            "{version:?}"
        );
        for cut in 0..again.len() {
            assert_eq!(
                ExpectedHandshake::of(&again[..cut]),
                ExpectedHandshake::Incomplete,
                "at {cut}"
            );
        }
    }
}
