//! The results of a handshake and its cost.

use std::sync::Arc;

use dormouse_record::Version;
use rustls::{CipherSuite, CommonState, HandshakeKind, NamedGroup};

use super::exporter::{Exporter, Exporting};
use crate::call_scope::CallScope;
use crate::failure::HandshakeFailure;
use crate::sessions::refusal::{ResumptionRefused, ServerResumption};
use crate::signature_name::signature_name;
use crate::x509::facts::CertificateFacts;
use crate::x509::identity::Algorithms;
use crate::x509::standing::ClientStanding;

/// The results of a handshake and its cost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HandshakeInfo {
    /// The version of TLS.
    pub protocol: Version,
    /// The cipher suite's IANA name.
    pub suite: &'static str,
    /// The key exchange group's IANA name; `None` in a resumed TLS 1.2 handshake.
    pub group: Option<&'static str>,
    /// The server name: sent by the client (server side), or requested by us (client side).
    pub sni: Option<String>,
    /// The negotiated application protocol.
    pub alpn: Option<Vec<u8>>,
    /// Whether an earlier session was resumed.
    pub resumed: bool,
    /// Whether the server requested another key share (HelloRetryRequest), which costs a round trip.
    pub retried: bool,
    /// The signature scheme of the server's signature; `None` in a resumed handshake.
    pub signature: Option<&'static str>,
    /// Client side: the server's certificate was verified, now or when the resumed session began. Server side:
    /// the client sent a certificate, and it was verified now.
    pub verified: bool,
    /// Server side: the subject of the client's certificate.
    pub client: Option<String>,
    /// Server side: the first common name in the subject, unchanged.
    pub client_name: Option<String>,
    /// Server side: the client's own certificate, DER. In a resumed handshake it is the certificate of the
    /// original handshake, verified again.
    pub client_certificate: Option<Vec<u8>>,
    /// Server side: what admitted the client's certificate, to recognise later that it is revoked.
    pub standing: Option<ClientStanding>,
    /// Server side: the algorithms of our certificate that suits this client. A resumed handshake does not send
    /// that certificate.
    pub algorithms: Option<Arc<Algorithms>>,
    /// Server side: the SHA-256 digest of that certificate.
    pub fingerprint: Option<[u8; 32]>,
    /// The peer's certificates, DER, its own first; in a resumed handshake those of the original handshake.
    /// Empty if it sent none, and on the client side if the resumed session comes from the caller's store, because
    /// its bytes hold no certificate.
    pub peer_certificates: Vec<Vec<u8>>,
    /// Client side: the server requested a certificate, and got ours.
    pub own_certificate_sent: bool,
    /// Exports keying material, if the context enables it.
    pub exporter: Option<Arc<Exporter>>,
    /// Server side: why the offered session was not resumed.
    pub refused: Option<ResumptionRefused>,
    /// Server side: no ticket was issued because the session is too large for one (the client's certificate
    /// chain is).
    pub ticket_withheld: bool,
    /// Bytes received during the handshake.
    pub bytes_in: usize,
    /// Bytes sent during the handshake, including tickets.
    pub bytes_out: usize,
    /// Bytes of each flight, the client's first; flights beyond the maximum are added to the last.
    pub flights: Flights,
}

/// Bytes per flight: client, server, client, …
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Flights {
    bytes: [u32; Flights::MAX],
    count: usize,
}

impl Flights {
    /// A handshake with HelloRetryRequest and tickets has six flights; none has more than eight.
    pub const MAX: usize = 8;

    /// Returns the bytes of each flight so far.
    pub fn bytes(&self) -> &[u32] {
        self.bytes.get(..self.count).unwrap_or_default()
    }

    pub(crate) fn add(&mut self, from_client: bool, bytes: usize) {
        if bytes == 0 {
            return;
        }
        // The client's flights are the 1st, 3rd, …; the current flight has the index `count - 1`.
        let same = self.count > 0 && (self.count % 2 == 1) == from_client;
        if !same && self.count < Self::MAX {
            self.count += 1;
        }
        if let Some(flight) = self
            .count
            .checked_sub(1)
            .and_then(|i| self.bytes.get_mut(i))
        {
            *flight = flight.saturating_add(u32::try_from(bytes).unwrap_or(u32::MAX));
        }
    }
}

/// Facts about the handshake that rustls does not know.
pub(crate) struct LocalFacts {
    pub(crate) sni: Option<String>,
    pub(crate) verified: bool,
    pub(crate) of_client: bool,
    /// Client side: whether the caller stores the sessions.
    pub(crate) by_caller: bool,
    pub(crate) bytes_in: usize,
    pub(crate) bytes_out: usize,
    pub(crate) flights: Flights,
}

/// Collects what rustls knows; must be called before rustls gives up the connection.
pub(crate) fn handshake_info(
    common: &CommonState,
    scope: &mut CallScope,
    local: LocalFacts,
) -> Result<HandshakeInfo, HandshakeFailure> {
    let (Some(protocol), Some(suite)) =
        (common.protocol_version(), common.negotiated_cipher_suite())
    else {
        return Err(HandshakeFailure::internal("established without a suite"));
    };
    let protocol = match protocol {
        rustls::ProtocolVersion::TLSv1_3 => Version::Tls13,
        _ => Version::Tls12,
    };
    let kind = common.handshake_kind();
    let resumed = kind == Some(HandshakeKind::Resumed);
    // Server side: `Handshake` has ensured that any certificate sent was verified.
    let shown = !local.of_client && common.peer_certificates().is_some();
    let exporter = scope.find::<Exporting>();
    let exporter = exporter.and_then(|Exporting(source)| source.take());
    let resumption = scope.find::<ServerResumption>();
    let (refused, ticket_withheld) = resumption.map_or((None, false), |resumption| {
        (resumption.reason(), resumption.withheld)
    });
    let facts = scope.of::<CertificateFacts>();
    Ok(HandshakeInfo {
        protocol,
        suite: suite_name(suite.suite()),
        group: common
            .negotiated_key_exchange_group()
            .map(|group| group_name(group.name())),
        sni: local.sni,
        alpn: common.alpn_protocol().map(<[u8]>::to_vec),
        resumed,
        retried: kind == Some(HandshakeKind::FullWithHelloRetryRequest),
        signature: facts.signature.filter(|_| !resumed).map(signature_name),
        verified: local.verified || shown,
        client: facts.client.clone().filter(|_| shown),
        client_name: facts.client_name.clone().filter(|_| shown),
        client_certificate: common
            .peer_certificates()
            .and_then(<[_]>::first)
            .filter(|_| shown)
            .map(|own| own.to_vec()),
        standing: facts.standing.filter(|_| shown),
        algorithms: facts.algorithms.clone(),
        fingerprint: facts.fingerprint,
        peer_certificates: peer_certificates(common, local.by_caller),
        own_certificate_sent: facts.own_sent,
        exporter: exporter
            .and_then(|source| Exporter::new(suite, source))
            .map(Arc::new),
        refused: refused.filter(|_| !resumed),
        ticket_withheld,
        bytes_in: local.bytes_in,
        bytes_out: local.bytes_out,
        flights: local.flights,
    })
}

/// Returns the peer's certificates. `by_caller`: the caller stores the sessions. A restored session then has the
/// certificate of the loopback handshake that restored it.
pub(crate) fn peer_certificates(common: &CommonState, by_caller: bool) -> Vec<Vec<u8>> {
    if by_caller && common.handshake_kind() == Some(HandshakeKind::Resumed) {
        return Vec::new();
    }
    let chain = common.peer_certificates().unwrap_or_default();
    chain.iter().map(|one| one.to_vec()).collect()
}

fn suite_name(suite: CipherSuite) -> &'static str {
    match suite {
        CipherSuite::TLS13_AES_128_GCM_SHA256 => "TLS_AES_128_GCM_SHA256",
        CipherSuite::TLS13_AES_256_GCM_SHA384 => "TLS_AES_256_GCM_SHA384",
        CipherSuite::TLS13_CHACHA20_POLY1305_SHA256 => "TLS_CHACHA20_POLY1305_SHA256",
        other => other.as_str().unwrap_or("unknown"),
    }
}

fn group_name(group: NamedGroup) -> &'static str {
    match group {
        NamedGroup::X25519 => "x25519",
        other => other.as_str().unwrap_or("unknown"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flights_alternate_and_begin_with_the_client() {
        let mut flights = Flights::default();
        for (from_client, bytes) in [(true, 200), (true, 50), (false, 1_000), (true, 80)] {
            flights.add(from_client, bytes);
        }
        assert_eq!(flights.bytes(), [250, 1_000, 80]);
        for i in 0..20 {
            flights.add(i % 2 == 1, 1);
        }
        assert_eq!(flights.bytes().len(), Flights::MAX);
    }
}
