//! One test for each row of the table in the crate's documentation: rows for both versions.

use crate::common::*;
use dormouse_record::{
    Alert, AlertDescription as Description, CONTENT_MAX, EMPTY_RECORDS_MAX, Opened, Reason,
    SMALL_RECORD_MAX, SealError, Suite, Version, WARNINGS_MAX, record_room, seal_alert,
    seal_in_place,
};

const CLOSE_NOTIFY: [u8; 2] = [1, 0];

#[test]
fn every_row_has_its_test() {
    let tests = concat!(
        include_str!("answers.rs"),
        include_str!("answers_tls12.rs"),
        include_str!("answers_tls13.rs"),
    );
    let mut rows = 0;
    for line in include_str!("../../src/lib.rs").lines() {
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
        // Data resets the count of empty records.
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
        let max: usize = match to.state.version() {
            Version::Tls12 => CONTENT_MAX + 2048,
            Version::Tls13 => CONTENT_MAX + 256,
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
        // The shortest valid length. For TLS 1.3 such a record has no type byte and is refused later.
        let room = record_room(&from.state);
        let min = match to.state.version() {
            Version::Tls12 => from.data(b"").len() - 5,
            Version::Tls13 => room.trailer - 1,
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
        let inner_len = match to.state.version() {
            Version::Tls12 => CONTENT_MAX + 1,
            Version::Tls13 => CONTENT_MAX + 2,
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
        // Nothing can be sealed after it ...
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
fn data_after_close_notify() {
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
        // user_canceled is the only warning of TLS 1.3 that does not close.
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
    for version in [Version::Tls12, Version::Tls13] {
        let (server, client) = pair_at(version, suite, 1, u64::MAX - 3, 0);
        let (mut to, mut from) = (End::new(server), End::new(client));
        to.opened(from.data(b"the last record that data may use"));
        let mut buf = [0; 64];
        let sealed = seal_in_place(&mut from.state, &mut from.seal_key, &mut buf, 1);
        assert_eq!(sealed, Err(SealError::KeyExhausted));
        // Two records are reserved for the end.
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
fn after_a_refusal() {
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

/// Copies a state, which only a test may do.
fn copy(end: &End) -> dormouse_record::State {
    use zerocopy::{FromBytes, IntoBytes};
    dormouse_record::State::read_from_bytes(end.state.as_bytes()).unwrap()
}
