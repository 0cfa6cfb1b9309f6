//! Peers that do not use TLS, or not a TLS that we accept, and the alerts they get.

use dormouse_engine::{
    Blame, FailureKind, Group, Handshake, HandshakeFailure, HandshakeLimits, Progress, Protocols,
    ServerContext, ServerSettings, SettingsError, TicketKeys, TicketSettings,
};
use dormouse_record as record;
use dormouse_testkit::{Authority, Cut, Outcome, Pair, PairSettings, Side, drive_tampered, now};
use proptest::prelude::*;

use crate::ours;
use crate::stock::NAME;

fn server() -> Handshake {
    ours::server_handshake(&ours::server())
}

fn client() -> Handshake {
    ours::client_with_hello(&ours::client())
}

#[test]
fn plain_http_gets_a_400_reply() {
    for request in ["GET / HTTP/1.1\r\n\r\n", "POST /x HTTP/1.0\r\n\r\n"] {
        for piece_len in [1, 3, 100] {
            let mut server = server();
            let failure = request
                .as_bytes()
                .chunks(piece_len)
                .find_map(|piece| server.handle_input(now(), piece).err())
                .unwrap();
            assert_eq!(failure.kind, FailureKind::PlainHttp);
            assert_eq!(failure.blame, Blame::Peer);
            assert!(server.output().starts_with(b"HTTP/1.1 400 "));
        }
    }
}

#[test]
fn garbage_is_not_tls() {
    for garbage in [&b"SSH-2.0-OpenSSH\r\n"[..], &[0; 64], &[0xff; 64]] {
        let mut server = server();
        let failure = server.handle_input(now(), garbage).unwrap_err();
        assert_eq!(failure.kind, FailureKind::NotTls, "{failure}");
        // A failure is final, and is returned again.
        let again = server.handle_input(now(), b"more").unwrap_err();
        assert_eq!(again.kind, failure.kind);
    }
    let failure = client().handle_input(now(), b"HTTP/1.1 400 Bad Request\r\n");
    let failure = failure.unwrap_err();
    assert_eq!(failure.kind, FailureKind::NotTls);
    assert!(failure.reason.contains("HTTP/"), "{failure}");
}

/// A ClientHello of two records, 17,000 bytes, in segments of one byte.
#[test]
fn a_client_hello_byte_by_byte_costs_one_buffer() {
    let alpn: Vec<Vec<u8>> = (0..62_u8).map(|i| vec![b'a' + i % 26; 250]).collect();
    let client =
        ours::client_with_hello(&ours::client_with(|settings| settings.alpn = alpn.clone()));
    let hello = client.output();
    assert!(hello.len() > 16_384);

    let context = ours::server_with(|settings| settings.alpn = vec![alpn[5].clone()]);
    let mut server = ours::server_handshake(&context);
    for byte in hello {
        assert!(server.output().is_empty());
        server.handle_input(now(), &[*byte]).unwrap();
        let held = server.buffered_bytes();
        assert!(
            held <= 2 * hello.len() + 4_096,
            "{held} for {}",
            hello.len()
        );
    }
    assert!(!server.output().is_empty());
}

#[test]
fn silent_clients_cost_no_buffer() {
    let mut server = server();
    let progress = server.handle_input(now(), &[]).unwrap();
    assert_eq!(progress, Progress::Handshaking);
    assert_eq!(server.buffered_bytes(), 0);

    // Neither does a client that sends nothing after its hello.
    server.handle_input(now(), client().output()).unwrap();
    assert!(server.buffered_bytes() > 0);
    server.output_sent(server.output().len());
    assert_eq!(server.buffered_bytes(), 0);
}

#[test]
fn more_bytes_than_allowed() {
    let pair = Pair::new(PairSettings::default());
    let limits = HandshakeLimits { bytes_max: 100 };
    let (mut client, _) = pair.handshakes();
    client.handle_input(now(), &[]).unwrap();
    let mut server = Handshake::server(&pair.server, limits);
    let failure = server.handle_input(now(), client.output()).unwrap_err();
    assert_eq!(failure.kind, FailureKind::TooLarge);
    assert_eq!(failure.blame, Blame::Limit);

    // With records of one byte the buffer is bounded too.
    let hello = [22, 3, 1, 0, 1, 1];
    let mut server = ours::server_handshake(&pair.server);
    let failure = (0..100_000)
        .find_map(|_| server.handle_input(now(), &hello).err())
        .unwrap();
    assert!(server.buffered_bytes() <= 2 * 65_536, "{failure}");
}

#[test]
fn an_overlong_record_is_refused_at_its_header() {
    let mut server = server();
    let failure = server.handle_input(now(), &[22, 3, 1, 0xff, 0xff]);
    assert_eq!(failure.unwrap_err().kind, FailureKind::Malformed);
    assert!(!server.output().is_empty(), "an alert");
}

fn refused(settings: PairSettings, server: impl FnOnce(&mut ServerSettings)) -> HandshakeFailure {
    let leaf = settings.leaf.clone();
    let pair = Pair::new(settings);
    let mut its = ServerSettings::new(vec![leaf.identity()]);
    server(&mut its);
    let server = ServerContext::new(its).unwrap();
    let (client, _) = pair.handshakes();
    let server = ours::server_handshake(&server);
    match drive_tampered(client, server, Cut::Whole, None) {
        Outcome::Failed(Side::Server, failure) => failure,
        _ => panic!("the server should have refused"),
    }
}

/// Before TLS 1.2, clients did not list the signatures they accept (RFC 5246 §7.4.1.4.1); the failure must name
/// the version instead.
#[test]
fn a_tls_1_1_client_gets_protocol_version() {
    for minor in [1, 2] {
        let mut hello = vec![3, minor];
        hello.extend_from_slice(&[7; 32]);
        // No session; ECDHE-ECDSA-AES128-SHA and ECDHE-RSA-AES128-SHA; no compression; P-256.
        hello.extend_from_slice(&[0, 0, 4, 0xc0, 0x09, 0xc0, 0x13, 1, 0]);
        hello.extend_from_slice(&[0, 14, 0, 10, 0, 4, 0, 2, 0, 23, 0, 11, 0, 2, 1, 0]);
        let mut record = vec![
            22,
            3,
            1,
            0,
            hello.len() as u8 + 4,
            1,
            0,
            0,
            hello.len() as u8,
        ];
        record.extend_from_slice(&hello);
        let mut server = server();
        let failure = server.handle_input(now(), &record).unwrap_err();
        assert_eq!(failure.kind, FailureKind::NoCommonVersion, "{failure}");
        assert_eq!(failure.blame, Blame::Peer);
        assert_eq!(server.output(), [21, 3, 3, 0, 2, 2, 70]);
    }
}

#[test]
fn no_common_parameters() {
    let failure = refused(
        PairSettings {
            protocols: Protocols::TLS12,
            ..PairSettings::default()
        },
        |server| server.protocols = Protocols::TLS13,
    );
    assert_eq!(failure.kind, FailureKind::NoCommonVersion);
    assert_eq!(failure.alert_sent, Some(70), "{failure}");

    let failure = refused(PairSettings::default(), |server| {
        server.groups = vec![Group::P384];
    });
    assert_eq!(failure.kind, FailureKind::NoCommonGroup);
    assert_eq!(failure.alert_sent, Some(40), "{failure}");

    let failure = refused(
        PairSettings {
            alpn: vec![b"h2".to_vec()],
            ..PairSettings::default()
        },
        |server| server.alpn = vec![b"echo/1".to_vec()],
    );
    assert_eq!(failure.kind, FailureKind::NoCommonAlpn);
    assert_eq!(failure.alert_sent, Some(120), "{failure}");
    assert_eq!(failure.blame, Blame::Configuration);
}

#[test]
fn the_peers_alert_is_named() {
    // fatal, handshake_failure
    let alert = [21, 3, 3, 0, 2, 2, 40];
    for mut handshake in [client(), server()] {
        let failure = handshake.handle_input(now(), &alert).unwrap_err();
        assert_eq!(failure.kind, FailureKind::PeerAlert(40));
        assert!(failure.reason.contains("handshake_failure"), "{failure}");
    }
}

/// The server learns why the client refused, in both versions.
#[test]
fn the_server_learns_why_the_client_refused() {
    for protocols in [Protocols::TLS13, Protocols::TLS12] {
        let stranger = Authority::new("A Stranger").ecdsa(&[NAME]);
        let pair = Pair::new(PairSettings {
            protocols,
            leaf: stranger,
            ..PairSettings::default()
        });
        let (mut client, mut server) = pair.handshakes();
        client.handle_input(now(), &[]).unwrap();
        server.handle_input(now(), client.output()).unwrap();
        client.output_sent(client.output().len());
        let failure = client.handle_input(now(), server.output()).unwrap_err();
        assert_eq!(failure.alert_sent, Some(48), "{failure}");
        let failure = server.handle_input(now(), client.output()).unwrap_err();
        assert_eq!(failure.kind, FailureKind::PeerAlert(48), "{failure}");
        assert!(failure.reason.contains("unknown_ca"));
    }
}

#[test]
fn resting_too_early_is_misuse() {
    let mut state = record::State::empty();
    let failure = client().rest(&mut state).unwrap_err();
    assert_eq!(failure.blame, Blame::Misuse);
    assert!(state.is_empty());
}

#[test]
fn unusable_settings_are_refused() {
    let with = |change: fn(&mut ServerSettings)| {
        let identity = Authority::shared().ecdsa(&[NAME]).identity();
        let mut settings = ServerSettings::new(vec![identity]);
        change(&mut settings);
        ServerContext::new(settings).unwrap_err()
    };
    assert_eq!(with(|s| s.identities.clear()), SettingsError::NoIdentity);
    assert_eq!(with(|s| s.groups.clear()), SettingsError::NoGroups);
    assert!(matches!(
        with(|s| s.alpn = vec![Vec::new()]),
        SettingsError::BadAlpn(_)
    ));
    assert_eq!(
        with(|s| s.protocols = Protocols {
            min: Protocols::ALL.max,
            max: Protocols::ALL.min
        }),
        SettingsError::VersionsReversed
    );
    assert!(matches!(
        with(|s| s.tickets = Some(TicketSettings {
            lifetime_s: 604_801,
            ..TicketSettings::default()
        })),
        SettingsError::BadTicketLifetime(_)
    ));
    assert!(matches!(
        TicketKeys::import(&[0; TicketKeys::EXPORT_LEN]),
        Err(SettingsError::BadTicketKeys)
    ));
    let context = ours::client();
    let limits = HandshakeLimits::default();
    for name in ["", "a b", "a..b", "300.1.1.1:443"] {
        assert!(Handshake::client(&context, name, limits).is_err(), "{name}");
    }
}

proptest! {
    /// Any bytes after any part of a real handshake cause an error, never a panic.
    #[test]
    fn any_bytes_are_handled_without_panics(
        tls12 in any::<bool>(),
        real_len in 0_usize..600,
        kind in 20_u8..25,
        garbage in proptest::collection::vec(any::<u8>(), 0..300),
        framed in any::<bool>(),
        piece_len in 1_usize..50,
    ) {
        let protocols = if tls12 { Protocols::TLS12 } else { Protocols::TLS13 };
        let pair = Pair::new(PairSettings { protocols, ..PairSettings::default() });
        let (mut client, mut server) = pair.handshakes();
        client.handle_input(now(), &[]).unwrap();
        let hello = client.output().to_vec();
        let mut helper = ours::server_handshake(&pair.server);
        helper.handle_input(now(), &hello).unwrap();
        let answer = helper.output().to_vec();

        let mut tail = Vec::new();
        if framed {
            tail.extend([kind, 3, 3, 0, 0]);
            tail[3..5].copy_from_slice(&(garbage.len() as u16).to_be_bytes());
        }
        tail.extend(&garbage);
        for (handshake, real) in [(&mut server, hello), (&mut client, answer)] {
            let mut bytes = real[..real_len.min(real.len())].to_vec();
            bytes.extend(&tail);
            for piece in bytes.chunks(piece_len) {
                if handshake.handle_input(now(), piece).is_err() {
                    break;
                }
            }
        }
    }
}
