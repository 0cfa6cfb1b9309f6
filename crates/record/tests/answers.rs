//! One test for each row of the table in the crate's documentation.

mod common;

use common::*;
use dormouse_record::{
    Alert, AlertDescription as Description, CONTENT_MAX, EMPTY_RECORDS_MAX, HANDSHAKE_MESSAGE_MAX,
    KEY_UPDATES_MAX, Opened, Protocol, Reason, Role, SMALL_RECORD_MAX, SealError, Suite,
    WARNINGS_MAX, record_room, seal_alert, seal_in_place,
};

const CLOSE_NOTIFY: [u8; 2] = [1, 0];

#[test]
fn every_row_has_its_test() {
    let tests = include_str!("answers.rs");
    let mut rows = 0;
    for line in include_str!("../src/lib.rs").lines() {
        if let Some(row) = line.strip_prefix("//! | `") {
            let name = row.split('`').next().unwrap();
            assert!(
                tests.contains(&format!("#[test]\nfn {name}() {{")),
                "{name}"
            );
            rows += 1;
        }
    }
    assert!(rows > 40, "the table was not found");
}

#[test]
fn data() {
    for (mut to, mut from) in every_kind() {
        let record = from.data(b"hello");
        let header = record_room(&from.state).header;
        let (opened, record) = to.open(record).unwrap();
        let plaintext = header..header + 5;
        assert_eq!(record[plaintext.clone()], *b"hello");
        let consumed = record.len();
        assert_eq!(
            opened,
            Opened::Data {
                consumed,
                plaintext
            }
        );
        // Data ends the row of empty records.
        for _ in 0..3 {
            for _ in 0..EMPTY_RECORDS_MAX {
                to.opened(from.data(b""));
            }
            to.opened(from.data(b"x"));
        }
    }
}

#[test]
fn longest_record() {
    let content = vec![0xa5; CONTENT_MAX];
    for (mut to, mut from) in every_kind() {
        assert_eq!(to.opened_data(from.data(&content)), content);
        let room = record_room(&from.state);
        let mut buf = vec![0; CONTENT_MAX + 1 + room.header + room.trailer];
        let sealed = seal_in_place(
            &mut from.state,
            &mut from.seal_key,
            &mut buf,
            CONTENT_MAX + 1,
        );
        assert_eq!(sealed, Err(SealError::ContentTooLong(CONTENT_MAX + 1)));
    }
}

#[test]
fn empty_data() {
    for (mut to, mut from) in every_kind() {
        assert_eq!(to.opened_data(from.data(b"")), b"");
    }
}

#[test]
fn too_many_empty_records() {
    for (mut to, mut from) in every_kind() {
        for _ in 0..EMPTY_RECORDS_MAX {
            to.opened(from.data(b""));
        }
        let refusal = to.refused(from.data(b""));
        assert_eq!(refusal.reason, Reason::TooManyEmptyRecords);
        assert_eq!(refusal.alert, Description::UnexpectedMessage);
    }
}

#[test]
fn partial_record() {
    for (mut to, mut from) in every_kind() {
        let record = from.data(b"some bytes");
        for len in 0..record.len() {
            let (opened, left) = to.open(record[..len].to_vec()).unwrap();
            let need = if len < 5 { 5 } else { record.len() };
            assert_eq!(opened, Opened::Partial { need });
            assert_eq!(left, record[..len]);
        }
        assert_eq!(to.opened_data(record), b"some bytes");
    }
}

#[test]
fn unknown_record_type() {
    for kind in (0..20).chain(24..=255) {
        for (mut to, _) in every_kind() {
            let refusal = to.refused(vec![kind, 3, 3, 0, 64]);
            assert_eq!(refusal.reason, Reason::RecordType(kind));
            assert_eq!(refusal.alert, Description::UnexpectedMessage);
        }
    }
}

#[test]
fn change_cipher_spec() {
    for (mut to, _) in every_kind() {
        let refusal = to.refused(vec![CHANGE_CIPHER_SPEC, 3, 3, 0, 1, 1]);
        assert_eq!(refusal.reason, Reason::ChangeCipherSpec);
        assert_eq!(refusal.alert, Description::UnexpectedMessage);
    }
    for (mut to, mut from) in every_kind() {
        let refusal = to.refused(from.record(CHANGE_CIPHER_SPEC, &[1]));
        assert_eq!(refusal.reason, Reason::ChangeCipherSpec);
        assert_eq!(refusal.alert, Description::UnexpectedMessage);
    }
}

#[test]
fn ciphertext_too_long() {
    for (mut to, _) in every_kind() {
        let max: usize = match to.state.protocol() {
            Protocol::Tls12 => CONTENT_MAX + 2048,
            Protocol::Tls13 => CONTENT_MAX + 256,
        };
        let header = |len: usize| vec![DATA, 3, 3, (len >> 8) as u8, len as u8];
        let (opened, _) = to.open(header(max)).unwrap();
        assert_eq!(opened, Opened::Partial { need: 5 + max });
        let refusal = to.refused(header(max + 1));
        assert_eq!(refusal.reason, Reason::CiphertextTooLong(max + 1));
        assert_eq!(refusal.alert, Description::RecordOverflow);
    }
}

#[test]
fn ciphertext_too_short() {
    for (mut to, mut from) in every_kind() {
        // The shortest record that can be: for TLS 1.3 one without even a type, which is refused otherwise.
        let room = record_room(&from.state);
        let min = match to.state.protocol() {
            Protocol::Tls12 => from.data(b"").len() - 5,
            Protocol::Tls13 => room.trailer - 1,
        };
        let (opened, _) = to.open(vec![DATA, 3, 3, 0, min as u8]).unwrap();
        assert_eq!(opened, Opened::Partial { need: 5 + min });
        let refusal = to.refused(vec![DATA, 3, 3, 0, min as u8 - 1]);
        assert_eq!(refusal.reason, Reason::CiphertextTooShort(min - 1));
        assert_eq!(refusal.alert, Description::BadRecordMac);
    }
}

#[test]
fn changed_record() {
    for (to, mut from) in every_kind() {
        let record = from.data(b"four");
        for bit in 5 * 8..record.len() * 8 {
            let mut to = End::new(copy(&to));
            let mut changed = record.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            let refusal = to.refused(changed);
            assert_eq!(refusal.reason, Reason::BadRecordMac);
            assert_eq!(refusal.alert, Description::BadRecordMac);
        }
    }
}

#[test]
fn changed_version() {
    for (to, mut from) in every_kind() {
        let record = from.data(b"four");
        for bit in 8..24 {
            let mut to = End::new(copy(&to));
            let mut changed = record.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(to.refused(changed).alert, Description::BadRecordMac);
        }
    }
}

#[test]
fn plaintext_too_long() {
    for (mut to, mut from) in every_kind() {
        let record = from.record(DATA, &vec![1; CONTENT_MAX + 1]);
        let refusal = to.refused(record);
        let inner_len = match to.state.protocol() {
            Protocol::Tls12 => CONTENT_MAX + 1,
            Protocol::Tls13 => CONTENT_MAX + 2,
        };
        assert_eq!(refusal.reason, Reason::PlaintextTooLong(inner_len));
        assert_eq!(refusal.alert, Description::RecordOverflow);
    }
}

#[test]
fn empty_fragment() {
    for kind in [ALERT, HANDSHAKE] {
        for (mut to, mut from) in every_kind() {
            let refusal = to.refused(from.record(kind, b""));
            assert_eq!(refusal.reason, Reason::EmptyFragment(kind));
            assert_eq!(refusal.alert, Description::UnexpectedMessage);
        }
    }
}

#[test]
fn close_notify() {
    for (mut to, mut from) in every_kind() {
        let mut out = [0; SMALL_RECORD_MAX];
        let len = seal_alert(
            &mut from.state,
            &mut from.seal_key,
            Alert::CLOSE_NOTIFY,
            &mut out,
        );
        let record = out[..len.unwrap()].to_vec();
        let consumed = record.len();
        assert_eq!(to.opened(record), Opened::PeerClosed { consumed });
        assert!(to.state.peer_closed() && !to.state.closed());
        assert!(from.state.closed() && !from.state.peer_closed());
        // Nothing goes behind it ...
        let mut buf = [0; 64];
        let sealed = seal_in_place(&mut from.state, &mut from.seal_key, &mut buf, 1);
        assert_eq!(sealed, Err(SealError::Closed));
        // ... but the other direction stays open.
        assert_eq!(from.opened_data(to.data(b"still here")), b"still here");
    }
    // "of any level"
    for (mut to, mut from) in every_kind() {
        let opened = to.opened(from.record(ALERT, &[2, 0]));
        assert!(matches!(opened, Opened::PeerClosed { .. }));
    }
}

#[test]
fn data_behind_close_notify() {
    for (mut to, mut from) in every_kind() {
        to.opened(from.record(ALERT, &CLOSE_NOTIFY));
        for garbage in [from.data(b"late"), vec![0xff; 3], vec![0; 40_000]] {
            let consumed = garbage.len();
            assert_eq!(to.opened(garbage), Opened::Handled { consumed });
        }
    }
}

#[test]
fn fatal_alert() {
    for (mut to, mut from) in every_kind() {
        let mut out = [0; SMALL_RECORD_MAX];
        let alert = Alert::fatal(Description::InternalError);
        let len = seal_alert(&mut from.state, &mut from.seal_key, alert, &mut out).unwrap();
        assert!(from.state.closed() && from.state.failed());
        let opened = to.opened(out[..len].to_vec());
        assert!(matches!(
            opened,
            Opened::PeerAlert {
                description: 80,
                ..
            }
        ));
        assert!(to.state.closed() && to.state.failed() && !to.state.peer_closed());
        let answer = Alert::fatal(Description::InternalError);
        let sealed = seal_alert(&mut to.state, &mut to.seal_key, answer, &mut out);
        assert_eq!(sealed, Err(SealError::Closed));
        assert_eq!(to.opened(vec![1; 9]), Opened::Handled { consumed: 9 });
    }
}

#[test]
fn too_many_warnings() {
    for (mut to, mut from) in every_kind() {
        // user_canceled, the one warning of TLS 1.3 that does not close.
        for _ in 0..WARNINGS_MAX {
            to.opened(from.record(ALERT, &[1, 90]));
        }
        let refusal = to.refused(from.record(ALERT, &[1, 90]));
        assert_eq!(refusal.reason, Reason::TooManyWarnings);
        assert_eq!(refusal.alert, Description::UnexpectedMessage);
    }
}

#[test]
fn sequence_exhausted() {
    let suite = Suite::Chacha20Poly1305Sha256;
    for protocol in [Protocol::Tls12, Protocol::Tls13] {
        let (server, client) = pair_at(protocol, suite, 1, u64::MAX - 3, 0);
        let (mut to, mut from) = (End::new(server), End::new(client));
        to.opened(from.data(b"the last record that data may use"));
        let mut buf = [0; 64];
        let sealed = seal_in_place(&mut from.state, &mut from.seal_key, &mut buf, 1);
        assert_eq!(sealed, Err(SealError::KeyExhausted));
        // Two are kept for the end.
        to.opened(from.record(DATA, b"so only a rule breaker gets here"));
        to.opened(from.record(DATA, b"or here"));
        assert_eq!(to.state.read_sequence(), u64::MAX);
        let record = [&[DATA, 3, 3, 0, 64][..], &[0; 64]].concat();
        let refusal = to.refused(record);
        assert_eq!(refusal.reason, Reason::SequenceExhausted);
        assert_eq!(refusal.alert, Description::InternalError);
    }
}

#[test]
fn behind_a_refusal() {
    for (mut to, mut from) in every_kind() {
        to.refused(vec![0; 64]);
        let refusal = to.refused(from.data(b"good, but late"));
        assert_eq!(refusal.reason, Reason::AlreadyFailed);
        assert_eq!(refusal.alert, Description::InternalError);
        let mut out = [0; 64];
        let sealed = seal_in_place(&mut to.state, &mut to.seal_key, &mut out, 1);
        assert_eq!(sealed, Err(SealError::Failed));
        let sealed = seal_alert(
            &mut to.state,
            &mut to.seal_key,
            Alert::CLOSE_NOTIFY,
            &mut out,
        );
        assert_eq!(sealed, Err(SealError::Failed));
        let alert = Alert::fatal(Description::BadRecordMac);
        let len = seal_alert(&mut to.state, &mut to.seal_key, alert, &mut out).unwrap();
        let opened = from.opened(out[..len].to_vec());
        assert!(matches!(
            opened,
            Opened::PeerAlert {
                description: 20,
                ..
            }
        ));
        let sealed = seal_alert(&mut to.state, &mut to.seal_key, alert, &mut out);
        assert_eq!(sealed, Err(SealError::Closed));
    }
}

// TLS 1.3

#[test]
fn padding() {
    for (mut to, mut from) in every_kind_of(Protocol::Tls13) {
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
    for (mut to, mut from) in every_kind_of(Protocol::Tls13) {
        // 255 bytes of inner plaintext too much still keep to the ciphertext's own limit.
        let record = from.padded_record(DATA, b"x", CONTENT_MAX);
        let refusal = to.refused(record);
        assert_eq!(refusal.reason, Reason::PlaintextTooLong(CONTENT_MAX + 2));
        assert_eq!(refusal.alert, Description::RecordOverflow);
    }
}

#[test]
fn nothing_but_zeros() {
    for len in [0, 1, 300] {
        for (mut to, mut from) in every_kind_of(Protocol::Tls13) {
            let refusal = to.refused(from.padded_record(0, b"", len));
            assert_eq!(refusal.reason, Reason::NoContentType);
            assert_eq!(refusal.alert, Description::UnexpectedMessage);
        }
    }
}

#[test]
fn unprotected_record() {
    for (kind, content) in [(ALERT, &CLOSE_NOTIFY[..]), (HANDSHAKE, &KEY_UPDATE)] {
        for (mut to, _) in every_kind_of(Protocol::Tls13) {
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
        let (mut to, mut from) = every_kind_of(Protocol::Tls13).next().unwrap();
        let refusal = to.refused(from.record(kind, b"what is this"));
        assert_eq!(refusal.reason, Reason::RecordType(kind));
        assert_eq!(refusal.alert, Description::UnexpectedMessage);
    }
}

#[test]
fn user_canceled() {
    for (mut to, mut from) in every_kind_of(Protocol::Tls13) {
        let opened = to.opened(from.record(ALERT, &[1, 90]));
        assert!(matches!(opened, Opened::Handled { .. }));
        let opened = to.opened(from.record(ALERT, &CLOSE_NOTIFY));
        assert!(matches!(opened, Opened::PeerClosed { .. }));
    }
}

#[test]
fn alert_level_is_ignored() {
    for level in [0, 1, 2, 3, 255] {
        for (mut to, mut from) in every_kind_of(Protocol::Tls13) {
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
    for (mut to, mut from) in every_kind_of(Protocol::Tls13) {
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
        for (mut to, mut from) in every_kind_of(Protocol::Tls13) {
            let refusal = to.refused(from.record(ALERT, content));
            assert_eq!(refusal.reason, Reason::AlertLength(content.len()));
            assert_eq!(refusal.alert, Description::DecodeError);
        }
    }
}

#[test]
fn key_update() {
    for (mut to, mut from) in every_kind_of(Protocol::Tls13) {
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
    for (mut to, mut from) in every_kind_of(Protocol::Tls13) {
        // However often it is asked for, one answer is due.
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
    // Who has closed its direction owes nothing.
    for (mut to, mut from) in every_kind_of(Protocol::Tls13) {
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
        for (mut to, mut from) in every_kind_of(Protocol::Tls13) {
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
        for (mut to, mut from) in every_kind_of(Protocol::Tls13) {
            let refusal = to.refused(from.record(HANDSHAKE, &[&KEY_UPDATE, behind].concat()));
            assert_eq!(refusal.reason, Reason::KeyUpdateNotAtBoundary);
            assert_eq!(refusal.alert, Description::UnexpectedMessage);
        }
    }
}

#[test]
fn key_update_of_unknown_value() {
    for value in [2, 3, 255] {
        for (mut to, mut from) in every_kind_of(Protocol::Tls13) {
            let refusal = to.refused(from.record(HANDSHAKE, &[24, 0, 0, 1, value]));
            assert_eq!(refusal.reason, Reason::KeyUpdateValue(value));
            assert_eq!(refusal.alert, Description::IllegalParameter);
        }
    }
}

#[test]
fn key_update_of_wrong_length() {
    for message in [&[24, 0, 0, 0][..], &[24, 0, 0, 2, 0, 0], &[24, 1, 0, 1]] {
        for (mut to, mut from) in every_kind_of(Protocol::Tls13) {
            let refusal = to.refused(from.record(HANDSHAKE, message));
            assert!(matches!(refusal.reason, Reason::HandshakeLength(24, _)));
            assert_eq!(refusal.alert, Description::DecodeError);
        }
    }
}

#[test]
fn too_many_key_updates() {
    for (mut to, mut from) in every_kind_of(Protocol::Tls13) {
        for _ in 0..KEY_UPDATES_MAX {
            to.opened(from.key_update());
        }
        to.opened(from.data(b"data ends the row"));
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
        for (mut to, mut from) in every_kind_of(Protocol::Tls13) {
            to.opened(from.record(HANDSHAKE, &KEY_UPDATE[..2]));
            let refusal = to.refused(from.record(kind, content));
            assert_eq!(refusal.reason, Reason::Interleaved(kind));
            assert_eq!(refusal.alert, Description::UnexpectedMessage);
            // Not even a close_notify there counts as one.
            assert!(!to.state.peer_closed());
            assert_eq!(to.reason(from.data(b"late")), Reason::AlreadyFailed);
        }
    }
}

#[test]
fn fatal_alert_between_fragments() {
    for (mut to, mut from) in every_kind_of(Protocol::Tls13) {
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
        for (mut to, mut from) in every_suite(Protocol::Tls13, Role::Client) {
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
    for (mut to, mut from) in every_suite(Protocol::Tls13, Role::Server) {
        let refusal = to.refused(from.record(HANDSHAKE, &[4, 0, 0, 1, 0]));
        assert_eq!(refusal.reason, Reason::HandshakeType(4));
        assert_eq!(refusal.alert, Description::UnexpectedMessage);
    }
}

#[test]
fn unexpected_message_tls13() {
    for kind in (0..=255).filter(|kind| ![4, 24].contains(kind)) {
        for (mut to, mut from) in every_kind_of(Protocol::Tls13) {
            let refusal = to.refused(from.record(HANDSHAKE, &[kind]));
            assert_eq!(refusal.reason, Reason::HandshakeType(kind));
            assert_eq!(refusal.alert, Description::UnexpectedMessage);
        }
    }
}

#[test]
fn message_too_long() {
    let (mut to, mut from) = every_suite(Protocol::Tls13, Role::Client).next().unwrap();
    let opened = to.opened(from.record(HANDSHAKE, &[4, 0, 0xff, 0xff]));
    assert!(matches!(opened, Opened::Ticket { .. }));
    for (mut to, mut from) in every_suite(Protocol::Tls13, Role::Client)
        .map(|ends| (ends, 4))
        .chain(every_suite(Protocol::Tls12, Role::Server).map(|ends| (ends, 1)))
        .map(|((to, mut from), kind)| (to, from.record(HANDSHAKE, &[kind, 1, 0, 0])))
    {
        let refusal = to.refused(std::mem::take(&mut from));
        let len = HANDSHAKE_MESSAGE_MAX as u32 + 1;
        assert!(matches!(refusal.reason, Reason::HandshakeTooLong(_, found) if found == len));
        assert_eq!(refusal.alert, Description::IllegalParameter);
    }
}

// TLS 1.2

#[test]
fn renegotiation() {
    let hello = [&[1, 0, 0, 200][..], &[0xcc; 200]].concat();
    for cut in 1..hello.len() {
        for (mut to, mut from) in every_suite(Protocol::Tls12, Role::Server) {
            let opened = to.opened(from.record(HANDSHAKE, &hello[..cut]));
            assert!(matches!(opened, Opened::Handled { .. }));
            // Unlike in TLS 1.3, data may come between.
            assert_eq!(to.opened_data(from.data(b"data")), b"data");
            let opened = to.opened(from.record(HANDSHAKE, &hello[cut..]));
            assert!(matches!(opened, Opened::NoRenegotiation { .. }));
            let mut out = [0; SMALL_RECORD_MAX];
            let alert = Alert::NO_RENEGOTIATION;
            let len = seal_alert(&mut to.state, &mut to.seal_key, alert, &mut out).unwrap();
            assert!(!to.state.closed());
            let opened = from.opened(out[..len].to_vec());
            assert!(matches!(opened, Opened::Handled { .. }));
            assert_eq!(to.opened_data(from.data(b"goes on")), b"goes on");
        }
    }
    // Asking again and again is a row of warnings.
    let (mut to, mut from) = every_suite(Protocol::Tls12, Role::Server).next().unwrap();
    for _ in 0..WARNINGS_MAX {
        to.opened(from.record(HANDSHAKE, &hello));
    }
    assert_eq!(
        to.reason(from.record(HANDSHAKE, &hello)),
        Reason::TooManyWarnings
    );
}

#[test]
fn hello_request() {
    for (mut to, mut from) in every_suite(Protocol::Tls12, Role::Client) {
        let opened = to.opened(from.record(HANDSHAKE, &[0, 0, 0, 0]));
        assert!(matches!(opened, Opened::NoRenegotiation { .. }));
        assert_eq!(to.opened_data(from.data(b"goes on")), b"goes on");
    }
}

#[test]
fn hello_request_of_wrong_length() {
    for (mut to, mut from) in every_suite(Protocol::Tls12, Role::Client) {
        let refusal = to.refused(from.record(HANDSHAKE, &[0, 0, 0, 1, 0]));
        assert_eq!(refusal.reason, Reason::HandshakeLength(0, 1));
        assert_eq!(refusal.alert, Description::DecodeError);
    }
}

#[test]
fn unexpected_message_tls12() {
    for (role, expected) in [(Role::Server, 1), (Role::Client, 0)] {
        for kind in (0..=255).filter(|&kind| kind != expected) {
            for (mut to, mut from) in every_suite(Protocol::Tls12, role) {
                let refusal = to.refused(from.record(HANDSHAKE, &[kind]));
                assert_eq!(refusal.reason, Reason::HandshakeType(kind));
                assert_eq!(refusal.alert, Description::UnexpectedMessage);
            }
        }
    }
}

#[test]
fn warnings() {
    for description in [41, 90, 100, 112, 201] {
        for (mut to, mut from) in every_kind_of(Protocol::Tls12) {
            let opened = to.opened(from.record(ALERT, &[1, description]));
            assert!(matches!(opened, Opened::Handled { .. }));
            assert_eq!(to.opened_data(from.data(b"goes on")), b"goes on");
        }
    }
}

#[test]
fn alerts_in_any_cut() {
    let alerts = [1, 100, 1, 90, 1, 0];
    for cut in 1..alerts.len() {
        for (mut to, mut from) in every_kind_of(Protocol::Tls12) {
            let opened = to.opened(from.record(ALERT, &alerts[..cut]));
            assert!(matches!(opened, Opened::Handled { .. }));
            assert_eq!(to.state.awaits_rest_of_message(), cut % 2 == 1);
            to.state.validate().unwrap();
            let opened = to.opened(from.record(ALERT, &alerts[cut..]));
            assert!(matches!(opened, Opened::PeerClosed { .. }));
        }
    }
    for (mut to, mut from) in every_kind_of(Protocol::Tls12) {
        to.opened(from.record(ALERT, &[1, 100, 2]));
        let opened = to.opened(from.record(ALERT, &[40]));
        assert!(matches!(
            opened,
            Opened::PeerAlert {
                description: 40,
                ..
            }
        ));
    }
}

#[test]
fn unknown_alert_level() {
    for level in [0, 3, 255] {
        for (mut to, mut from) in every_kind_of(Protocol::Tls12) {
            let refusal = to.refused(from.record(ALERT, &[level, 40]));
            assert_eq!(refusal.reason, Reason::AlertLevel(level));
            assert_eq!(refusal.alert, Description::DecodeError);
        }
    }
}

/// A KeyUpdate with update_requested, which our own side would not send without need.
fn rule_breaking_key_update(from: &mut End) -> Vec<u8> {
    let asking = from.record(HANDSHAKE, &KEY_UPDATE_REQUESTED);
    // The record is out; now the sender's own key moves on as if `key_update` had made it.
    let sequence = from.state.write_sequence();
    let _ = from.key_update();
    assert!(sequence > from.state.write_sequence());
    asking
}

/// The same state again, which only a test may have.
fn copy(end: &End) -> dormouse_record::State {
    use zerocopy::{FromBytes, IntoBytes};
    dormouse_record::State::read_from_bytes(end.state.as_bytes()).unwrap()
}
