//! The client of a connection: its address, from its own socket or from a trusted proxy, and the
//! PROXY header that passes the address on to the backend.

use crate::io::Io;
use crate::proxy_protocol::{self, ClientCertificate, Endpoints, Tls};
use dormouse_config::{Network, ProxyProtocol};
use dormouse_engine::HandshakeInfo;
use dormouse_handover::slot::Slot;
use dormouse_reactor::Fd;
use dormouse_reactor::socket::{Addr, Peer};
use dormouse_routes::route::Route;
use std::fmt;
use std::net::{IpAddr, SocketAddr};

/// The client of a connection that is not established yet.
#[derive(Clone, Copy)]
pub(crate) struct Client {
    /// The other end of the socket.
    peer: Peer,
    /// The addresses in the header of a trusted proxy.
    pub(crate) proxied: Option<Endpoints>,
}

impl Client {
    pub(crate) fn new(peer: Peer) -> Client {
        Client {
            peer,
            proxied: None,
        }
    }

    /// Whether the peer is a trusted proxy, which must send a PROXY header first.
    pub(crate) fn is_proxy(&self, proxies: &[Network]) -> bool {
        match self.peer {
            Peer::Tcp(address) => proxies.iter().any(|network| network.contains(address.ip())),
            Peer::Unix => false,
        }
    }

    /// The client's IP address. `None`: a unix socket.
    pub(crate) fn ip(&self) -> Option<IpAddr> {
        match (self.proxied, self.peer) {
            (Some(endpoints), _) => Some(endpoints.client.ip()),
            (None, Peer::Tcp(address)) => Some(address.ip()),
            (None, Peer::Unix) => None,
        }
    }

    /// The client's address and port. `None`: a unix socket.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        match (self.proxied, self.peer) {
            (Some(endpoints), _) => Some(endpoints.client),
            (None, Peer::Tcp(address)) => Some(without_scope(address)),
            (None, Peer::Unix) => None,
        }
    }

    /// Returns the PROXY header for the backend; empty if the route sends none.
    pub(crate) fn proxy_header(
        &self,
        io: &impl Io,
        route: &Route,
        slot: &Slot,
        info: &HandshakeInfo,
        id: ConnectionId,
    ) -> Vec<u8> {
        match route.access.proxy_protocol {
            ProxyProtocol::Off => Vec::new(),
            ProxyProtocol::V1 => proxy_protocol::v1(self.endpoints(io, slot.tls_fd())),
            ProxyProtocol::V2 | ProxyProtocol::V2Certificate => {
                let whole = route.access.proxy_protocol == ProxyProtocol::V2Certificate;
                let algorithms = info.algorithms.as_deref();
                let id = id.to_string();
                let tls = Tls {
                    version: info.protocol.name(),
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
                proxy_protocol::v2(self.endpoints(io, slot.tls_fd()), Some(&tls))
            }
        }
    }

    /// Returns the PROXY header of a pass-through connection, which says nothing about TLS.
    pub(crate) fn bare_proxy_header(&self, io: &impl Io, route: &Route, slot: &Slot) -> Vec<u8> {
        match route.access.proxy_protocol {
            ProxyProtocol::Off => Vec::new(),
            ProxyProtocol::V1 => proxy_protocol::v1(self.endpoints(io, slot.tls_fd())),
            ProxyProtocol::V2 | ProxyProtocol::V2Certificate => {
                proxy_protocol::v2(self.endpoints(io, slot.tls_fd()), None)
            }
        }
    }

    fn endpoints(&self, io: &impl Io, fd: Fd) -> Option<Endpoints> {
        self.proxied
            .or_else(|| match (self.peer, io.local_address(fd)) {
                (Peer::Tcp(client), Ok(Addr::Tcp(server))) => {
                    Some(Endpoints::new(without_scope(client), without_scope(server)))
                }
                _ => None,
            })
    }
}

/// Removes the scope of a link-local address: an interface number means nothing on another host.
fn without_scope(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip(), address.port())
}

/// The id of a connection: a random seed of the keeper and its workers, the connection's start time,
/// and its generation. The id stays the same across workers and binaries. It is formatted only where
/// it is written.
#[derive(Clone, Copy)]
pub(crate) struct ConnectionId {
    seed: u64,
    opened_s: u32,
    generation: u32,
}

impl ConnectionId {
    /// The id of the connection in this slot; `seed` is the workspace's.
    pub(crate) fn of(slot: &Slot, seed: u64) -> ConnectionId {
        ConnectionId {
            seed,
            opened_s: slot.opened_s,
            generation: slot.generation,
        }
    }
}

impl fmt::Display for ConnectionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ConnectionId {
            seed,
            opened_s,
            generation,
        } = self;
        write!(f, "{seed:016x}{opened_s:08x}{generation:08x}")
    }
}

impl fmt::Display for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.proxied {
            Some(endpoints) => write!(f, "{} (by {})", endpoints.client, self.peer),
            None => self.peer.fmt(f),
        }
    }
}
