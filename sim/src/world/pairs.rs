//! TLS of the peers: contexts for handshakes, and states of established connections.
//!
//! No length in a handshake may be random, or a seed could not be replayed. Therefore the certificate is
//! fixed and uses Ed25519, whose signatures always have 64 bytes.

use dormouse_engine::stream::Connection;
use dormouse_engine::{
    ClientContext, ClientSettings, Group, Handshake, HandshakeLimits, Identity, Protocols, Roots,
    ServerContext, ServerSettings, Version,
};
use dormouse_record::State;
use dormouse_testkit::{Cut, drive};
use std::sync::OnceLock;
use zerocopy::{FromBytes as _, IntoBytes as _};

/// The certificate's name.
pub(crate) const NAME: &str = "dormouse.test";

/// The certificate of gateway and servers, its key, and its authority's certificate.
pub(crate) const LEAF_PEM: &str = include_str!("leaf.pem");
pub(crate) const KEY_PEM: &str = include_str!("leaf.key");
pub(crate) const AUTHORITY_PEM: &str = include_str!("authority.pem");

/// Number of established connections, which all seeds of a process share.
const ESTABLISHED: usize = 24;

/// The peers' TLS contexts. Each world has its own, so that resumption is reproducible.
pub(crate) struct Contexts {
    server: ServerContext,
    client: ClientContext,
}

impl Contexts {
    pub(crate) fn new(protocols: Protocols, resumes: bool) -> Contexts {
        let identity = Identity::from_pem(
            LEAF_PEM.as_bytes(),
            KEY_PEM.as_bytes(),
            "leaf.pem",
            "leaf.key",
        );
        let identity = identity.expect("certificate and key");
        let mut server = ServerSettings::new(vec![identity]);
        server.protocols = protocols;
        let mut client = ClientSettings::new(Roots::Pem(AUTHORITY_PEM.as_bytes().to_vec()));
        client.protocols = protocols;
        client.groups = vec![Group::X25519];
        if !resumes {
            client.resumption = None;
        }
        Contexts {
            server: ServerContext::new(server).expect("server settings"),
            client: ClientContext::new(client).expect("client settings"),
        }
    }

    /// A client connection before its handshake.
    pub(crate) fn client(&self) -> Connection {
        let limits = HandshakeLimits::default();
        Connection::client(&self.client, NAME, limits).expect("a name")
    }

    /// A server connection before its handshake.
    pub(crate) fn server(&self) -> Connection {
        Connection::server(&self.server, HandshakeLimits::default())
    }
}

/// The protocol version of a world.
pub(crate) fn protocols(tls12: bool) -> Protocols {
    let version = if tls12 {
        Version::Tls12
    } else {
        Version::Tls13
    };
    Protocols {
        min: version,
        max: version,
    }
}

/// Both states of an established connection: client, server.
pub(crate) fn established(number: usize) -> (State, State) {
    type Bytes = (Vec<u8>, Vec<u8>);
    static STATES: OnceLock<Vec<Bytes>> = OnceLock::new();
    let states = STATES.get_or_init(|| {
        let versions = [protocols(false), protocols(false), protocols(true)];
        let contexts = versions.map(|version| Contexts::new(version, true));
        let connect = |n: usize| {
            let Contexts { client, server } = &contexts[n % contexts.len()];
            let limits = HandshakeLimits::default();
            let client = Handshake::client(client, NAME, limits).expect("a name");
            let server = Handshake::server(server, limits);
            let (mut client, server) = drive(client, server, Cut::Whole).expect("a handshake");
            // Handles the tickets.
            client.open(&[]);
            let bytes = |state: &State| state.as_bytes().to_vec();
            (bytes(&client.state), bytes(&server.state))
        };
        (0..ESTABLISHED).map(connect).collect()
    });
    let (client, server) = &states[number % ESTABLISHED];
    let state = |bytes: &[u8]| State::read_from_bytes(bytes).expect("the size of a state");
    (state(client), state(server))
}
