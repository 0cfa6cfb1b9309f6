//! Simulations of a connection's stream: however its bytes are cut, the plaintext and the end are the same.

use dormouse_engine::stream::{Connection, End, Event};
use dormouse_engine::{HandshakeLimits, Protocols, UnixTime};
use dormouse_record::{AlertDescription, State};
use dormouse_sim::{Random, seeds};
use dormouse_testkit::{Pair, PairSettings, now};
use zerocopy::{FromBytes, IntoBytes};

/// One end of a connection.
struct Side {
    connection: Connection,
    state: State,
}

/// Plaintext and end that one side received.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Received {
    plaintext: Vec<u8>,
    end: Option<String>,
}

impl Side {
    /// The same end with its state restored from bytes, as in another process.
    fn restored(&self) -> Side {
        assert!(self.connection.is_at_rest());
        Side {
            connection: Connection::default(),
            state: State::read_from_bytes(self.state.as_bytes()).unwrap(),
        }
    }

    fn take_output(&mut self) -> Vec<u8> {
        let output = self.connection.output().to_vec();
        self.connection.output_sent(output.len());
        output
    }

    fn receive(&mut self, bytes: &[u8], received: &mut Received) {
        let mut bytes = bytes.to_vec();
        let mut input = &mut bytes[..];
        loop {
            match self.connection.handle(&mut self.state, now(), &mut input) {
                Event::InputUsed => return,
                Event::Established(_) | Event::Ticket(_) => {}
                Event::Data(data) => {
                    assert!(!data.is_empty());
                    received.plaintext.extend_from_slice(data);
                }
                Event::Ended(end) => {
                    received.end = Some(end.to_string());
                    return;
                }
            }
        }
    }

    /// Receives all pieces, then the end of the transport.
    fn receive_all<'a>(mut self, pieces: impl Iterator<Item = &'a [u8]>) -> (Received, End) {
        let mut received = Received::default();
        for piece in pieces {
            self.receive(piece, &mut received);
        }
        let end = self.connection.handle_eof(&self.state);
        received.end = Some(end.to_string());
        (received, end)
    }
}

fn sides(protocols: Protocols) -> (Side, Side) {
    let pair = Pair::new(PairSettings {
        protocols,
        resumption: false,
        ..PairSettings::default()
    });
    let limits = HandshakeLimits::default();
    let side = |connection| Side {
        connection,
        state: State::empty(),
    };
    let client = Connection::client(&pair.client, "dormouse.test", limits).unwrap();
    let (mut client, mut server) = (side(client), side(Connection::server(&pair.server, limits)));
    let mut received = Received::default();
    client.receive(&[], &mut received);
    for _ in 0..3 {
        server.receive(&client.take_output(), &mut received);
        client.receive(&server.take_output(), &mut received);
    }
    assert_eq!(received, Received::default());
    (client, server)
}

/// How a stream ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Ending {
    CloseNotify,
    Alert,
    ChangedRecord,
    Nothing,
}

const ENDINGS: [Ending; 4] = [
    Ending::CloseNotify,
    Ending::Alert,
    Ending::ChangedRecord,
    Ending::Nothing,
];

impl Ending {
    fn is(self, end: &End) -> bool {
        match (self, end) {
            (Ending::CloseNotify, End::Closed) | (Ending::Nothing, End::Truncated) => true,
            (Ending::Alert, End::Alert(number)) => *number == AlertDescription::AccessDenied.code(),
            (Ending::ChangedRecord, End::Refused(_)) => true,
            _ => false,
        }
    }
}

/// A stream of records of random lengths with an end, and its plaintext.
fn random_stream(server: &mut Side, random: &mut Random, ending: Ending) -> (Vec<u8>, Vec<u8>) {
    let mut plaintext = Vec::new();
    let mut wire = Vec::new();
    for _ in 0..1 + random.below(4) {
        let len = [0, 1, 7, 300, 2_000][random.below(5)];
        let content = random.bytes(len);
        server.connection.send(&mut server.state, &content).unwrap();
        plaintext.extend_from_slice(&content);
        wire.extend(server.take_output());
    }
    match ending {
        Ending::CloseNotify => server.connection.close(&mut server.state),
        Ending::Alert => {
            let description = AlertDescription::AccessDenied;
            server.connection.abort(&mut server.state, description);
        }
        Ending::ChangedRecord => {
            server
                .connection
                .send(&mut server.state, b"changed")
                .unwrap();
            let at = wire.len() + server.connection.output().len() - 1;
            wire.extend(server.take_output());
            wire[at] ^= 1;
        }
        Ending::Nothing => {}
    }
    wire.extend(server.take_output());
    (wire, plaintext)
}

#[test]
fn every_cut_gives_the_same_plaintext_and_the_same_end() {
    for seed in seeds(24) {
        println!("SEED={seed}");
        let mut random = Random::new(seed);
        let protocols = [Protocols::TLS13, Protocols::TLS12][random.below(2)];
        let ending = ENDINGS[random.below(4)];
        let (client, mut server) = sides(protocols);
        let (wire, plaintext) = random_stream(&mut server, &mut random, ending);
        let (whole, end) = client.restored().receive_all([&wire[..]].into_iter());
        assert!(ending.is(&end), "{ending:?}: {end}");
        assert_eq!(whole.plaintext, plaintext);
        for at in 0..=wire.len() {
            let (head, tail) = wire.split_at(at);
            let (received, _) = client.restored().receive_all([head, tail].into_iter());
            assert_eq!(received, whole, "cut at {at}");
        }
        for len in [1, 2, 5, 64] {
            let (received, _) = client.restored().receive_all(wire.chunks(len));
            assert_eq!(received, whole, "pieces of {len}");
        }
    }
}

#[test]
fn truncation_at_every_byte_is_never_a_close() {
    for seed in seeds(16) {
        println!("SEED={seed}");
        let mut random = Random::new(seed);
        let protocols = [Protocols::TLS13, Protocols::TLS12][random.below(2)];
        let (client, mut server) = sides(protocols);
        let (wire, plaintext) = random_stream(&mut server, &mut random, Ending::CloseNotify);
        for len in 0..wire.len() {
            let side = client.restored();
            let (received, end) = side.receive_all([&wire[..len]].into_iter());
            assert!(matches!(end, End::Truncated), "cut at {len}: {end}");
            assert!(plaintext.starts_with(&received.plaintext));
        }
    }
}

#[test]
fn a_handshake_truncated_at_every_byte_is_never_a_close() {
    for protocols in [Protocols::TLS13, Protocols::TLS12] {
        let pair = Pair::new(PairSettings {
            protocols,
            ..PairSettings::default()
        });
        let limits = HandshakeLimits::default();
        let mut client = Side {
            connection: Connection::client(&pair.client, "dormouse.test", limits).unwrap(),
            state: State::empty(),
        };
        client.receive(&[], &mut Received::default());
        let hello = client.take_output();
        for len in 0..=hello.len() {
            let side = Side {
                connection: Connection::server(&pair.server, limits),
                state: State::empty(),
            };
            let (_, end) = side.receive_all([&hello[..len]].into_iter());
            assert!(matches!(end, End::Handshake(_)), "cut at {len}: {end}");
        }
    }
}

/// A peer that sends random bytes: the connection ends or waits, without a panic.
#[test]
fn random_bytes_never_give_plaintext_or_a_clean_end() {
    for seed in seeds(200) {
        println!("SEED={seed}");
        let mut random = Random::new(seed);
        let (client, server) = sides([Protocols::TLS13, Protocols::TLS12][random.below(2)]);
        for side in [client, server] {
            let len = random.below(400);
            let mut bytes = random.bytes(len);
            if let Some(start) = bytes.first_chunk_mut::<5>() {
                *start = [
                    [21, 22, 23][random.below(3)],
                    3,
                    3,
                    0,
                    random.below(64) as u8,
                ];
            }
            let (received, end) = side.receive_all(bytes.chunks(1 + random.below(100)));
            assert!(received.plaintext.is_empty() && !end.is_clean(), "{end}");
        }
    }
}

/// A peer that seals random records with the right keys: bounded output, and an end that does not change.
#[test]
fn random_sealed_records_have_bounded_output() {
    use dormouse_record::{SealKey, record_room, seal_record};
    for seed in seeds(300) {
        println!("SEED={seed}");
        let mut random = Random::new(seed);
        let (client, server) = sides([Protocols::TLS13, Protocols::TLS12][random.below(2)]);
        let [mut peer, mut side] = match random.once_in(2) {
            true => [client, server],
            false => [server, client],
        };
        let mut key = SealKey::new(&peer.state);
        let mut wire = Vec::new();
        for _ in 0..random.below(60) {
            let kind = 20 + random.below(5) as u8;
            let len = random_len(kind, random.below(8));
            let mut content = random.bytes(len);
            if let (22, Some(first)) = (kind, content.first_mut()) {
                *first = [0, 1, 4, 20, 24][random.below(5)];
            }
            let room = record_room(&peer.state);
            let mut record = vec![0; room.header];
            record.extend_from_slice(&content);
            record.resize(record.len() + room.trailer, 0);
            let state = &mut peer.state;
            let len = seal_record(state, &mut key, &mut record, kind, content.len(), 0).unwrap();
            wire.extend_from_slice(&record[..len]);
        }
        let mut received = Received::default();
        for piece in wire.chunks(1 + random.below(200)) {
            side.receive(piece, &mut received);
            // At most an answer and the alert of a refusal.
            assert!(side.connection.output().len() <= 2 * dormouse_record::SMALL_RECORD_MAX);
        }
        let end = side.connection.handle_eof(&side.state);
        assert_eq!(
            received.end.unwrap_or_else(|| end.to_string()),
            end.to_string()
        );
    }
}

/// The length of a random record. Alerts and handshake messages are short, so that some are valid.
fn random_len(kind: u8, len: usize) -> usize {
    match kind {
        21 => 2,
        22 => 4 + len % 2,
        _ => len,
    }
}

#[test]
fn a_connection_at_rest_needs_only_its_state() {
    for protocols in [Protocols::TLS13, Protocols::TLS12] {
        let (mut client, mut server) = sides(protocols);
        let mut received = Received::default();
        for round in 0..3 {
            client.connection.send(&mut client.state, b"ping").unwrap();
            let wire = client.take_output();
            assert!(client.connection.is_at_rest(), "{round}");
            server.receive(&wire[..9], &mut received);
            assert!(!server.connection.is_at_rest(), "a partial record");
            server.receive(&wire[9..], &mut received);
            assert!(server.connection.is_at_rest());
            server = server.restored();
        }
        assert_eq!(received.plaintext, b"pingpingping");
    }
}

/// RFC 8446 §6.1: each direction is closed independently.
#[test]
fn each_direction_is_closed_independently() {
    for protocols in [Protocols::TLS13, Protocols::TLS12] {
        let (mut client, mut server) = sides(protocols);
        client
            .connection
            .send(&mut client.state, b"question")
            .unwrap();
        client.connection.close(&mut client.state);
        assert!(client.connection.send(&mut client.state, b"more").is_err());
        let mut received = Received::default();
        server.receive(&client.take_output(), &mut received);
        assert_eq!(received.plaintext, b"question");
        assert_eq!(received.end, Some(End::Closed.to_string()));
        server
            .connection
            .send(&mut server.state, b"answer")
            .unwrap();
        server.connection.close(&mut server.state);
        let wire = server.take_output();
        let (received, end) = client.receive_all([&wire[..]].into_iter());
        assert_eq!(
            (&received.plaintext[..], end.is_clean()),
            (&b"answer"[..], true)
        );
    }
}

/// RFC 8446 §4.6.3, and the bound on answers to a peer that reads nothing.
#[test]
fn answers_to_key_updates_are_bounded() {
    use dormouse_record::{SMALL_RECORD_MAX, SealKey, record_room, seal_record};
    const KEY_UPDATE_REQUESTED: [u8; 5] = [24, 0, 0, 1, 1];

    let (mut client, mut server) = sides(Protocols::TLS13);
    let mut received = Received::default();
    for _ in 0..1_000 {
        // A request, then the update of the client's key, then data: no limit is reached.
        let mut room = [0; SMALL_RECORD_MAX];
        let header = record_room(&client.state).header;
        room[header..header + 5].copy_from_slice(&KEY_UPDATE_REQUESTED);
        let mut key = SealKey::new(&client.state);
        let len = seal_record(&mut client.state, &mut key, &mut room, 22, 5, 0).unwrap();
        server.receive(&room[..len], &mut received);
        assert!(!server.connection.output().is_empty(), "an answer");
        client.state = updated(&client.state);
        client.connection.send(&mut client.state, b"x").unwrap();
        server.receive(&client.take_output(), &mut received);
    }
    assert_eq!((received.plaintext.len(), &received.end), (1_000, &None));
    assert!(server.connection.output().len() <= SMALL_RECORD_MAX);
    // The pending KeyUpdate is sent before the next data, and the client can open both.
    server
        .connection
        .send(&mut server.state, b"answer")
        .unwrap();
    let mut received = Received::default();
    client.receive(&server.take_output(), &mut received);
    assert_eq!(received.plaintext, b"answer");
}

/// The state after sending a KeyUpdate.
fn updated(state: &State) -> State {
    use dormouse_record::{SMALL_RECORD_MAX, SealKey, seal_key_update};
    let mut updated = State::read_from_bytes(state.as_bytes()).unwrap();
    let mut key = SealKey::new(&updated);
    seal_key_update(&mut updated, &mut key, &mut [0; SMALL_RECORD_MAX]).unwrap();
    updated
}

#[test]
fn a_connection_at_rest_needs_no_clock() {
    let (mut client, mut server) = sides(Protocols::TLS13);
    client.connection.send(&mut client.state, b"x").unwrap();
    let mut wire = client.take_output();
    let mut input = &mut wire[..];
    let epoch = UnixTime::since_unix_epoch(std::time::Duration::ZERO);
    let event = server
        .connection
        .handle(&mut server.state, epoch, &mut input);
    assert!(matches!(event, Event::Data(b"x")));
}
