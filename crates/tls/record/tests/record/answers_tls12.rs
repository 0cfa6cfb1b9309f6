//! One test for each row of the table in the crate's documentation: rows for TLS 1.2.

use crate::common::*;
use dormouse_record::{
    Alert, AlertDescription as Description, Opened, Reason, Role, SMALL_RECORD_MAX, Version,
    WARNINGS_MAX, seal_alert,
};

#[test]
fn renegotiation() {
    let hello = [&[1, 0, 0, 200][..], &[0xcc; 200]].concat();
    for cut in 1..hello.len() {
        for (mut to, mut from) in every_suite(Version::Tls12, Role::Server) {
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
    // Repeated requests count as warnings in a row.
    let (mut to, mut from) = every_suite(Version::Tls12, Role::Server).next().unwrap();
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
    for (mut to, mut from) in every_suite(Version::Tls12, Role::Client) {
        let opened = to.opened(from.record(HANDSHAKE, &[0, 0, 0, 0]));
        assert!(matches!(opened, Opened::NoRenegotiation { .. }));
        assert_eq!(to.opened_data(from.data(b"goes on")), b"goes on");
    }
}

#[test]
fn hello_request_of_wrong_length() {
    for (mut to, mut from) in every_suite(Version::Tls12, Role::Client) {
        let refusal = to.refused(from.record(HANDSHAKE, &[0, 0, 0, 1, 0]));
        assert_eq!(refusal.reason, Reason::HandshakeLength(0, 1));
        assert_eq!(refusal.alert, Description::DecodeError);
    }
}

#[test]
fn unexpected_message_tls12() {
    for (role, expected) in [(Role::Server, 1), (Role::Client, 0)] {
        for kind in (0..=255).filter(|&kind| kind != expected) {
            for (mut to, mut from) in every_suite(Version::Tls12, role) {
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
        for (mut to, mut from) in every_kind_of(Version::Tls12) {
            let opened = to.opened(from.record(ALERT, &[1, description]));
            assert!(matches!(opened, Opened::Handled { .. }));
            assert_eq!(to.opened_data(from.data(b"goes on")), b"goes on");
        }
    }
}

#[test]
fn split_and_coalesced_alerts() {
    let alerts = [1, 100, 1, 90, 1, 0];
    for cut in 1..alerts.len() {
        for (mut to, mut from) in every_kind_of(Version::Tls12) {
            let opened = to.opened(from.record(ALERT, &alerts[..cut]));
            assert!(matches!(opened, Opened::Handled { .. }));
            assert_eq!(to.state.awaits_rest_of_message(), cut % 2 == 1);
            to.state.validate().unwrap();
            let opened = to.opened(from.record(ALERT, &alerts[cut..]));
            assert!(matches!(opened, Opened::PeerClosed { .. }));
        }
    }
    for (mut to, mut from) in every_kind_of(Version::Tls12) {
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
        for (mut to, mut from) in every_kind_of(Version::Tls12) {
            let refusal = to.refused(from.record(ALERT, &[level, 40]));
            assert_eq!(refusal.reason, Reason::AlertLevel(level));
            assert_eq!(refusal.alert, Description::DecodeError);
        }
    }
}
