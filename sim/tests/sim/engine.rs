//! The engine under a network which cuts and flips: every kind of handshake, cut at every
//! position, still ends in two states at rest which understand each other; and with a bit
//! flipped anywhere it fails, on one side at least, and never panics.

use dormouse_engine::stream::End;
use dormouse_engine::{Group, Handshake, Protocols, Version};
use dormouse_testkit::{
    Cut, Event, Outcome, Pair, PairSettings, Resting, Side, Tamper, drive, drive_tampered,
};

/// A kind of handshake, and contexts which make it.
struct Kind {
    name: &'static str,
    pair: Pair,
    resumed: bool,
    retried: bool,
}

fn kinds() -> Vec<Kind> {
    let kind = |name, protocols, resumed, retried| {
        let mut settings = PairSettings {
            protocols,
            alpn: vec![b"echo/1".to_vec()],
            resumption: resumed,
            ..PairSettings::default()
        };
        if retried {
            // The client guesses X25519, the server wants P-256.
            settings.server_groups = vec![Group::P256];
        }
        let pair = Pair::new(settings);
        Kind {
            name,
            pair,
            resumed,
            retried,
        }
    };
    vec![
        kind("1.3 full", Protocols::TLS13, false, false),
        kind("1.3 resumed", Protocols::TLS13, true, false),
        kind(
            "1.3 with a HelloRetryRequest",
            Protocols::TLS13,
            false,
            true,
        ),
        kind("1.2 full", Protocols::TLS12, false, false),
        kind("1.2 resumed", Protocols::TLS12, true, false),
    ]
}

impl Kind {
    /// A resumed handshake needs one before it.
    fn handshakes(&self) -> (Handshake, Handshake) {
        if self.resumed {
            self.pair.connect_and_take_tickets();
        }
        self.pair.handshakes()
    }

    fn connect(&self, cut: Cut) -> (Resting, Resting) {
        let (client, server) = self.handshakes();
        let (mut client, mut server) = drive(client, server, cut)
            .unwrap_or_else(|failure| panic!("{} {cut:?}: {failure}", self.name));
        for end in [&client, &server] {
            assert_eq!(end.info.resumed, self.resumed, "{} {cut:?}", self.name);
            assert_eq!(end.info.retried, self.retried, "{} {cut:?}", self.name);
            assert_eq!(end.info.alpn.as_deref(), Some(&b"echo/1"[..]));
        }
        understand_each_other(&mut client, &mut server);
        (client, server)
    }
}

fn understand_each_other(client: &mut Resting, server: &mut Resting) {
    for _ in 0..2 {
        let question = client.seal(b"question");
        assert_eq!(server.open(&question), [Event::Data(b"question".to_vec())]);
        let answer = server.seal(b"answer");
        assert_eq!(client.open(&answer), [Event::Data(b"answer".to_vec())]);
    }
}

/// Bytes each side sent: client, server. Signatures vary in length by a few bytes.
fn lengths(client: &Resting, server: &Resting) -> (usize, usize) {
    (client.info.bytes_out + 4, server.info.bytes_out + 4)
}

#[test]
fn cut_at_every_position() {
    for kind in kinds() {
        let (client, server) = kind.connect(Cut::Whole);
        let (from_client, from_server) = lengths(&client, &server);
        for at in 1..from_client {
            kind.connect(Cut::Once(Side::Client, at));
        }
        for at in 1..from_server {
            kind.connect(Cut::Once(Side::Server, at));
        }
    }
}

#[test]
fn in_pieces_of_every_small_size() {
    for kind in kinds() {
        for len in [1, 2, 3, 4, 5, 6, 7, 11, 64, 127] {
            kind.connect(Cut::Every(len));
        }
    }
}

/// What the network may change without anybody noticing: the minor version in a record's
/// header, which must be ignored (RFC 8446 §5.1); and the outer type of a protected record,
/// because rustls authenticates the one it should have been (§5.2) instead of the one it got.
fn is_ignored(tamper: Tamper, sent: &[u8]) -> bool {
    let mut start = 0;
    while let Some(&[content_type, _, _, high, low]) = sent.get(start..start + 5) {
        let len = usize::from(u16::from_be_bytes([high, low]));
        if (start..start + 5 + len).contains(&tamper.at) {
            return tamper.at == start + 2 || (content_type == 23 && tamper.at == start);
        }
        start += 5 + len;
    }
    false
}

#[test]
fn a_flipped_bit_never_passes() {
    for kind in kinds() {
        let (client, server) = kind.connect(Cut::Whole);
        let (from_client, from_server) = lengths(&client, &server);
        for (from, len) in [(Side::Client, from_client), (Side::Server, from_server)] {
            for at in 0..len - 8 {
                let tamper = Tamper {
                    from,
                    at,
                    bits: 1 << (at % 8),
                };
                flip(&kind, tamper);
            }
        }
    }
}

fn flip(kind: &Kind, tamper: Tamper) {
    let (client, server) = kind.handshakes();
    let mut ends = match drive_tampered(client, server, Cut::Whole, Some(tamper)) {
        Outcome::Failed(_, failure) => {
            assert!(!failure.reason.is_empty());
            return;
        }
        Outcome::Stalled => return,
        Outcome::Established(ends) => ends,
    };
    if tamper.from == Side::Server && tamper.at >= tickets_start(&ends.server) {
        // Tickets travel behind the handshake: the record layer refuses them, or waits for
        // the rest of a record which has become longer.
        let events = ends.client.open(&[]);
        let waits = events.is_empty() && !ends.client.unopened().is_empty();
        let refused = matches!(events.as_slice(), [Event::Ended(End::Refused(_))]);
        assert!(
            waits || refused,
            "{}: {tamper:?} passed: {events:?}",
            kind.name
        );
        return;
    }
    let sent = match tamper.from {
        Side::Client => &ends.client_sent,
        Side::Server => &ends.server_sent,
    };
    assert!(
        is_ignored(tamper, sent),
        "{}: {tamper:?} passed unnoticed",
        kind.name
    );
    understand_each_other(&mut ends.client, &mut ends.server);
}

/// Where in the server's bytes the tickets of TLS 1.3 begin: the last flight of all.
fn tickets_start(server: &Resting) -> usize {
    let flights = server.info.flights.bytes();
    match flights.last() {
        Some(&last)
            if flights.len().is_multiple_of(2) && server.info.protocol == Version::Tls13 =>
        {
            server.info.bytes_out - last as usize
        }
        _ => usize::MAX,
    }
}
