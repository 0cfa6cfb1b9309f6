//! The PROXY protocol: who the client is, in front of the first byte of a connection.
//!
//! Versions 1 (a line) and 2 (binary), after HAProxy's "The PROXY protocol" of 2020-03-05; section
//! numbers here are of that text. Its later editions add three parts to what is said of TLS: group,
//! signature scheme, and the client's certificate itself. We read both from proxies that are trusted, and write either
//! before what goes to a backend.
//!
//! Reading is strict. A header that is not exactly right is refused and the connection closed
//! (§2.1: "must immediately abort"), because whoever can smuggle one in can be anybody.

mod read;
mod write;

pub use read::{HEADER_MAX, Progress, Refused, V1_MAX, read};
pub use write::{CERTIFICATE_MAX, ClientCertificate, Tls, local, v1, v2};

use dormouse_reactor::socket::canonical;
use std::net::SocketAddr;

/// Version 2 begins with these twelve bytes, which no other protocol does (§2.2).
pub(crate) const SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";

/// Both ends of the connection that a header speaks of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Endpoints {
    /// Where the client connected from.
    pub client: SocketAddr,
    /// Where it connected to.
    pub server: SocketAddr,
}

impl Endpoints {
    /// Both in canonical form, so that rules for IPv4 networks see IPv4 addresses however a proxy
    /// or a dual-stack socket writes them.
    pub(crate) fn new(client: SocketAddr, server: SocketAddr) -> Endpoints {
        Endpoints {
            client: canonical(client),
            server: canonical(server),
        }
    }
}

/// Types of what may stand behind the addresses in version 2 (§2.2.1).
pub(crate) mod tlv {
    pub(crate) const ALPN: u8 = 0x01;
    pub(crate) const AUTHORITY: u8 = 0x02;
    pub(crate) const CRC32C: u8 = 0x03;
    pub(crate) const UNIQUE_ID: u8 = 0x05;
    pub(crate) const SSL: u8 = 0x20;
    pub(crate) const SSL_VERSION: u8 = 0x21;
    pub(crate) const SSL_CN: u8 = 0x22;
    pub(crate) const SSL_CIPHER: u8 = 0x23;
    pub(crate) const SSL_SIG_ALG: u8 = 0x24;
    pub(crate) const SSL_KEY_ALG: u8 = 0x25;
    pub(crate) const SSL_GROUP: u8 = 0x26;
    pub(crate) const SSL_SIG_SCHEME: u8 = 0x27;
    pub(crate) const SSL_CLIENT_CERT: u8 = 0x28;
}

#[cfg(test)]
mod tests;
