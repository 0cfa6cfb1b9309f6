//! Recognising resumption from the ClientHello.

use dormouse_engine::{ExpectedHandshake, Handshake, HandshakeLimits, Protocols, Version};
use dormouse_testkit::{Pair, PairSettings, now};

fn first_flight(pair: &Pair) -> Vec<u8> {
    let (mut client, _): (Handshake, Handshake) = pair.handshakes();
    client.handle_input(now(), &[]).unwrap();
    client.output().to_vec()
}

/// In both versions; and at every cut the message is known to be incomplete.
#[test]
fn resuming_clients_are_recognised() {
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

/// Erlang/OTP 25 crashes on these schemes during resumption.
#[test]
fn no_ml_dsa_scheme_is_offered() {
    const SIGNATURE_ALGORITHMS: [u8; 2] = [0, 13];
    let hello = first_flight(&Pair::new(PairSettings::default()));
    let at = (hello.windows(4))
        .position(|window| window[..2] == SIGNATURE_ALGORITHMS && window[2] == 0)
        .unwrap();
    let len = usize::from(hello[at + 5]);
    let schemes: Vec<&[u8]> = hello[at + 6..at + 6 + len].chunks_exact(2).collect();
    assert!(schemes.contains(&&[4, 3][..]), "ecdsa_secp256r1_sha256");
    // 0x0904 to 0x0906 (draft-ietf-tls-mldsa).
    assert!(schemes.iter().all(|scheme| scheme[0] != 9), "{schemes:?}");
}
