//! The PROXY protocol: a header before the first byte of a connection that names its client.
//!
//! Versions 1 (a line) and 2 (binary) follow HAProxy's "The PROXY protocol" of 2020-03-05; section
//! numbers refer to that text. Later editions add three TLVs about TLS: the group, the signature
//! scheme, and the client's certificate. We read both versions from trusted proxies, and write either
//! to backends.
//!
//! Reading is strict. A header that is not exactly valid is refused, and the connection is closed
//! (§2.1: "must immediately abort"), because a forged header could claim any client address.

mod read;
mod write;

pub use read::{HEADER_MAX, HeaderError, HeaderProgress, V1_MAX, read};
pub use write::{CERTIFICATE_MAX, ClientCertificate, Tls, local, v1, v2};

use dormouse_reactor::socket::canonical;
use std::net::SocketAddr;

/// The first twelve bytes of version 2, with which no other protocol begins (§2.2).
pub(crate) const SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";

/// The two addresses in a header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Endpoints {
    /// Source address of the client's connection.
    pub client: SocketAddr,
    /// Destination address of the client's connection.
    pub server: SocketAddr,
}

impl Endpoints {
    /// Converts both addresses to their canonical form, so that rules for IPv4 networks also match
    /// IPv4 addresses that a proxy or a dual-stack socket writes as IPv6.
    pub(crate) fn new(client: SocketAddr, server: SocketAddr) -> Endpoints {
        Endpoints {
            client: canonical(client),
            server: canonical(server),
        }
    }
}

/// Types of the TLVs after the addresses in version 2 (§2.2.1).
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
