//! One test for each row of the table in the crate's documentation: rows for TLS 1.3.

use crate::common::*;
use dormouse_record::{
    Alert, AlertDescription as Description, CONTENT_MAX, HANDSHAKE_MESSAGE_MAX, KEY_UPDATES_MAX,
    Opened, Reason, Role, SMALL_RECORD_MAX, SealError, Version, seal_alert, seal_in_place,
};

const CLOSE_NOTIFY: [u8; 2] = [1, 0];

#[test]
fn padding() {
    for (mut to, mut from) in every_kind_of(Version::Tls13) {
        for (content, padding) in [
            (b"".as_slice(), 0),
            (b"", 1),
            (b"\0\0", 100),
            (b"x", CONTENT_MAX - 1),
        ] {
            let record = from.padded_record(DATA, content, padding);
            assert_eq!(to.opened_data(record), content);
        }
        to.opened(from.padded_record(HANDSHAKE, &KEY_UPDATE, 17));
    }
}

#[test]
fn padding_too_long() {
    for (mut to, mut from) in every_kind_of(Version::Tls13) {
        // 255 excess bytes of inner plaintext still fit within the ciphertext's own limit.
        let record = from.padded_record(DATA, b"x", CONTENT_MAX);
        let refusal = to.refused(record);
        assert_eq!(refusal.reason, Reason::PlaintextTooLong(CONTENT_MAX + 2));
        assert_eq!(refusal.alert, Description::RecordOverflow);
    }
}

#[test]
fn nothing_but_zeros() {
    for len in [0, 1, 300] {
        for (mut to, mut from) in every_kind_of(Version::Tls13) {
            let refusal = to.refused(from.padded_record(0, b"", len));
            assert_eq!(refusal.reason, Reason::NoContentType);
            assert_eq!(refusal.alert, Description::UnexpectedMessage);
        }
    }
}

#[test]
fn unprotected_record() {
    for (kind, content) in [(ALERT, &CLOSE_NOTIFY[..]), (HANDSHAKE, &KEY_UPDATE)] {
        for (mut to, _) in every_kind_of(Version::Tls13) {
            let mut record = vec![kind, 3, 3, 0, content.len() as u8];
            record.extend(content);
            let refusal = to.refused(record);
            assert_eq!(refusal.reason, Reason::RecordType(kind));
            assert_eq!(refusal.alert, Description::UnexpectedMessage);
        }
    }
}

#[test]
fn unknown_inner_type() {
    for kind in (1..20).chain(24..=255) {
        let (mut to, mut from) = every_kind_of(Version::Tls13).next().unwrap();
        let refusal = to.refused(from.record(kind, b"what is this"));
        assert_eq!(refusal.reason, Reason::RecordType(kind));
        assert_eq!(refusal.alert, Description::UnexpectedMessage);
    }
}

#[test]
fn user_canceled() {
    for (mut to, mut from) in every_kind_of(Version::Tls13) {
        let opened = to.opened(from.record(ALERT, &[1, 90]));
        assert!(matches!(opened, Opened::Handled { .. }));
        let opened = to.opened(from.record(ALERT, &CLOSE_NOTIFY));
        assert!(matches!(opened, Opened::PeerClosed { .. }));
    }
}

#[test]
fn alert_level_is_ignored() {
    for level in [0, 1, 2, 3, 255] {
        for (mut to, mut from) in every_kind_of(Version::Tls13) {
            let opened = to.opened(from.record(ALERT, &[level, 40]));
            assert!(matches!(
                opened,
                Opened::PeerAlert {
                    description: 40,
                    ..
                }
            ));
        }
    }
}

#[test]
fn unknown_alert() {
    for (mut to, mut from) in every_kind_of(Version::Tls13) {
        let opened = to.opened(from.record(ALERT, &[1, 201]));
        assert!(matches!(
            opened,
            Opened::PeerAlert {
                description: 201,
                ..
            }
        ));
    }
}

#[test]
fn alert_of_wrong_length() {
    for content in [&[1][..], &[1, 0, 1], &[1, 0, 1, 0]] {
        for (mut to, mut from) in every_kind_of(Version::Tls13) {
            let refusal = to.refused(from.record(ALERT, content));
            assert_eq!(refusal.reason, Reason::AlertLength(content.len()));
            assert_eq!(refusal.alert, Description::DecodeError);
        }
    }
}

#[test]
fn key_update() {
    for (mut to, mut from) in every_kind_of(Version::Tls13) {
        for round in 0..3 {
            assert_eq!(to.opened_data(from.data(b"old key")), b"old key");
            let opened = to.opened(from.key_update());
            assert!(matches!(opened, Opened::Handled { .. }));
            assert_eq!(from.state.write_sequence(), 0);
            assert_eq!(to.state.read_sequence(), 0);
            assert!(!to.state.owes_key_update(), "round {round}");
            assert_eq!(to.opened_data(from.data(b"new key")), b"new key");
            // The other direction has not changed.
            assert_eq!(from.opened_data(to.data(b"back")), b"back");
        }
        assert_eq!(from.state.read_sequence(), 3);
    }
}

#[test]
fn key_update_requested() {
    for (mut to, mut from) in every_kind_of(Version::Tls13) {
        // Several requests require only one reply.
        for _ in 0..3 {
            to.opened(rule_breaking_key_update(&mut from));
        }
        assert!(to.state.owes_key_update());
        let mut buf = [0; 64];
        let sealed = seal_in_place(&mut to.state, &mut to.seal_key, &mut buf, 1);
        assert_eq!(sealed, Err(SealError::KeyUpdateOwed));
        let opened = from.opened(to.key_update());
        assert!(matches!(opened, Opened::Handled { .. }));
        assert!(!to.state.owes_key_update() && !from.state.owes_key_update());
        assert_eq!(from.opened_data(to.data(b"new key")), b"new key");
        assert_eq!(to.opened_data(from.data(b"new key")), b"new key");
    }
    // A side that has closed its direction owes no KeyUpdate.
    for (mut to, mut from) in every_kind_of(Version::Tls13) {
        let mut out = [0; SMALL_RECORD_MAX];
        seal_alert(
            &mut to.state,
            &mut to.seal_key,
            Alert::CLOSE_NOTIFY,
            &mut out,
        )
        .unwrap();
        to.opened(rule_breaking_key_update(&mut from));
        assert!(!to.state.owes_key_update());
    }
}

#[test]
fn key_update_in_fragments() {
    for cut in 1..5 {
        for (mut to, mut from) in every_kind_of(Version::Tls13) {
            let first = from.record(HANDSHAKE, &KEY_UPDATE[..cut]);
            let opened = to.opened(first);
            assert!(matches!(opened, Opened::Handled { .. }));
            assert!(to.state.awaits_rest_of_message());
            assert_eq!(to.state.read_sequence(), 1);
            let second = from.record(HANDSHAKE, &KEY_UPDATE[cut..]);
            to.opened(second);
            assert!(!to.state.awaits_rest_of_message());
            assert_eq!(to.state.read_sequence(), 0);
            to.state.validate().unwrap();
        }
    }
}

#[test]
fn key_update_not_at_boundary() {
    for behind in [&KEY_UPDATE[..], &KEY_UPDATE[..1], &[4, 0, 0, 0]] {
        for (mut to, mut from) in every_kind_of(Version::Tls13) {
            let refusal = to.refused(from.record(HANDSHAKE, &[&KEY_UPDATE, behind].concat()));
            assert_eq!(refusal.reason, Reason::KeyUpdateNotAtBoundary);
            assert_eq!(refusal.alert, Description::UnexpectedMessage);
        }
    }
}

#[test]
fn key_update_of_unknown_value() {
    for value in [2, 3, 255] {
        for (mut to, mut from) in every_kind_of(Version::Tls13) {
            let refusal = to.refused(from.record(HANDSHAKE, &[24, 0, 0, 1, value]));
            assert_eq!(refusal.reason, Reason::KeyUpdateValue(value));
            assert_eq!(refusal.alert, Description::IllegalParameter);
        }
    }
}

#[test]
fn key_update_of_wrong_length() {
    for message in [&[24, 0, 0, 0][..], &[24, 0, 0, 2, 0, 0], &[24, 1, 0, 1]] {
        for (mut to, mut from) in every_kind_of(Version::Tls13) {
            let refusal = to.refused(from.record(HANDSHAKE, message));
            assert!(matches!(refusal.reason, Reason::HandshakeLength(24, _)));
            assert_eq!(refusal.alert, Description::DecodeError);
        }
    }
}

#[test]
fn too_many_key_updates() {
    for (mut to, mut from) in every_kind_of(Version::Tls13) {
        for _ in 0..KEY_UPDATES_MAX {
            to.opened(from.key_update());
        }
        to.opened(from.data(b"data resets the count"));
        for _ in 0..KEY_UPDATES_MAX {
            to.opened(from.key_update());
        }
        let refusal = to.refused(from.key_update());
        assert_eq!(refusal.reason, Reason::TooManyKeyUpdates);
        assert_eq!(refusal.alert, Description::UnexpectedMessage);
    }
}

#[test]
fn interleaved_records() {
    for (kind, content) in [(DATA, &b"data"[..]), (DATA, b""), (ALERT, &CLOSE_NOTIFY)] {
        for (mut to, mut from) in every_kind_of(Version::Tls13) {
            to.opened(from.record(HANDSHAKE, &KEY_UPDATE[..2]));
            let refusal = to.refused(from.record(kind, content));
            assert_eq!(refusal.reason, Reason::Interleaved(kind));
            assert_eq!(refusal.alert, Description::UnexpectedMessage);
            // Not even a close_notify is accepted there.
            assert!(!to.state.peer_closed());
            assert_eq!(to.reason(from.data(b"late")), Reason::AlreadyFailed);
        }
    }
}

#[test]
fn fatal_alert_between_fragments() {
    for (mut to, mut from) in every_kind_of(Version::Tls13) {
        to.opened(from.record(HANDSHAKE, &KEY_UPDATE[..2]));
        let opened = to.opened(from.record(ALERT, &[2, 80]));
        assert!(matches!(
            opened,
            Opened::PeerAlert {
                description: 80,
                ..
            }
        ));
    }
}

#[test]
fn tickets() {
    let one = [&[4, 0, 1, 4][..], &[0xaa; 260]].concat();
    let two = [&[4, 0, 0, 3][..], &[0xbb; 3]].concat();
    let both = [&one[..], &two].concat();
    let all = [&both[..], &KEY_UPDATE].concat();
    for cut in 1..all.len() {
        for (mut to, mut from) in every_suite(Version::Tls13, Role::Client) {
            let records = [&all[..cut], &all[cut..]].map(|part| from.record(HANDSHAKE, part));
            let mut received: Vec<u8> = Vec::new();
            for record in records {
                match to.open(record).unwrap() {
                    (Opened::Ticket { fragment, .. }, record) => {
                        received.extend_from_slice(&record[fragment])
                    }
                    (Opened::Handled { .. }, _) => {}
                    (other, _) => panic!("{other:?}"),
                }
            }
            assert_eq!(received, both);
            assert_eq!(to.state.read_sequence(), 0, "the KeyUpdate behind them");
        }
    }
}

#[test]
fn ticket_to_a_server() {
    for (mut to, mut from) in every_suite(Version::Tls13, Role::Server) {
        let refusal = to.refused(from.record(HANDSHAKE, &[4, 0, 0, 1, 0]));
        assert_eq!(refusal.reason, Reason::HandshakeType(4));
        assert_eq!(refusal.alert, Description::UnexpectedMessage);
    }
}

#[test]
fn unexpected_message_tls13() {
    for kind in (0..=255).filter(|kind| ![4, 24].contains(kind)) {
        for (mut to, mut from) in every_kind_of(Version::Tls13) {
            let refusal = to.refused(from.record(HANDSHAKE, &[kind]));
            assert_eq!(refusal.reason, Reason::HandshakeType(kind));
            assert_eq!(refusal.alert, Description::UnexpectedMessage);
        }
    }
}

#[test]
fn message_too_long() {
    let (mut to, mut from) = every_suite(Version::Tls13, Role::Client).next().unwrap();
    let opened = to.opened(from.record(HANDSHAKE, &[4, 0, 0xff, 0xff]));
    assert!(matches!(opened, Opened::Ticket { .. }));
    for (mut to, mut from) in every_suite(Version::Tls13, Role::Client)
        .map(|ends| (ends, 4))
        .chain(every_suite(Version::Tls12, Role::Server).map(|ends| (ends, 1)))
        .map(|((to, mut from), kind)| (to, from.record(HANDSHAKE, &[kind, 1, 0, 0])))
    {
        let refusal = to.refused(std::mem::take(&mut from));
        let len = HANDSHAKE_MESSAGE_MAX as u32 + 1;
        assert!(matches!(refusal.reason, Reason::HandshakeTooLong(_, found) if found == len));
        assert_eq!(refusal.alert, Description::IllegalParameter);
    }
}

/// A KeyUpdate with update_requested, which our side sends only when necessary.
fn rule_breaking_key_update(from: &mut End) -> Vec<u8> {
    let asking = from.record(HANDSHAKE, &KEY_UPDATE_REQUESTED);
    // The record is sealed; now advance the sender's own key as `key_update` would.
    let sequence = from.state.write_sequence();
    let _ = from.key_update();
    assert!(sequence > from.state.write_sequence());
    asking
}
