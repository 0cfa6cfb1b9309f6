//! One test for each row of the table in `src/handshake/record_rules.rs`: protected records, from a peer that
//! has the keys.

use dormouse_engine::{FailureKind, Protocols};

use crate::forgery::{
    ALERT, CHANGE_CIPHER_SPEC, CLOSE_NOTIFY, DATA, Forge, HANDSHAKE, Scene, record, scenes_of,
};

const UNEXPECTED_MESSAGE: u8 = 10;
const DECRYPT_ERROR: u8 = 51;

const BOTH: [Protocols; 2] = [Protocols::TLS13, Protocols::TLS12];

/// Asserts a refusal when the peer's Finished is replaced with the result of `forge`.
#[track_caller]
fn assert_refused(protocols: &[Protocols], forge: Forge, alert: u8) {
    for &protocols in protocols {
        for mut scene in Scene::forged(protocols, forge) {
            scene.assert_next_refused(alert);
        }
    }
}

#[test]
fn protected_empty_record() {
    assert_refused(&BOTH, |_| (HANDSHAKE, Vec::new()), UNEXPECTED_MESSAGE);
    assert_refused(&BOTH, |_| (ALERT, Vec::new()), UNEXPECTED_MESSAGE);
}

#[test]
fn second_change_cipher_spec() {
    let only = [Protocols::TLS12];
    assert_refused(&only, |_| (CHANGE_CIPHER_SPEC, vec![1]), UNEXPECTED_MESSAGE);
    assert_refused(&only, |_| (CHANGE_CIPHER_SPEC, vec![]), UNEXPECTED_MESSAGE);
    for mut scene in scenes_of(Protocols::TLS12) {
        scene.change_cipher();
        scene.assert_refused(&record(CHANGE_CIPHER_SPEC, &[1]), UNEXPECTED_MESSAGE);
    }
}

#[test]
fn protected_unknown_type() {
    assert_refused(&BOTH, |_| (24, vec![1, 0, 0]), UNEXPECTED_MESSAGE);
    assert_refused(&BOTH, |_| (99, vec![1]), UNEXPECTED_MESSAGE);
}

#[test]
fn protected_data() {
    assert_refused(&BOTH, |_| (DATA, b"too soon".to_vec()), UNEXPECTED_MESSAGE);
}

#[test]
fn nothing_but_zeros() {
    let only = [Protocols::TLS13];
    assert_refused(&only, |_| (0, vec![0; 20]), UNEXPECTED_MESSAGE);
}

#[test]
fn wrong_finished() {
    let spoil: Forge = |finished| {
        let mut spoilt = finished.to_vec();
        *spoilt.last_mut().unwrap() ^= 1;
        (HANDSHAKE, spoilt)
    };
    assert_refused(&BOTH, spoil, DECRYPT_ERROR);
}

#[test]
fn message_across_keys() {
    const KEY_UPDATE: [u8; 5] = [24, 0, 0, 1, 0];
    let lengthen: Forge = |finished| (HANDSHAKE, [finished, &KEY_UPDATE].concat());
    let [mut of_server, mut of_client] = Scene::forged(Protocols::TLS13, lengthen);
    of_server.assert_next_refused(UNEXPECTED_MESSAGE);
    // The server cannot decrypt the alert: see docs/internals/conformance.md.
    let failure = of_client.next_failure();
    assert_eq!(failure.alert_sent, Some(UNEXPECTED_MESSAGE), "{failure}");
}

#[test]
fn protected_psk_modes_of_a_server() {
    const ILLEGAL_PARAMETER: u8 = 47;
    let modes: Forge = |_| (HANDSHAKE, vec![8, 0, 0, 8, 0, 6, 0, 45, 0, 2, 1, 1]);
    let [_, mut of_client] = Scene::forged(Protocols::TLS13, modes);
    of_client.assert_next_refused(ILLEGAL_PARAMETER);
}

#[test]
fn protected_close_notify() {
    for protocols in BOTH {
        for mut scene in Scene::forged(protocols, |_| (ALERT, vec![1, CLOSE_NOTIFY])) {
            let failure = scene.next_failure();
            assert_eq!(failure.kind, FailureKind::PeerClosed, "{failure}");
            assert!(scene.peer_receives_close());
        }
    }
}

#[test]
fn protected_alert() {
    for protocols in BOTH {
        for mut scene in Scene::forged(protocols, |_| (ALERT, vec![2, 42])) {
            let failure = scene.next_failure();
            assert_eq!(failure.kind, FailureKind::PeerAlert(42), "{failure}");
            assert!(scene.output().is_empty());
        }
    }
}
