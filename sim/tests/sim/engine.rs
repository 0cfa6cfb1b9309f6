//! Handshakes of the engine over a network that cuts streams and flips bits. Every kind of handshake,
//! cut at every position, must end in two states at rest that can exchange records. With any bit
//! flipped it must fail on at least one side, without a panic.

use dormouse_engine::stream::End;
use dormouse_engine::{Group, Handshake, Protocols, Version};
use dormouse_testkit::{
    Cut, Event, Outcome, Pair, PairSettings, Resting, Side, Tamper, drive, drive_tampered,
};

/// A kind of handshake, and its contexts.
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
            // The client sends a key share for X25519, the server accepts only P-256.
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
    /// Both sides of a handshake of this kind, for resumption after a first handshake.
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
        exchange(&mut client, &mut server);
        (client, server)
    }
}

fn exchange(client: &mut Resting, server: &mut Resting) {
    for _ in 0..2 {
        let question = client.seal(b"question");
        assert_eq!(server.open(&question), [Event::Data(b"question".to_vec())]);
        let answer = server.seal(b"answer");
        assert_eq!(client.open(&answer), [Event::Data(b"answer".to_vec())]);
    }
}

/// Bytes sent by client and server, plus 4: the length of signatures varies by a few bytes.
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

/// Whether a changed byte is ignored: the minor version in a record's header, which must be ignored (RFC
/// 8446 §5.1), and the outer type of a protected record, because rustls authenticates the type it expects
/// (§5.2) instead of the type it received.
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
fn a_flipped_bit_is_detected() {
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
        // Tickets follow the handshake: the record layer refuses a changed ticket, or waits for the rest
        // of a record whose length was increased.
        let events = ends.client.open(&[]);
        let waits = events.is_empty() && !ends.client.unopened().is_empty();
        let refused = matches!(events.as_slice(), [Event::Ended(End::Refused(_))]);
        assert!(
            waits || refused,
            "{}: {tamper:?} was not detected: {events:?}",
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
        "{}: {tamper:?} was not detected",
        kind.name
    );
    exchange(&mut ends.client, &mut ends.server);
}

/// The position of TLS 1.3 tickets in the server's bytes: they are the last flight.
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
