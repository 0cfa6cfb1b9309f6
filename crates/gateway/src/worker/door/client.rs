//! Who the client is: from its own socket, or from a proxy in front of us that is trusted; and how
//! the backend is told.

use crate::config::{Network, ProxyProtocol};
use crate::proxy_protocol::{self, ClientCertificate, Ends, HEADER_MAX, Progress, Tls};
use crate::route::Route;
use crate::slot::Slot;
use crate::worker::handshake::in_flight::Step;
use crate::worker::io::Io;
use dormouse_engine::{HandshakeInfo, Version};
use dormouse_reactor::Fd;
use dormouse_reactor::socket::{Addr, Attempt, Peer};
use std::fmt;
use std::net::{IpAddr, SocketAddr};

/// The client of a connection that is not established yet.
#[derive(Clone, Copy)]
pub(crate) struct Client {
    /// Who is at the other end of the socket.
    peer: Peer,
    /// For whom a proxy speaks.
    pub(crate) introduced: Option<Ends>,
}

impl Client {
    pub(crate) fn new(peer: Peer) -> Client {
        Client {
            peer,
            introduced: None,
        }
    }

    /// Must it say first for whom it speaks?
    pub(crate) fn is_proxy(&self, proxies: &[Network]) -> bool {
        match self.peer {
            Peer::Tcp(address) => proxies.iter().any(|network| network.contains(address.ip())),
            Peer::Unix => false,
        }
    }

    /// The client's address.
    pub(crate) fn ip(&self) -> Option<IpAddr> {
        match (self.introduced, self.peer) {
            (Some(ends), _) => Some(ends.client.ip()),
            (None, Peer::Tcp(address)) => Some(address.ip()),
            (None, Peer::Unix) => None,
        }
    }

    /// Names the connection: random for the worker, then the time and the connection's own number.
    pub(crate) fn id(&self, seed: u64, slot: &Slot) -> Id {
        Id {
            seed,
            opened_s: slot.opened_s,
            generation: slot.generation,
        }
    }

    /// What the backend hears before the client's first byte; empty if nothing.
    pub(crate) fn introduction(
        &self,
        io: &impl Io,
        route: &Route,
        slot: &Slot,
        info: &HandshakeInfo,
        id: Id,
    ) -> Vec<u8> {
        match route.access.proxy_protocol {
            ProxyProtocol::Off => Vec::new(),
            ProxyProtocol::V1 => proxy_protocol::v1(self.ends(io, slot.tls_fd())),
            ProxyProtocol::V2 | ProxyProtocol::V2Certificate => {
                let whole = route.access.proxy_protocol == ProxyProtocol::V2Certificate;
                let algorithms = info.algorithms.as_deref();
                let id = id.to_string();
                let tls = Tls {
                    version: match info.protocol {
                        Version::Tls12 => "TLSv1.2",
                        Version::Tls13 => "TLSv1.3",
                    },
                    suite: info.suite,
                    group: info.group,
                    signature_scheme: info.signature,
                    signature_algorithm: algorithms.map_or("", |of| of.signature),
                    key_algorithm: algorithms.map_or("", |of| &of.key),
                    alpn: info.alpn.as_deref(),
                    server_name: info.sni.as_deref(),
                    certificate: info.verified.then_some(ClientCertificate {
                        common_name: info.client_name.as_deref(),
                        der: info.client_certificate.as_deref().filter(|_| whole),
                        resumed: info.resumed,
                    }),
                    unique_id: id.as_bytes(),
                };
                proxy_protocol::v2(self.ends(io, slot.tls_fd()), Some(&tls))
            }
        }
    }

    /// The same where TLS is not ours: there is nothing to say of it.
    pub(crate) fn bare_introduction(&self, io: &impl Io, route: &Route, slot: &Slot) -> Vec<u8> {
        match route.access.proxy_protocol {
            ProxyProtocol::Off => Vec::new(),
            ProxyProtocol::V1 => proxy_protocol::v1(self.ends(io, slot.tls_fd())),
            ProxyProtocol::V2 | ProxyProtocol::V2Certificate => {
                proxy_protocol::v2(self.ends(io, slot.tls_fd()), None)
            }
        }
    }

    fn ends(&self, io: &impl Io, fd: Fd) -> Option<Ends> {
        self.introduced
            .or_else(|| match (self.peer, io.local_address(fd)) {
                (Peer::Tcp(client), Ok(Addr::Tcp(server))) => Some(Ends {
                    client: without_scope(client),
                    server: without_scope(server),
                }),
                _ => None,
            })
    }
}

/// A link-local address comes with the number of an interface, which means nothing elsewhere.
fn without_scope(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip(), address.port())
}

/// A connection's name. It is only written out where somebody is to read it.
#[derive(Clone, Copy)]
pub(crate) struct Id {
    seed: u64,
    opened_s: u32,
    generation: u32,
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Id {
            seed,
            opened_s,
            generation,
        } = self;
        write!(f, "{seed:016x}{opened_s:08x}{generation:08x}")
    }
}

impl fmt::Display for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.introduced {
            Some(ends) => write!(f, "{} (by {})", ends.client, self.peer),
            None => self.peer.fmt(f),
        }
    }
}

/// A proxy's header, as far as it has come.
#[derive(Default)]
pub(crate) struct Introduction {
    received: Vec<u8>,
    len: usize,
    ends: Option<Ends>,
}

impl Introduction {
    /// Has anything come?
    pub(crate) fn has_begun(&self) -> bool {
        !self.received.is_empty()
    }

    /// Receives more of it.
    pub(crate) fn step(&mut self, io: &impl Io, fd: Fd, scratch: &mut [u8]) -> Step {
        let n = match io.recv(fd, &mut scratch[..HEADER_MAX]) {
            Ok(Attempt::Done(0)) | Err(_) => return Step::Gone,
            Ok(Attempt::Done(n)) => n,
            Ok(Attempt::WouldBlock) => return Step::Continues,
        };
        self.received.extend_from_slice(&scratch[..n]);
        match proxy_protocol::read(&self.received) {
            Ok(Progress::Partial) => Step::Continues,
            Ok(Progress::Complete { len, ends }) => {
                (self.len, self.ends) = (len, ends);
                Step::Introduced
            }
            Err(refused) => Step::NotIntroduced(refused),
        }
    }

    /// For whom it speaks, and what the client has said already.
    pub(crate) fn into_parts(mut self) -> (Option<Ends>, Vec<u8>) {
        self.received.drain(..self.len.min(self.received.len()));
        (self.ends, self.received)
    }
}
