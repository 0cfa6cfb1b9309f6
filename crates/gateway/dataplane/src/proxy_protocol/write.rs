//! Writer of headers for backends.

use super::{Endpoints, SIGNATURE, tlv};
use std::net::SocketAddr;

/// Maximum length of a value; longer values are left out. No name and no protocol is that long.
const VALUE_MAX: usize = 255;

/// Maximum length of a certificate; longer certificates are left out. Usual certificates have 500 to
/// 2,000 bytes. With one of this length, we would still read the header ourselves.
pub const CERTIFICATE_MAX: usize = 12_288;

/// Properties of the client's TLS connection.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tls<'a> {
    /// The version, in OpenSSL's notation: `TLSv1.3`.
    pub version: &'a str,
    /// The cipher suite's IANA name.
    pub suite: &'a str,
    /// The key exchange group's IANA name. A resumed TLS 1.2 connection has none.
    pub group: Option<&'a str>,
    /// The scheme of our handshake signature, named as in RFC 8446. A resumed connection has none.
    pub signature_scheme: Option<&'a str>,
    /// The signature algorithm of our certificate, in OpenSSL's notation.
    pub signature_algorithm: &'a str,
    /// The key type of our certificate, in HAProxy's notation: `RSA2048`.
    pub key_algorithm: &'a str,
    /// The negotiated application protocol.
    pub alpn: Option<&'a [u8]>,
    /// The server name that the client requested.
    pub server_name: Option<&'a str>,
    /// The client's certificate, if it sent one.
    pub certificate: Option<ClientCertificate<'a>>,
    /// The connection's id, for the logs on both sides.
    pub unique_id: &'a [u8],
}

/// A client's certificate, which was verified.
#[derive(Clone, Copy, Debug, Default)]
pub struct ClientCertificate<'a> {
    /// The subject's common name.
    pub common_name: Option<&'a str>,
    /// The whole certificate in DER, if the backend should get it.
    pub der: Option<&'a [u8]>,
    /// Whether the client sent it in an earlier connection, whose session was resumed.
    pub resumed: bool,
}

/// Writes a line of version 1 (§2.1).
pub fn v1(endpoints: Option<Endpoints>) -> Vec<u8> {
    let line = match endpoints.map(of_one_family) {
        Some((SocketAddr::V4(client), SocketAddr::V4(server))) => format!(
            "PROXY TCP4 {} {} {} {}\r\n",
            client.ip(),
            server.ip(),
            client.port(),
            server.port()
        ),
        Some((SocketAddr::V6(client), SocketAddr::V6(server))) => format!(
            "PROXY TCP6 {} {} {} {}\r\n",
            client.ip(),
            server.ip(),
            client.port(),
            server.port()
        ),
        _ => "PROXY UNKNOWN\r\n".to_owned(),
    };
    line.into_bytes()
}

/// Writes a header of version 2 (§2.2), with the properties of the TLS connection.
pub fn v2(endpoints: Option<Endpoints>, tls: Option<&Tls<'_>>) -> Vec<u8> {
    let mut body = Vec::with_capacity(256);
    let family = match endpoints.map(of_one_family) {
        Some((SocketAddr::V4(client), SocketAddr::V4(server))) => {
            body.extend_from_slice(&client.ip().octets());
            body.extend_from_slice(&server.ip().octets());
            ports(&mut body, client.port(), server.port());
            0x11
        }
        Some((SocketAddr::V6(client), SocketAddr::V6(server))) => {
            body.extend_from_slice(&client.ip().octets());
            body.extend_from_slice(&server.ip().octets());
            ports(&mut body, client.port(), server.port());
            0x21
        }
        _ => 0x00,
    };
    if let Some(tls) = tls {
        add_tls(&mut body, tls);
    }
    let mut header = Vec::with_capacity(SIGNATURE.len() + 4 + body.len());
    header.extend_from_slice(&SIGNATURE);
    // Version 2, command PROXY.
    header.extend_from_slice(&[0x21, family]);
    // A dozen values of at most 255 bytes and one certificate fit into 16 bits.
    header.extend_from_slice(&(body.len() as u16).to_be_bytes());
    header.extend_from_slice(&body);
    header
}

/// Converts two addresses to one family, since a header has one: if they differ, both become IPv6.
fn of_one_family(Endpoints { client, server }: Endpoints) -> (SocketAddr, SocketAddr) {
    let mapped = |address: SocketAddr| match address {
        SocketAddr::V4(four) => SocketAddr::new(four.ip().to_ipv6_mapped().into(), four.port()),
        SocketAddr::V6(_) => address,
    };
    if client.is_ipv4() == server.is_ipv4() {
        (client, server)
    } else {
        (mapped(client), mapped(server))
    }
}

/// Writes a header of version 2 with the command LOCAL (§2.2): the connection has no client, because
/// the proxy itself connects for a health check.
pub fn local() -> Vec<u8> {
    let mut header = SIGNATURE.to_vec();
    header.extend_from_slice(&[0x20, 0, 0, 0]);
    header
}

fn ports(body: &mut Vec<u8>, client: u16, server: u16) {
    body.extend_from_slice(&client.to_be_bytes());
    body.extend_from_slice(&server.to_be_bytes());
}

fn add_tls(body: &mut Vec<u8>, tls: &Tls<'_>) {
    if let Some(alpn) = tls.alpn {
        add(body, tlv::ALPN, alpn);
    }
    if let Some(name) = tls.server_name {
        add(body, tlv::AUTHORITY, name.as_bytes());
    }
    add(body, tlv::UNIQUE_ID, tls.unique_id);
    add(body, tlv::SSL, &ssl(tls));
}

/// Writes the value of the SSL TLV, which contains other TLVs (§2.2.6).
fn ssl(tls: &Tls<'_>) -> Vec<u8> {
    const OVER_TLS: u8 = 1;
    const CERTIFICATE_NOW: u8 = 2;
    const CERTIFICATE_IN_SESSION: u8 = 4;
    let (client, unverified) = match tls.certificate {
        None => (OVER_TLS, 1_u32),
        Some(ClientCertificate { resumed: true, .. }) => (OVER_TLS | CERTIFICATE_IN_SESSION, 0),
        Some(_) => (OVER_TLS | CERTIFICATE_NOW | CERTIFICATE_IN_SESSION, 0),
    };
    let mut value = vec![client];
    value.extend_from_slice(&unverified.to_be_bytes());
    add(&mut value, tlv::SSL_VERSION, tls.version.as_bytes());
    if let Some(name) = tls.certificate.and_then(|shown| shown.common_name) {
        add(&mut value, tlv::SSL_CN, name.as_bytes());
    }
    add(
        &mut value,
        tlv::SSL_CIPHER,
        openssl_name(tls.suite).as_bytes(),
    );
    add(
        &mut value,
        tlv::SSL_SIG_ALG,
        tls.signature_algorithm.as_bytes(),
    );
    add(&mut value, tlv::SSL_KEY_ALG, tls.key_algorithm.as_bytes());
    if let Some(group) = tls.group {
        add(&mut value, tlv::SSL_GROUP, group.as_bytes());
    }
    if let Some(scheme) = tls.signature_scheme {
        add(&mut value, tlv::SSL_SIG_SCHEME, scheme.as_bytes());
    }
    if let Some(der) = tls.certificate.and_then(|shown| shown.der) {
        add(&mut value, tlv::SSL_CLIENT_CERT, der);
    }
    value
}

fn add(body: &mut Vec<u8>, kind: u8, value: &[u8]) {
    let most = match kind {
        tlv::SSL => usize::from(u16::MAX),
        tlv::SSL_CLIENT_CERT => CERTIFICATE_MAX,
        _ => VALUE_MAX,
    };
    if value.is_empty() || value.len() > most {
        return;
    }
    body.push(kind);
    body.extend_from_slice(&(value.len() as u16).to_be_bytes());
    body.extend_from_slice(value);
}

/// The suite's OpenSSL name, which the protocol requires. OpenSSL has its own names for TLS 1.2.
fn openssl_name(suite: &str) -> String {
    let Some((exchange, cipher)) = suite
        .strip_prefix("TLS_")
        .and_then(|name| name.split_once("_WITH_"))
    else {
        // TLS 1.3 suites have the same name everywhere.
        return suite.to_owned();
    };
    let cipher = cipher
        .replace("AES_", "AES")
        .replace("CHACHA20_POLY1305_SHA256", "CHACHA20_POLY1305");
    format!("{exchange}_{cipher}").replace('_', "-")
}
