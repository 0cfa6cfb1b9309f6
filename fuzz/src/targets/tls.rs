//! ClientHello, record framing and whole TLS connections.

use std::cell::OnceCell;

use dormouse_engine::stream::{Connection, End, Event};
use dormouse_engine::{
    ClientContext, ClientSettings, FirstFlight, HandshakeLimits, Identity, Roots, ServerContext,
    ServerSettings, UnixTime, fuzzed,
};
use dormouse_record::State;

use super::{choice, cut};

/// Length limit of a protected record with its header (RFC 5246 §6.2.3).
const RECORD_MAX: usize = 5 + 16_384 + 2_048;
/// Limit of the output for one input: flights, alerts, KeyUpdates.
const OUTPUT_MAX: usize = 64 << 10;

/// A decision about a part of the first flight equals the decision about all of it.
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
    if let Some(share) = fuzzed::x25519_share(data) {
        assert!(data.windows(32).any(|bytes| bytes == share));
    }
}

/// Framing gives the same records wherever the stream is cut, and loses no bytes.
pub(crate) fn framing(data: &[u8]) {
    let (how, rest) = choice(data);
    let (first, second) = cut(rest);
    let whole = [first, second].concat();
    let cut = fuzzed::records(how, &[first, second]);
    assert_eq!(cut, fuzzed::records(how, &[&whole]));
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
    /// The end, if the connection has ended.
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

    /// Handles bytes and returns the plaintext. No event follows an end.
    fn receive(&mut self, bytes: &[u8]) -> Vec<u8> {
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

    /// Handles bytes that the peer has not sealed: they give no plaintext and complete no handshake.
    fn receive_hostile(&mut self, bytes: &[u8]) {
        let before = self.established;
        assert!(self.receive(bytes).is_empty(), "plaintext of hostile bytes");
        assert_eq!(self.established, before, "a handshake of hostile bytes");
    }

    fn take_output(&mut self) -> Vec<u8> {
        let output = self.connection.output().to_vec();
        self.connection.output_sent(output.len());
        output
    }

    /// Ends the transport and checks the connection's end.
    fn ends(mut self) {
        let end = self.connection.handle_eof(&self.state);
        assert!(!end.to_string().is_empty());
        if self.end.is_none() && self.established {
            assert!(matches!(end, End::Closed | End::Truncated), "{end}");
        }
    }
}

/// Completes the handshake.
fn complete_handshake(server: &mut Side, client: &mut Side) {
    client.receive(&[]);
    for _ in 0..4 {
        let output = client.take_output();
        server.receive(&output);
        let output = server.take_output();
        client.receive(&output);
    }
    assert!(server.established && client.established);
}

/// A flight without the versions in the headers of its records, which a client ignores (RFC 8446 §5.1). In those of protected
/// records rustls authenticates 3.3, whatever has arrived.
fn without_versions(flight: &[u8]) -> Vec<u8> {
    let (mut kept, mut rest) = (Vec::new(), flight);
    while let [content_type @ 20..=23, _, _, high, low, after @ ..] = rest {
        let len = usize::from(u16::from_be_bytes([*high, *low]));
        let (content, others) = after.split_at(len.min(after.len()));
        kept.extend([*content_type, *high, *low]);
        kept.extend_from_slice(content);
        rest = others;
    }
    kept.extend_from_slice(rest);
    kept
}

/// A server that receives hostile bytes at one of four points of a connection.
pub(crate) fn server(data: &[u8]) {
    let (how, rest) = choice(data);
    let (first, second) = cut(rest);
    let (mut server, mut client) = Side::pair();
    match how % 4 {
        // From the first byte.
        0 => {}
        // In place of a client's second flight.
        1 => {
            client.receive(&[]);
            server.receive(&client.take_output());
        }
        // After the handshake, not sealed.
        2 => complete_handshake(&mut server, &mut client),
        // After the handshake, sealed by the client.
        _ => {
            complete_handshake(&mut server, &mut client);
            for piece in [first, second] {
                client
                    .connection
                    .send(&mut client.state, piece)
                    .expect("sealed");
                assert_eq!(server.receive(&client.take_output()), piece);
            }
            client.connection.close(&mut client.state);
            server.receive(&client.take_output());
            return server.ends();
        }
    }
    server.receive_hostile(first);
    server.receive_hostile(second);
    server.ends();
}

/// A client that receives hostile bytes at one of three points of a connection.
pub(crate) fn client(data: &[u8]) {
    let (how, rest) = choice(data);
    let (first, second) = cut(rest);
    let (mut server, mut client) = Side::pair();
    client.receive(&[]);
    match how % 3 {
        0 => {}
        // The server's flight with changed bytes.
        1 => {
            server.receive(&client.take_output());
            let sent = server.take_output();
            let mut flight = sent.clone();
            let len = flight.len().max(1);
            for change in first.chunks_exact(3) {
                let at = usize::from(u16::from_be_bytes([change[0], change[1]])) % len;
                flight
                    .iter_mut()
                    .skip(at)
                    .take(1)
                    .for_each(|byte| *byte ^= change[2]);
            }
            let plaintext = client.receive(&flight);
            assert!(plaintext.is_empty(), "plaintext of a handshake");
            let is_genuine = without_versions(&flight) == without_versions(&sent);
            assert!(is_genuine || !client.established, "a changed handshake");
            return client.ends();
        }
        _ => complete_handshake(&mut server, &mut client),
    }
    client.receive_hostile(first);
    client.receive_hostile(second);
    client.ends();
}
