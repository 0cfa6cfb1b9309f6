//! Dormouse's client and server, connected in memory.

use dormouse_engine::{
    ClientContext, ClientSettings, Group, Handshake, HandshakeFailure, HandshakeLimits, Progress,
    Protocols, Rested, ServerContext, ServerSettings,
};
use dormouse_record as record;

use crate::authority::{Authority, Leaf};
use crate::clock::now;
use crate::resting::{Event, Resting};

/// A side of the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The client.
    Client,
    /// The server.
    Server,
}

/// Sizes of the pieces in which bytes arrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// As the sender produces them.
    Whole,
    /// In pieces of this many bytes.
    Every(usize),
    /// Cut once, after this many bytes sent by `Side`.
    Once(Side, usize),
}

/// Settings of a [`Pair`].
pub struct PairSettings {
    /// The server's certificate, from [`Authority::shared`] in [`PairSettings::default`].
    pub leaf: Leaf,
    /// Protocol versions of both sides.
    pub protocols: Protocols,
    /// The client's groups.
    pub client_groups: Vec<Group>,
    /// The server's groups.
    pub server_groups: Vec<Group>,
    /// ALPN protocols of both sides.
    pub alpn: Vec<Vec<u8>>,
    /// Whether the client stores sessions.
    pub resumption: bool,
}

impl Default for PairSettings {
    fn default() -> Self {
        PairSettings {
            leaf: Authority::shared().ecdsa(&["dormouse.test"]),
            protocols: Protocols::ALL,
            client_groups: vec![Group::X25519, Group::P256],
            server_groups: Group::ALL.to_vec(),
            alpn: Vec::new(),
            resumption: true,
        }
    }
}

/// Contexts of a client and a server that accept each other.
pub struct Pair {
    /// The server's context.
    pub server: ServerContext,
    /// The client's context; it stores sessions, so a second handshake resumes.
    pub client: ClientContext,
}

impl Pair {
    /// A server for `dormouse.test` and a client that trusts it.
    pub fn new(settings: PairSettings) -> Pair {
        let mut server = ServerSettings::new(vec![settings.leaf.identity()]);
        server.protocols = settings.protocols;
        server.groups = settings.server_groups;
        server.alpn.clone_from(&settings.alpn);
        let mut client = ClientSettings::new(Authority::shared().roots());
        client.protocols = settings.protocols;
        client.groups = settings.client_groups;
        client.alpn = settings.alpn;
        if !settings.resumption {
            client.resumption = None;
        }
        Pair {
            server: ServerContext::new(server).expect("server settings"),
            client: ClientContext::new(client).expect("client settings"),
        }
    }

    /// Both ends of a new handshake.
    pub fn handshakes(&self) -> (Handshake, Handshake) {
        let limits = HandshakeLimits::default();
        let client = Handshake::client(&self.client, "dormouse.test", limits).expect("a name");
        (client, Handshake::server(&self.server, limits))
    }

    /// Completes a handshake; returns the client and the server, both at rest. The client has not
    /// opened the tickets yet.
    pub fn connect(&self, cut: Cut) -> Result<(Resting, Resting), HandshakeFailure> {
        let (client, server) = self.handshakes();
        drive(client, server, cut)
    }

    /// Completes a handshake; the client has stored the tickets.
    pub fn connect_and_take_tickets(&self) -> (Resting, Resting) {
        let (mut client, server) = self.connect(Cut::Whole).expect("a handshake");
        let events: Vec<Event> = client.open(&[]);
        assert!(events.is_empty(), "{events:?}");
        (client, server)
    }
}

/// Completes two handshakes, with the bytes cut as `cut` says. Both sides go to rest as soon as they
/// can; bytes that a side has not handled by then are kept in its [`Resting`].
///
/// # Panics
/// If both sides wait for each other, which never happens with unchanged bytes.
pub fn drive(
    client: Handshake,
    server: Handshake,
    cut: Cut,
) -> Result<(Resting, Resting), HandshakeFailure> {
    match drive_tampered(client, server, cut, None) {
        Outcome::Established(ends) => Ok((ends.client, ends.server)),
        Outcome::Failed(_, failure) => Err(failure),
        Outcome::Stalled => panic!("the handshake stalled"),
    }
}

/// Bits that are flipped in transit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tamper {
    /// The sender of the byte.
    pub from: Side,
    /// The byte's position in everything that side sends.
    pub at: usize,
    /// The bits that are flipped.
    pub bits: u8,
}

/// Result of a handshake that may have been tampered with.
pub enum Outcome {
    /// Both sides are at rest.
    Established(Box<Ends>),
    /// This side failed first.
    Failed(Side, HandshakeFailure),
    /// Both sides wait for bytes that don't arrive.
    Stalled,
}

/// Both ends of an established connection, and the bytes each sent during the handshake, untampered.
pub struct Ends {
    /// The client at rest.
    pub client: Resting,
    /// The server at rest.
    pub server: Resting,
    /// The bytes the client sent.
    pub client_sent: Vec<u8>,
    /// The bytes the server sent.
    pub server_sent: Vec<u8>,
}

/// Completes two handshakes like [`drive`], with a byte changed in transit.
pub fn drive_tampered(
    mut client: Handshake,
    mut server: Handshake,
    cut: Cut,
    tamper: Option<Tamper>,
) -> Outcome {
    let mut to_server = Wire::new(cut, tamper, Side::Client);
    let mut to_client = Wire::new(cut, tamper, Side::Server);
    let mut client_done = match client.handle_input(now(), &[]) {
        Ok(progress) => progress,
        Err(failure) => return Outcome::Failed(Side::Client, failure),
    };
    let mut server_done = Progress::Handshaking;
    loop {
        to_server.take_output(&mut client);
        let mut moved = false;
        for piece in to_server.pieces() {
            moved = true;
            server_done = match server.handle_input(now(), &piece) {
                Ok(progress) => progress,
                Err(failure) => return Outcome::Failed(Side::Server, failure),
            };
        }
        to_client.take_output(&mut server);
        for piece in to_client.pieces() {
            moved = true;
            client_done = match client.handle_input(now(), &piece) {
                Ok(progress) => progress,
                Err(failure) => return Outcome::Failed(Side::Client, failure),
            };
        }
        to_server.take_output(&mut client);
        if !to_server.is_empty() {
            continue;
        }
        if client_done == Progress::Established && server_done == client_done {
            break;
        }
        if !moved {
            return Outcome::Stalled;
        }
    }
    match (rest(client), rest(server)) {
        (Ok(client), Ok(server)) => Outcome::Established(Box::new(Ends {
            client,
            server,
            client_sent: to_server.log,
            server_sent: to_client.log,
        })),
        (Err(failure), _) => Outcome::Failed(Side::Client, failure),
        (_, Err(failure)) => Outcome::Failed(Side::Server, failure),
    }
}

fn rest(handshake: Handshake) -> Result<Resting, HandshakeFailure> {
    let mut state = record::State::empty();
    let rested: Rested = handshake.rest(&mut state)?;
    assert!(rested.unsent.is_empty(), "all output was taken");
    Ok(Resting::new(state, rested))
}

/// One direction of the network.
struct Wire {
    bytes: Vec<u8>,
    cut: Cut,
    tamper: Option<Tamper>,
    /// Every byte sent so far, before tampering.
    log: Vec<u8>,
}

impl Wire {
    fn new(cut: Cut, tamper: Option<Tamper>, from: Side) -> Wire {
        let cut = match cut {
            Cut::Once(side, _) if side != from => Cut::Whole,
            cut => cut,
        };
        Wire {
            bytes: Vec::new(),
            cut,
            tamper: tamper.filter(|tamper| tamper.from == from),
            log: Vec::new(),
        }
    }

    fn take_output(&mut self, handshake: &mut Handshake) {
        let output = handshake.output();
        let len = output.len();
        self.bytes.extend_from_slice(output);
        handshake.output_sent(len);
    }

    fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    fn pieces(&mut self) -> Vec<Vec<u8>> {
        let mut bytes = std::mem::take(&mut self.bytes);
        if bytes.is_empty() {
            return Vec::new();
        }
        let from = self.log.len();
        self.log.extend_from_slice(&bytes);
        if let Some(tamper) = self.tamper
            && let Some(byte) = tamper.at.checked_sub(from).and_then(|at| bytes.get_mut(at))
        {
            *byte ^= tamper.bits;
        }
        match self.cut {
            Cut::Whole => vec![bytes],
            Cut::Every(len) => bytes.chunks(len.max(1)).map(<[u8]>::to_vec).collect(),
            Cut::Once(_, at) if at > from && at < self.log.len() => {
                let (head, tail) = bytes.split_at(at - from);
                vec![head.to_vec(), tail.to_vec()]
            }
            Cut::Once(..) => vec![bytes],
        }
    }
}
