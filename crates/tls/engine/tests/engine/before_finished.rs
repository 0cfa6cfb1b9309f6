//! One test for each row of the table in `src/handshake/record_rules.rs`: unprotected records.

use dormouse_engine::{FailureKind, Handshake, Progress, Protocols};
use dormouse_testkit::now;
use rustls::Connection;

use crate::forgery::{
    ALERT, CHANGE_CIPHER_SPEC, CLOSE_NOTIFY, DATA, HANDSHAKE, Scene, record, scenes_of,
};
use crate::ours;

const UNEXPECTED_MESSAGE: u8 = 10;
const BAD_RECORD_MAC: u8 = 20;
const RECORD_OVERFLOW: u8 = 22;
const ILLEGAL_PARAMETER: u8 = 47;
const DECODE_ERROR: u8 = 50;
const PROTOCOL_VERSION: u8 = 70;
const MISSING_EXTENSION: u8 = 109;

#[test]
fn every_row_has_its_test() {
    let tests = concat!(
        include_str!("before_finished.rs"),
        include_str!("before_finished_protected.rs"),
    );
    let mut rows = 0;
    for line in include_str!("../../src/handshake/record_rules.rs").lines() {
        if let Some(row) = line.strip_prefix("//! | `") {
            let cell = row.split(" |").next().unwrap();
            for name in cell.split('`').step_by(2) {
                assert!(
                    tests.contains(&format!("#[test]\nfn {name}() {{")),
                    "{name}"
                );
            }
            rows += 1;
        }
    }
    assert!(rows > 20, "the table was not found");
}

fn server() -> Handshake {
    ours::server_handshake(&ours::server())
}

/// Returns a client that has sent its hello.
fn client() -> Handshake {
    let mut client = ours::client_with_hello(&ours::client());
    client.output_sent(client.output().len());
    client
}

fn hello() -> Vec<u8> {
    ours::client_with_hello(&ours::client()).output().to_vec()
}

/// Asserts a refusal with this unprotected alert.
#[track_caller]
fn assert_refused(mut handshake: Handshake, bytes: &[u8], alert: u8) {
    let failure = handshake.handle_input(now(), bytes).unwrap_err();
    assert_eq!(failure.alert_sent, Some(alert), "{failure}");
    assert_eq!(handshake.output(), [ALERT, 3, 3, 0, 2, 2, alert]);
}

#[test]
fn unknown_record_type() {
    for typ in (0..20).chain(24..=255) {
        let header = [typ, 3, 3, 0, 64];
        assert_refused(server(), &header, UNEXPECTED_MESSAGE);
        assert_refused(client(), &header, UNEXPECTED_MESSAGE);
    }
    for mut scene in Scene::all() {
        scene.assert_refused(&[24, 3, 3, 0, 64], UNEXPECTED_MESSAGE);
    }
}

#[test]
fn data_in_the_clear() {
    let header = [DATA, 3, 3, 0, 5];
    assert_refused(server(), &header, UNEXPECTED_MESSAGE);
    assert_refused(client(), &header, UNEXPECTED_MESSAGE);
    for mut scene in scenes_of(Protocols::TLS12) {
        scene.assert_refused(&header, UNEXPECTED_MESSAGE);
    }
}

#[test]
fn change_cipher_spec_first() {
    let header = [CHANGE_CIPHER_SPEC, 3, 3, 0, 1];
    assert_refused(server(), &header, UNEXPECTED_MESSAGE);
    assert_refused(client(), &header, UNEXPECTED_MESSAGE);
}

#[test]
fn change_cipher_spec_of_another_value() {
    for content in [&[0][..], &[2], &[1, 1]] {
        for mut scene in Scene::all() {
            scene.assert_refused(&record(CHANGE_CIPHER_SPEC, content), UNEXPECTED_MESSAGE);
        }
    }
}

#[test]
fn change_cipher_spec_any_number() {
    for mut scene in scenes_of(Protocols::TLS13) {
        for _ in 0..50 {
            scene.assert_accepted(&record(CHANGE_CIPHER_SPEC, &[1]));
        }
        scene.assert_established();
    }
}

#[test]
fn change_cipher_spec_inside_a_message() {
    let hello = hello();
    let (start, rest) = hello[5..].split_at(100);
    let bytes = [
        record(HANDSHAKE, start),
        record(CHANGE_CIPHER_SPEC, &[1]),
        record(HANDSHAKE, rest),
    ];
    assert_refused(server(), &bytes.concat(), UNEXPECTED_MESSAGE);
}

#[test]
fn clear_record_too_long() {
    for typ in [HANDSHAKE, ALERT] {
        for handshake in [server(), client()] {
            assert_refused(handshake, &[typ, 3, 3, 0x40, 1], RECORD_OVERFLOW);
        }
        for mut handshake in [server(), client()] {
            let progress = handshake.handle_input(now(), &[typ, 3, 3, 0x40, 0]);
            assert_eq!(progress.unwrap(), Progress::Handshaking);
        }
    }
    for mut scene in scenes_of(Protocols::TLS12) {
        scene.assert_refused(&[HANDSHAKE, 3, 3, 0x40, 1], RECORD_OVERFLOW);
    }
}

#[test]
fn empty_record() {
    for typ in [HANDSHAKE, ALERT] {
        assert_refused(server(), &record(typ, &[]), UNEXPECTED_MESSAGE);
        assert_refused(client(), &record(typ, &[]), UNEXPECTED_MESSAGE);
    }
    for typ in [ALERT, CHANGE_CIPHER_SPEC] {
        for mut scene in Scene::all() {
            scene.assert_refused(&record(typ, &[]), UNEXPECTED_MESSAGE);
        }
    }
}

#[test]
fn protected_record_too_long() {
    for mut scene in scenes_of(Protocols::TLS13) {
        scene.assert_refused(&[DATA, 3, 3, 0x41, 1], RECORD_OVERFLOW);
    }
    for mut scene in scenes_of(Protocols::TLS12) {
        scene.change_cipher();
        scene.assert_refused(&[HANDSHAKE, 3, 3, 0x48, 1], RECORD_OVERFLOW);
    }
}

#[test]
fn unprotected_finished() {
    for mut scene in scenes_of(Protocols::TLS13) {
        scene.assert_refused(&[HANDSHAKE, 3, 3, 0, 36], UNEXPECTED_MESSAGE);
    }
}

#[test]
fn forged_record() {
    for mut scene in scenes_of(Protocols::TLS13) {
        scene.assert_refused(&record(DATA, &[7; 40]), BAD_RECORD_MAC);
    }
    for mut scene in scenes_of(Protocols::TLS12) {
        scene.change_cipher();
        scene.assert_refused(&record(HANDSHAKE, &[7; 40]), BAD_RECORD_MAC);
    }
}

#[test]
fn close_notify() {
    let close = record(ALERT, &[1, CLOSE_NOTIFY]);
    for mut handshake in [server(), client()] {
        let failure = handshake.handle_input(now(), &close).unwrap_err();
        assert_eq!(failure.kind, FailureKind::PeerClosed);
        assert_eq!(handshake.output(), close);
    }
    for mut scene in Scene::all() {
        let failure = scene.failure(&close);
        assert_eq!(failure.kind, FailureKind::PeerClosed);
        assert!(scene.peer_receives_close());
    }
}

#[test]
fn peer_alert() {
    // Any warning other than close_notify is also an error, except in TLS 1.2 (RFC 8446 §6.2).
    for level in [1, 2] {
        for mut scene in scenes_of(Protocols::TLS13) {
            let failure = scene.failure(&record(ALERT, &[level, 40]));
            assert_eq!(failure.kind, FailureKind::PeerAlert(40));
            assert!(scene.output().is_empty());
        }
    }
    for mut scene in scenes_of(Protocols::TLS12) {
        let failure = scene.failure(&record(ALERT, &[2, 40]));
        assert_eq!(failure.kind, FailureKind::PeerAlert(40));
        assert!(scene.output().is_empty());
    }
}

#[test]
fn ssl_3() {
    let mut hello = hello();
    hello[9..11].copy_from_slice(&[3, 0]);
    assert_refused(server(), &hello, PROTOCOL_VERSION);
    let byte_by_byte: Vec<u8> = (hello[5..].iter())
        .flat_map(|byte| record(HANDSHAKE, &[*byte]))
        .collect();
    assert_refused(server(), &byte_by_byte, PROTOCOL_VERSION);
    let mut server_hello = vec![2, 0, 0, 44, 3, 0];
    server_hello.resize(48, 0);
    let bytes = record(HANDSHAKE, &server_hello);
    assert_refused(client(), &bytes, PROTOCOL_VERSION);
}

#[test]
fn old_client() {
    for minor in [1, 2] {
        let mut hello = vec![1, 0, 0, 57, 3, minor];
        hello.extend_from_slice(&[7; 32]);
        // No session; ECDHE-ECDSA-AES128-SHA and ECDHE-RSA-AES128-SHA; no compression; P-256.
        hello.extend_from_slice(&[0, 0, 4, 0xc0, 0x09, 0xc0, 0x13, 1, 0]);
        hello.extend_from_slice(&[0, 14, 0, 10, 0, 4, 0, 2, 0, 23, 0, 11, 0, 2, 1, 0]);
        hello[3] = (hello.len() - 4) as u8;
        assert_refused(server(), &record(HANDSHAKE, &hello), PROTOCOL_VERSION);
        // However it is split.
        let (start, rest) = hello.split_at(3);
        let cut = [record(HANDSHAKE, start), record(HANDSHAKE, rest)].concat();
        assert_refused(server(), &cut, PROTOCOL_VERSION);
    }
}

#[test]
fn no_key_share() {
    const KEY_SHARE: u16 = 51;
    let without = without_extension(&hello()[5..], KEY_SHARE);
    assert_refused(server(), &record(HANDSHAKE, &without), MISSING_EXTENSION);
}

/// Returns a ClientHello without one of its extensions.
fn without_extension(hello: &[u8], unwanted: u16) -> Vec<u8> {
    let session_id_len = usize::from(hello[38]);
    let suites_at = 39 + session_id_len;
    let suites_len = usize::from(u16::from_be_bytes([hello[suites_at], hello[suites_at + 1]]));
    let extensions_at = suites_at + 2 + suites_len + 2;
    let (head, extensions) = hello.split_at(extensions_at);
    let mut rest = &extensions[2..];
    let mut kept = Vec::new();
    while let [a, b, high, low, ..] = *rest {
        let (extension, behind) = rest.split_at(4 + usize::from(u16::from_be_bytes([high, low])));
        if u16::from_be_bytes([a, b]) != unwanted {
            kept.extend_from_slice(extension);
        }
        rest = behind;
    }
    let mut changed = head.to_vec();
    changed.extend((kept.len() as u16).to_be_bytes());
    changed.extend(kept);
    let len = (changed.len() - 4) as u32;
    changed[1..4].copy_from_slice(&len.to_be_bytes()[1..]);
    changed
}

#[test]
fn psk_modes_of_a_server() {
    let mut server_hello = vec![2, 0, 0, 0, 3, 3];
    server_hello.extend([7; 32]);
    // No session, TLS_AES_128_GCM_SHA256, no compression; supported_versions, psk_key_exchange_modes.
    server_hello.extend([0, 0x13, 1, 0, 0, 12]);
    server_hello.extend([0, 43, 0, 2, 3, 4, 0, 45, 0, 2, 1, 1]);
    server_hello[3] = (server_hello.len() - 4) as u8;
    let bytes = record(HANDSHAKE, &server_hello);
    assert_refused(client(), &bytes, ILLEGAL_PARAMETER);
}

#[test]
fn message_that_cannot_be_decoded() {
    let hello = [1, 0, 0, 4, 3, 3, 0, 0];
    assert_refused(server(), &record(HANDSHAKE, &hello), DECODE_ERROR);
    let server_hello = [2, 0, 0, 4, 3, 3, 0, 0];
    assert_refused(client(), &record(HANDSHAKE, &server_hello), DECODE_ERROR);
}

#[test]
fn unexpected_message() {
    let finished = record(HANDSHAKE, &[20, 0, 0, 0]);
    assert_refused(server(), &finished, UNEXPECTED_MESSAGE);
    assert_refused(client(), &finished, UNEXPECTED_MESSAGE);
}

#[test]
fn more_bytes_than_allowed() {
    // A message of 16 MB, in complete records.
    let mut first = vec![1, 0xff, 0xff, 0xff];
    first.resize(16_384, 0);
    let bytes = [record(HANDSHAKE, &first), record(HANDSHAKE, &[0; 16_384])].concat();
    let mut server = server();
    let failure = (0..10).find_map(|_| server.handle_input(now(), &bytes).err());
    assert!(failure.unwrap().alert_sent.is_some());
    // ChangeCipherSpec records are dropped but counted.
    for mut scene in scenes_of(Protocols::TLS13) {
        let flood = record(CHANGE_CIPHER_SPEC, &[1]).repeat(20_000);
        let failure = scene.failure(&flood);
        assert_eq!(failure.kind, FailureKind::TooLarge);
        assert_eq!(failure.alert_sent, Some(ILLEGAL_PARAMETER));
        assert_eq!(scene.alert_at_peer(), Some(ILLEGAL_PARAMETER));
    }
}

/// Control test: without tampering, a stock peer completes the handshake.
#[test]
fn scenes_complete_without_tampering() {
    for mut scene in Scene::all() {
        assert!(matches!(
            scene.peer,
            Connection::Client(_) | Connection::Server(_)
        ));
        scene.assert_established();
    }
}
