//! Early data for our server, which never offers it: a client with a session of another server sends some.
//!
//! rustls skips what it cannot decrypt, up to 16 KiB, which is enough for a client that sends a request; then
//! the handshake continues without the early data, and the client sends it again (RFC 8446 §4.2.10).

use std::io::Write as _;
use std::sync::Arc;

use dormouse_engine::{HandshakeFailure, Progress, Protocols};
use dormouse_record as record;
use dormouse_testkit::{Authority, Event, Resting, now};
use rustls::server::ProducesTickets;
use rustls::{ClientConfig, Connection, ServerConnection};

use crate::ours;
use crate::stock::{
    NAME, client, client_config, incoming, outgoing, provider, server_config, write,
};

const BAD_RECORD_MAC: u8 = 20;

/// A server without stateless tickets; only sessions that it stores permit early data.
#[derive(Debug)]
struct NoTickets;

impl ProducesTickets for NoTickets {
    fn enabled(&self) -> bool {
        false
    }

    fn lifetime(&self) -> u32 {
        0
    }

    fn encrypt(&self, _: &[u8]) -> Option<Vec<u8>> {
        None
    }

    fn decrypt(&self, _: &[u8]) -> Option<Vec<u8>> {
        None
    }
}

/// Returns a client with a session of another server of this name, which accepts early data.
fn client_of_another_server() -> Arc<ClientConfig> {
    let mut config = client_config(Protocols::TLS13, provider(None));
    config.enable_early_data = true;
    let config = Arc::new(config);
    let leaf = Authority::shared().ecdsa(&[NAME]);
    let mut theirs = server_config(&leaf, Protocols::TLS13, provider(None));
    theirs.ticketer = Arc::new(NoTickets);
    theirs.max_early_data_size = 1 << 20;
    let mut server = Connection::from(ServerConnection::new(Arc::new(theirs)).unwrap());
    let mut client = client(&config);
    while client.is_handshaking() || server.is_handshaking() || server.wants_write() {
        incoming(&mut server, &outgoing(&mut client));
        incoming(&mut client, &outgoing(&mut server));
    }
    config
}

/// Connects to our server with this much early data. Returns both ends.
fn connect(early_len: usize) -> Result<(Connection, Resting), HandshakeFailure> {
    let mut client = client(&client_of_another_server());
    let Connection::Client(offering) = &mut client else {
        unreachable!("a client");
    };
    // By default rustls buffers less.
    offering.set_buffer_limit(None);
    let mut early = offering.early_data().expect("the session permits it");
    early.write_all(&vec![7; early_len]).unwrap();
    let mut server = ours::server_handshake(&ours::server());
    while server.handle_input(now(), &outgoing(&mut client))? != Progress::Established {
        let answer = server.output().to_vec();
        server.output_sent(answer.len());
        assert!(incoming(&mut client, &answer).is_empty());
    }
    let mut state = record::State::empty();
    let rested = server.rest(&mut state).unwrap();
    incoming(&mut client, &rested.unsent);
    Ok((client, Resting::new(state, rested)))
}

#[test]
fn a_request_as_early_data_is_skipped() {
    for early_len in [1, 1_000, 10_000, 16_000] {
        let connected = connect(early_len);
        let (mut client, mut server) =
            connected.unwrap_or_else(|failure| panic!("{early_len} bytes: {failure}"));
        assert!(!server.info.resumed);
        if let Connection::Client(client) = &client {
            assert!(!client.is_early_data_accepted(), "{early_len} bytes");
        }
        write(&mut client, b"again");
        let opened = server.open(&outgoing(&mut client));
        assert_eq!(opened, [Event::Data(b"again".to_vec())]);
    }
}

#[test]
fn more_early_data_than_is_skipped_ends_the_handshake() {
    for early_len in [20_000, 40_000] {
        let failure = connect(early_len).err().expect("a refusal");
        assert_eq!(
            failure.alert_sent,
            Some(BAD_RECORD_MAC),
            "{early_len} bytes"
        );
    }
}
