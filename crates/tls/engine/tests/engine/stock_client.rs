//! Our server with a stock rustls client.

use std::sync::Arc;

use dormouse_engine::stream::End;
use dormouse_engine::{Handshake, Progress, Protocols, ServerContext, TicketSettings};
use dormouse_record as record;
use dormouse_testkit::{Event, Resting, now};
use rustls::{ClientConfig, Connection, HandshakeKind};

use crate::ours;
use crate::stock::{SUITES, client, client_config, content, incoming, outgoing, provider, write};

/// Brings the server to rest. `behind` is called before the client's last flight is taken, so that its data
/// follows Finished in the same segment.
fn connect(
    context: &ServerContext,
    config: &Arc<ClientConfig>,
    behind: impl Fn(&mut Connection),
) -> (Connection, Resting) {
    let mut client = client(config);
    let mut server = ours::server_handshake(context);
    loop {
        if !client.is_handshaking() {
            behind(&mut client);
        }
        let flight = outgoing(&mut client);
        let progress = server.handle_input(now(), &flight).unwrap();
        if progress == Progress::Established {
            break;
        }
        let answer = server.output().to_vec();
        server.output_sent(answer.len());
        assert!(incoming(&mut client, &answer).is_empty());
    }
    let mut state = record::State::empty();
    let rested = server.rest(&mut state).unwrap();
    assert!(incoming(&mut client, &rested.unsent).is_empty());
    (client, Resting::new(state, rested))
}

#[test]
fn data_key_updates_and_closing_in_every_suite() {
    let context = ours::server();
    for (protocols, suite) in SUITES {
        let config = Arc::new(client_config(protocols, provider(Some(suite))));
        let (mut client, mut server) = connect(&context, &config, |_| {});
        for len in [1, 5, 16_384, 16_385, 50_000] {
            exchange(&mut client, &mut server, len);
        }
        if protocols == Protocols::TLS13 {
            // Theirs: it asks for ours in return.
            client.refresh_traffic_keys().unwrap();
            exchange(&mut client, &mut server, 100);
            // Ours, twice, unasked.
            for _ in 0..2 {
                let update = server.seal_key_update();
                assert!(incoming(&mut client, &update).is_empty());
                exchange(&mut client, &mut server, 100);
            }
        }
        client.send_close_notify();
        assert_eq!(
            server.open(&outgoing(&mut client)),
            [Event::Ended(End::Closed)]
        );
        // Half-closed: our direction still works.
        let record = server.seal(b"last words");
        assert_eq!(incoming(&mut client, &record), b"last words");
        let close = server.seal_close();
        client.read_tls(&mut close.as_slice()).unwrap();
        assert!(client.process_new_packets().unwrap().peer_has_closed());
    }
}

fn exchange(client: &mut Connection, server: &mut Resting, len: usize) {
    let content = content(len);
    for piece in content.chunks(20_000) {
        write(client, piece);
        let records = outgoing(client);
        assert_eq!(server.open(&records), [Event::Data(piece.to_vec())]);
        let records = server.seal(piece);
        assert_eq!(incoming(client, &records), piece);
    }
}

#[test]
fn data_right_after_finished_is_left_over() {
    let context = ours::server();
    for protocols in [Protocols::TLS13, Protocols::TLS12] {
        let config = Arc::new(client_config(protocols, provider(None)));
        for resumed in [false, true] {
            let (mut client, mut server) =
                connect(&context, &config, |client| write(client, b"early bird"));
            assert_eq!(server.info.resumed, resumed);
            // In a full TLS 1.2 handshake the server's Finished comes last, not the client's.
            if protocols == Protocols::TLS13 || resumed {
                assert!(!server.unopened().is_empty());
                assert_eq!(server.open(&[]), [Event::Data(b"early bird".to_vec())]);
            }
            exchange(&mut client, &mut server, 10);
        }
    }
}

#[test]
fn a_key_update_right_after_finished_is_left_over() {
    let context = ours::server();
    let config = Arc::new(client_config(Protocols::TLS13, provider(None)));
    let (mut client, mut server) = connect(&context, &config, |client| {
        client.refresh_traffic_keys().unwrap();
        write(client, b"under the second key");
    });
    assert!(!server.unopened().is_empty());
    assert_eq!(
        server.open(&[]),
        [Event::Data(b"under the second key".to_vec())]
    );
    assert!(server.state.owes_key_update());
    exchange(&mut client, &mut server, 100);
}

#[test]
fn sessions_resume_and_early_data_is_never_offered() {
    let context = ours::server();
    for protocols in [Protocols::TLS13, Protocols::TLS12] {
        let mut config = client_config(protocols, provider(None));
        config.enable_early_data = true;
        let config = Arc::new(config);
        for round in 0..4 {
            let (mut client, mut server) = connect(&context, &config, |_| {});
            let resumed = client.handshake_kind() == Some(HandshakeKind::Resumed);
            assert_eq!(resumed, round > 0, "{protocols:?} round {round}");
            assert_eq!(server.info.resumed, resumed);
            if let Connection::Client(client) = &mut client {
                assert!(client.early_data().is_none());
            }
            if protocols == Protocols::TLS13 {
                assert_eq!(server.state.write_sequence(), 1, "one record of tickets");
            }
            exchange(&mut client, &mut server, 10);
        }
    }
}

/// wolfSSL clients have room for a nonce of eight bytes. Each ticket of a connection needs a different nonce
/// (RFC 8446 §4.6.1).
#[test]
fn nonces_of_tickets_are_short_and_differ() {
    const NEW_SESSION_TICKET: u8 = 4;
    let context = ours::server_with(|settings| {
        settings.tickets = Some(TicketSettings {
            per_handshake: 5,
            ..TicketSettings::default()
        });
    });
    let mut client = ours::client_with_hello(&ours::client());
    let mut server = ours::server_handshake(&context);
    for _ in 0..2 {
        pass(&mut client, &mut server);
        pass(&mut server, &mut client);
    }
    let mut state = record::State::empty();
    let mut received = client.rest(&mut state).unwrap().leftover;
    let mut key = record::OpenKey::new(&state);
    let opened = record::open(&mut state, &mut key, &mut received).unwrap();
    let record::Opened::Ticket { fragment, .. } = opened else {
        panic!("no ticket: {opened:?}");
    };
    let mut nonces = Vec::new();
    let mut rest = &received[fragment];
    while let [kind, 0, high, low, body @ ..] = rest {
        assert_eq!(*kind, NEW_SESSION_TICKET);
        let (ticket, behind) = body.split_at(usize::from(u16::from_be_bytes([*high, *low])));
        // After the lifetime and age_add.
        let nonce_len = usize::from(ticket[8]);
        assert!((1..=8).contains(&nonce_len), "{nonce_len} bytes");
        nonces.push(&ticket[9..9 + nonce_len]);
        rest = behind;
    }
    assert!(rest.is_empty());
    assert_eq!(nonces.len(), 5);
    nonces.dedup();
    assert_eq!(nonces.len(), 5, "all differ");
}

fn pass(from: &mut Handshake, to: &mut Handshake) {
    let bytes = from.output().to_vec();
    from.output_sent(bytes.len());
    to.handle_input(now(), &bytes).unwrap();
}
