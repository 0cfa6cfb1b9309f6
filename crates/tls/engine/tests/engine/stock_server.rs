//! Our client with a stock rustls server.

use std::sync::Arc;

use dormouse_engine::stream::{self, End};
use dormouse_engine::{ClientContext, Progress, Protocols};
use dormouse_record::{self as record, Reason};
use dormouse_testkit::{Authority, Event, Resting, now};
use rustls::server::WebPkiClientVerifier;
use rustls::{Connection, ServerConfig, ServerConnection};

use crate::ours;
use crate::stock::{
    NAME, SUITES, content, incoming, outgoing, provider, roots, server_config,
    server_config_asking, write,
};

/// Brings the client to rest. `behind` is called whenever the server is about to send.
fn connect(
    context: &ClientContext,
    config: &Arc<ServerConfig>,
    behind: impl Fn(&mut Connection),
) -> (Resting, Connection) {
    let mut server: Connection = ServerConnection::new(Arc::clone(config)).unwrap().into();
    let mut client = ours::client_handshake(context);
    let mut progress = client.handle_input(now(), &[]).unwrap();
    loop {
        let flight = client.output().to_vec();
        client.output_sent(flight.len());
        assert!(incoming(&mut server, &flight).is_empty());
        behind(&mut server);
        if progress == Progress::Established {
            break;
        }
        progress = client.handle_input(now(), &outgoing(&mut server)).unwrap();
    }
    let mut state = record::State::empty();
    let rested = client.rest(&mut state).unwrap();
    assert!(rested.unsent.is_empty());
    (Resting::new(state, rested), server)
}

#[test]
fn data_key_updates_and_closing_in_every_suite() {
    let leaf = Authority::shared().ecdsa(&[NAME]);
    for (protocols, suite) in SUITES {
        let context = ours::client();
        let config = Arc::new(server_config(&leaf, protocols, provider(Some(suite))));
        let (mut client, mut server) = connect(&context, &config, |_| {});
        for len in [1, 5, 16_384, 16_385] {
            exchange(&mut client, &mut server, len);
        }
        if protocols == Protocols::TLS13 {
            server.refresh_traffic_keys().unwrap();
            exchange(&mut client, &mut server, 100);
            let update = client.seal_key_update();
            assert!(incoming(&mut server, &update).is_empty());
            exchange(&mut client, &mut server, 100);
        }
        server.send_close_notify();
        assert_eq!(
            client.open(&outgoing(&mut server)),
            [Event::Ended(End::Closed)]
        );
        let record = client.seal(b"last words");
        assert_eq!(incoming(&mut server, &record), b"last words");
        let close = client.seal_close();
        server.read_tls(&mut close.as_slice()).unwrap();
        assert!(server.process_new_packets().unwrap().peer_has_closed());
    }
}

fn exchange(client: &mut Resting, server: &mut Connection, len: usize) {
    let content = content(len);
    let records = client.seal(&content);
    assert_eq!(incoming(server, &records), content);
    write(server, &content);
    assert_eq!(client.open(&outgoing(server)), [Event::Data(content)]);
}

/// The server writes before it has the client's Finished, so its data precedes its tickets.
#[test]
fn half_rtt_data_comes_before_the_tickets() {
    let leaf = Authority::shared().ecdsa(&[NAME]);
    let mut config = server_config(&leaf, Protocols::TLS13, provider(None));
    config.send_half_rtt_data = true;
    let config = Arc::new(config);
    let context = ours::client();
    for round in 0..3 {
        let (mut client, mut server) = connect(&context, &config, |server| {
            if server.is_handshaking() {
                write(server, b"half");
            }
        });
        assert_eq!(client.info.resumed, round > 0);
        assert_eq!(client.open(&[]), [Event::Data(b"half".to_vec())]);
        assert_eq!(client.tickets.as_ref().unwrap().received(), 0);
        write(&mut server, b"whole");
        assert_eq!(
            client.open(&outgoing(&mut server)),
            [Event::Data(b"whole".to_vec())]
        );
        assert!(client.tickets.as_ref().unwrap().is_satisfied());
        exchange(&mut client, &mut server, 10);
    }
}

#[test]
fn fragmented_tickets_are_accepted() {
    let leaf = Authority::shared().ecdsa(&[NAME]);
    let config = Arc::new(server_config(&leaf, Protocols::TLS13, provider(None)));
    let context = ours::client();
    for piece_len in [1, 3, 4, 5, 100] {
        let (mut client, mut server) = connect(&context, &config, |_| {});
        for piece in outgoing(&mut server).chunks(piece_len) {
            assert!(client.open(piece).is_empty());
        }
        assert_eq!(client.tickets.as_ref().unwrap().received(), 2);
    }
    let (client, _) = connect(&context, &config, |_| {});
    assert!(client.info.resumed);
}

#[test]
fn a_ticket_watch_accepts_single_bytes_and_refuses_other_messages() {
    let leaf = Authority::shared().ecdsa(&[NAME]);
    let config = Arc::new(server_config(&leaf, Protocols::TLS13, provider(None)));
    let context = ours::client();
    // lifetime, age_add, nonce (1 byte), ticket (2 bytes), no extensions: RFC 8446 §4.6.1.
    let mut ticket = vec![4, 0, 0, 16];
    ticket.extend([0, 0, 1, 0, 1, 2, 3, 4, 1, 9, 0, 2, b't', b't', 0, 0]);
    let (client, _) = connect(&context, &config, |_| {});
    let mut watch = client.tickets.unwrap();
    for byte in ticket.repeat(2) {
        watch.handle_fragment(now(), &[byte]).unwrap();
    }
    assert_eq!(watch.received(), 2);
    for bad in [&[24, 0, 0, 1, 0][..], &[4, 0xff, 0, 0], &[4, 0, 0, 2, 0, 0]] {
        let (client, _) = connect(&context, &config, |_| {});
        let mut watch = client.tickets.unwrap();
        let refusal = watch.handle_fragment(now(), bad).unwrap_err();
        assert_eq!(refusal.reason, Reason::TicketMalformed, "{bad:?}");
    }
}

#[test]
fn a_ticket_that_cannot_be_decoded_ends_the_connection() {
    const HANDSHAKE: u8 = 22;
    let server = ours::server_with(|settings| settings.tickets = None);
    let mut ours = ours::client_with_hello(&ours::client());
    let mut peer = ours::server_handshake(&server);
    for _ in 0..2 {
        let flight = ours.output().to_vec();
        ours.output_sent(flight.len());
        peer.handle_input(now(), &flight).unwrap();
        let answer = peer.output().to_vec();
        peer.output_sent(answer.len());
        ours.handle_input(now(), &answer).unwrap();
    }
    let (mut state, mut of_peer) = (record::State::empty(), record::State::empty());
    let (mut connection, _) = stream::Connection::established(ours.rest(&mut state).unwrap());
    peer.rest(&mut of_peer).unwrap();
    assert!(connection.awaits_tickets());
    let mut key = record::SealKey::new(&of_peer);
    let room = record::record_room(&of_peer);
    let ticket = [4, 0, 0, 2, 0, 0];
    let mut bytes = [0; 64];
    bytes[room.header..room.header + ticket.len()].copy_from_slice(&ticket);
    let len = record::seal_record(
        &mut of_peer,
        &mut key,
        &mut bytes,
        HANDSHAKE,
        ticket.len(),
        0,
    );
    let mut input = &mut bytes[..len.unwrap()];
    let event = connection.handle(&mut state, now(), &mut input);
    let stream::Event::Ended(End::Refused(refusal)) = event else {
        panic!("{event:?}");
    };
    assert_eq!(refusal.alert, record::AlertDescription::DecodeError);
    // The peer gets the alert.
    let mut alert = connection.output().to_vec();
    let mut key = record::OpenKey::new(&of_peer);
    let opened = record::open(&mut of_peer, &mut key, &mut alert).unwrap();
    assert!(matches!(
        opened,
        record::Opened::PeerAlert {
            description: 50,
            ..
        }
    ));
}

/// The server requests a client certificate.
#[test]
fn a_client_presents_its_certificate_when_requested() {
    let authority = Authority::shared();
    let own = authority.ecdsa(&["client.test"]).identity();
    let context = ours::client_with(|settings| settings.identity = Some(own.clone()));
    for protocols in [Protocols::TLS13, Protocols::TLS12] {
        let leaf = authority.ecdsa(&[NAME]);
        let verifier = WebPkiClientVerifier::builder_with_provider(roots().into(), provider(None))
            .build()
            .unwrap();
        let config = server_config_asking(verifier, &leaf, protocols, provider(None));
        let (mut client, mut server) = connect(&context, &Arc::new(config), |_| {});
        assert_eq!(
            server.peer_certificates().unwrap()[0].as_ref(),
            own.chain()[0]
        );
        exchange(&mut client, &mut server, 10);
    }
}
