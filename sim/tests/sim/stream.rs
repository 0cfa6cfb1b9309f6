//! A connection's stream: whatever way its bytes are cut, the plaintext and the end are the same.

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

/// What one end learnt from its input.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Heard {
    plaintext: Vec<u8>,
    end: Option<String>,
}

impl Side {
    /// The same end again, as another process would find it.
    fn at_rest_again(&self) -> Side {
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

    fn receive(&mut self, bytes: &[u8], heard: &mut Heard) {
        let mut bytes = bytes.to_vec();
        let mut input = &mut bytes[..];
        loop {
            match self.connection.handle(&mut self.state, now(), &mut input) {
                Event::InputUsed => return,
                Event::Established(_) | Event::Ticket(_) => {}
                Event::Data(data) => {
                    assert!(!data.is_empty());
                    heard.plaintext.extend_from_slice(data);
                }
                Event::Ended(end) => {
                    heard.end = Some(end.to_string());
                    return;
                }
            }
        }
    }

    /// Receives all pieces, then the end of the transport.
    fn receive_all<'a>(mut self, pieces: impl Iterator<Item = &'a [u8]>) -> (Heard, End) {
        let mut heard = Heard::default();
        for piece in pieces {
            self.receive(piece, &mut heard);
        }
        let end = self.connection.handle_eof(&self.state);
        heard.end = Some(end.to_string());
        (heard, end)
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
    let mut heard = Heard::default();
    client.receive(&[], &mut heard);
    for _ in 0..3 {
        server.receive(&client.take_output(), &mut heard);
        client.receive(&server.take_output(), &mut heard);
    }
    assert_eq!(heard, Heard::default());
    (client, server)
}

/// How a conversation ends.
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

/// Records of random lengths, some KeyUpdates, and an end. Also what the plaintext was.
fn conversation(server: &mut Side, random: &mut Random, ending: Ending) -> (Vec<u8>, Vec<u8>) {
    let mut plaintext = Vec::new();
    let mut wire = Vec::new();
    for _ in 0..1 + random.below(4) {
        let len = [0, 1, 7, 300, 2_000][random.below(5)];
        let said = random.bytes(len);
        server.connection.send(&mut server.state, &said).unwrap();
        plaintext.extend_from_slice(&said);
        wire.extend(server.take_output());
    }
    match ending {
        Ending::CloseNotify => server.connection.close(&mut server.state),
        Ending::Alert => {
            let why = AlertDescription::AccessDenied;
            server.connection.abort(&mut server.state, why);
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
        let (wire, plaintext) = conversation(&mut server, &mut random, ending);
        let (whole, end) = client.at_rest_again().receive_all([&wire[..]].into_iter());
        assert!(ending.is(&end), "{ending:?}: {end}");
        assert_eq!(whole.plaintext, plaintext);
        for at in 0..=wire.len() {
            let (head, tail) = wire.split_at(at);
            let (heard, _) = client.at_rest_again().receive_all([head, tail].into_iter());
            assert_eq!(heard, whole, "cut at {at}");
        }
        for len in [1, 2, 5, 64] {
            let (heard, _) = client.at_rest_again().receive_all(wire.chunks(len));
            assert_eq!(heard, whole, "pieces of {len}");
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
        let (wire, plaintext) = conversation(&mut server, &mut random, Ending::CloseNotify);
        for len in 0..wire.len() {
            let side = client.at_rest_again();
            let (heard, end) = side.receive_all([&wire[..len]].into_iter());
            assert!(matches!(end, End::Truncated), "cut at {len}: {end}");
            assert!(plaintext.starts_with(&heard.plaintext));
        }
    }
}

#[test]
fn a_handshake_cut_at_every_byte_is_no_close_either() {
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
        client.receive(&[], &mut Heard::default());
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

/// What a peer that sends anything at all gets: an end or nothing, and no panic.
#[test]
fn any_bytes_come_to_an_end() {
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
            let (heard, end) = side.receive_all(bytes.chunks(1 + random.below(100)));
            assert!(heard.plaintext.is_empty() && !end.is_clean(), "{end}");
        }
    }
}

/// A peer that has the keys and keeps to no rule.
#[test]
fn any_records_come_to_an_end() {
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
        let mut heard = Heard::default();
        for piece in wire.chunks(1 + random.below(200)) {
            side.receive(piece, &mut heard);
            // One answer, and the alert of a refusal.
            assert!(side.connection.output().len() <= 2 * dormouse_record::SMALL_RECORD_MAX);
        }
        let end = side.connection.handle_eof(&side.state);
        assert_eq!(
            heard.end.unwrap_or_else(|| end.to_string()),
            end.to_string()
        );
    }
}

/// Alerts and messages are short, so that some of them make sense.
fn random_len(kind: u8, len: usize) -> usize {
    match kind {
        21 => 2,
        22 => 4 + len % 2,
        _ => len,
    }
}

#[test]
fn nothing_is_left_of_a_connection_at_rest() {
    for protocols in [Protocols::TLS13, Protocols::TLS12] {
        let (mut client, mut server) = sides(protocols);
        let mut heard = Heard::default();
        for round in 0..3 {
            client.connection.send(&mut client.state, b"ping").unwrap();
            let wire = client.take_output();
            assert!(client.connection.is_at_rest(), "{round}");
            server.receive(&wire[..9], &mut heard);
            assert!(!server.connection.is_at_rest(), "a partial record");
            server.receive(&wire[9..], &mut heard);
            assert!(server.connection.is_at_rest());
            server = server.at_rest_again();
        }
        assert_eq!(heard.plaintext, b"pingpingping");
    }
}

/// RFC 8446 §6.1: each direction ends for itself.
#[test]
fn each_direction_ends_for_itself() {
    for protocols in [Protocols::TLS13, Protocols::TLS12] {
        let (mut client, mut server) = sides(protocols);
        client
            .connection
            .send(&mut client.state, b"question")
            .unwrap();
        client.connection.close(&mut client.state);
        assert!(client.connection.send(&mut client.state, b"more").is_err());
        let mut heard = Heard::default();
        server.receive(&client.take_output(), &mut heard);
        assert_eq!(heard.plaintext, b"question");
        assert_eq!(heard.end, Some(End::Closed.to_string()));
        server
            .connection
            .send(&mut server.state, b"answer")
            .unwrap();
        server.connection.close(&mut server.state);
        let wire = server.take_output();
        let (heard, end) = client.receive_all([&wire[..]].into_iter());
        assert_eq!(
            (&heard.plaintext[..], end.is_clean()),
            (&b"answer"[..], true)
        );
    }
}

/// RFC 8446 §4.6.3, and the bound on answers that nobody reads.
#[test]
fn key_updates_are_answered_but_not_without_end() {
    use dormouse_record::{SMALL_RECORD_MAX, SealKey, record_room, seal_record};
    const KEY_UPDATE_REQUESTED: [u8; 5] = [24, 0, 0, 1, 1];

    let (mut client, mut server) = sides(Protocols::TLS13);
    let mut heard = Heard::default();
    for _ in 0..1_000 {
        // The request, then the update of the client's own key, then data: no limit is reached.
        let mut room = [0; SMALL_RECORD_MAX];
        let header = record_room(&client.state).header;
        room[header..header + 5].copy_from_slice(&KEY_UPDATE_REQUESTED);
        let mut key = SealKey::new(&client.state);
        let len = seal_record(&mut client.state, &mut key, &mut room, 22, 5, 0).unwrap();
        server.receive(&room[..len], &mut heard);
        assert!(!server.connection.output().is_empty(), "an answer");
        client.state = updated(&client.state);
        client.connection.send(&mut client.state, b"x").unwrap();
        server.receive(&client.take_output(), &mut heard);
    }
    assert_eq!((heard.plaintext.len(), &heard.end), (1_000, &None));
    assert!(server.connection.output().len() <= SMALL_RECORD_MAX);
    // What is owed goes before the next data, and the client understands all of it.
    server
        .connection
        .send(&mut server.state, b"answer")
        .unwrap();
    let mut heard = Heard::default();
    client.receive(&server.take_output(), &mut heard);
    assert_eq!(heard.plaintext, b"answer");
}

/// The state behind a KeyUpdate of ours.
fn updated(state: &State) -> State {
    use dormouse_record::{SMALL_RECORD_MAX, SealKey, seal_key_update};
    let mut updated = State::read_from_bytes(state.as_bytes()).unwrap();
    let mut key = SealKey::new(&updated);
    seal_key_update(&mut updated, &mut key, &mut [0; SMALL_RECORD_MAX]).unwrap();
    updated
}

#[test]
fn the_clock_is_asked_for_nothing_at_rest() {
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
