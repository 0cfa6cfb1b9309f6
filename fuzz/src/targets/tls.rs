//! Everything of TLS before and around records: hellos, framing, whole connections.

use std::cell::OnceCell;

use dormouse_engine::stream::{Connection, End, Event};
use dormouse_engine::{
    ClientContext, ClientSettings, FirstFlight, HandshakeLimits, Identity, Roots, ServerContext,
    ServerSettings, UnixTime, fuzzed,
};
use dormouse_record::State;

use super::{choice, cut};

/// Longest protected record with its header (RFC 5246 §6.2.3).
const RECORD_MAX: usize = 5 + 16_384 + 2_048;
/// What a connection may want to send for one input: flights, alerts, KeyUpdates.
const OUTPUT_MAX: usize = 64 << 10;

/// A look at a first flight says the same of all of it, however much had come before.
pub(crate) fn client_hello(data: &[u8]) {
    let whole = FirstFlight::of(data);
    for part in 1..8 {
        let (start, _) = data.split_at(data.len() * part / 8);
        match FirstFlight::of(start) {
            FirstFlight::Incomplete => {}
            decided => assert_eq!(decided, whole),
        }
    }
    if let FirstFlight::ClientHello(hello) = whole {
        assert!(hello.server_name.is_none_or(|name| name.len() <= 255));
    }
}

/// Framing gives the same records wherever the stream is cut, and takes nothing it does not give.
pub(crate) fn framing(data: &[u8]) {
    let (first, second) = cut(data);
    let whole = [first, second].concat();
    let cut = fuzzed::records(&[first, second]);
    assert_eq!(cut, fuzzed::records(&[&whole]));
    let (records, taken, _) = cut;
    assert!(
        records
            .iter()
            .all(|record| (5..=RECORD_MAX).contains(&record.len()))
    );
    assert!(whole.starts_with(&records.concat()) && taken <= whole.len());
}

thread_local! {
    static CONTEXTS: OnceCell<(ServerContext, ClientContext)> = const { OnceCell::new() };
}

/// A connection and its state.
struct Side {
    connection: Connection,
    state: State,
    /// How it ended, if it has.
    end: Option<End>,
    established: bool,
}

impl Side {
    fn pair() -> (Side, Side) {
        CONTEXTS.with(|contexts| {
            let (server, client) = contexts.get_or_init(|| {
                let identity = Identity::self_signed("a.test").expect("a certificate");
                let server = ServerContext::new(ServerSettings::new(vec![identity]));
                let client = ClientContext::new(ClientSettings::new(Roots::Insecure));
                (server.expect("a server"), client.expect("a client"))
            });
            let limits = HandshakeLimits::default();
            let client = Connection::client(client, "a.test", limits).expect("a name");
            (
                Side::of(Connection::server(server, limits)),
                Side::of(client),
            )
        })
    }

    fn of(connection: Connection) -> Side {
        Side {
            connection,
            state: State::empty(),
            end: None,
            established: false,
        }
    }

    /// Handles bytes and returns the plaintext. An end is the last event.
    fn hear(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut bytes = bytes.to_vec();
        let (mut input, mut plaintext) = (&mut bytes[..], Vec::new());
        let now = UnixTime::since_unix_epoch(std::time::Duration::from_secs(1_800_000_000));
        while self.end.is_none() {
            let before = input.len();
            match self.connection.handle(&mut self.state, now, &mut input) {
                Event::InputUsed => break,
                Event::Established(_) => self.established = true,
                Event::Data(data) => plaintext.extend_from_slice(data),
                Event::Ticket(_) => {}
                Event::Ended(end) => self.end = Some(end),
            }
            assert!(input.len() <= before);
        }
        assert!(self.connection.output().len() <= OUTPUT_MAX);
        if let Some(end) = &self.end {
            assert!(!end.to_string().is_empty());
        }
        plaintext
    }

    fn said(&mut self) -> Vec<u8> {
        let output = self.connection.output().to_vec();
        self.connection.output_sent(output.len());
        output
    }

    /// The transport ends; whatever came before, there is an end and nothing more to say after it.
    fn ends(mut self) {
        let end = self.connection.handle_eof(&self.state);
        assert!(!end.to_string().is_empty());
        if self.end.is_none() && self.established {
            assert!(matches!(end, End::Closed | End::Truncated), "{end}");
        }
    }
}

/// Passes bytes between both until neither has more to say.
fn shake_hands(server: &mut Side, client: &mut Side) {
    client.hear(&[]);
    for _ in 0..4 {
        let said = client.said();
        server.hear(&said);
        let said = server.said();
        client.hear(&said);
    }
    assert!(server.established && client.established);
}

/// A server and whatever a client may send it, at three moments.
pub(crate) fn server(data: &[u8]) {
    let (how, rest) = choice(data);
    let (first, second) = cut(rest);
    let (mut server, mut client) = Side::pair();
    match how % 4 {
        // From the first byte.
        0 => {}
        // In place of a client's second flight.
        1 => {
            client.hear(&[]);
            server.hear(&client.said());
        }
        // Behind the handshake, without the keys.
        2 => shake_hands(&mut server, &mut client),
        // Behind the handshake, as plaintext of one who has them.
        _ => {
            shake_hands(&mut server, &mut client);
            for piece in [first, second] {
                client
                    .connection
                    .send(&mut client.state, piece)
                    .expect("sealed");
                assert_eq!(server.hear(&client.said()), piece);
            }
            client.connection.close(&mut client.state);
            server.hear(&client.said());
            return server.ends();
        }
    }
    server.hear(first);
    server.hear(second);
    server.ends();
}

/// A client and whatever a server may send it, at three moments.
pub(crate) fn client(data: &[u8]) {
    let (how, rest) = choice(data);
    let (first, second) = cut(rest);
    let (mut server, mut client) = Side::pair();
    client.hear(&[]);
    match how % 3 {
        0 => {}
        // A real flight with changed bytes.
        1 => {
            server.hear(&client.said());
            let mut flight = server.said();
            let len = flight.len().max(1);
            for change in first.chunks_exact(3) {
                let at = usize::from(u16::from_be_bytes([change[0], change[1]])) % len;
                flight
                    .iter_mut()
                    .skip(at)
                    .take(1)
                    .for_each(|byte| *byte ^= change[2]);
            }
            client.hear(&flight);
            return client.ends();
        }
        _ => shake_hands(&mut server, &mut client),
    }
    client.hear(first);
    client.hear(second);
    client.ends();
}
