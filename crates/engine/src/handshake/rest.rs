//! The end of a handshake: secrets and sequence numbers go into the record state, facts into
//! [`HandshakeInfo`], and every library object goes away.

use std::sync::Arc;

use dormouse_record as record;
use rustls::client::ClientConnectionData;
use rustls::kernel::KernelConnection;
use rustls::{
    CipherSuite, CommonState, ConnectionTrafficSecrets, ExtractedSecrets, HandshakeKind,
    NamedGroup, SignatureScheme,
};

use crate::context::settings::Version;
use crate::failure::{Blame, FailureKind, HandshakeFailure};
use crate::handshake::call_scope::CallScope;
use crate::handshake::driver::Connection;
use crate::sessions::refusal::ResumptionRefused;
use crate::sessions::ticket_watch::TicketWatch;
use crate::x509::identity::Algorithms;

/// What is left of a handshake when the connection is at rest.
#[derive(Debug)]
pub struct Rested {
    /// Bytes which must be sent before anything that is sealed with the state.
    pub unsent: Vec<u8>,
    /// Bytes received behind the handshake: the beginning of what is to be opened.
    pub leftover: Vec<u8>,
    /// What was agreed.
    pub info: HandshakeInfo,
    /// Client, TLS 1.3, resumption on: takes the tickets which are still to come.
    pub tickets: Option<TicketWatch>,
}

/// What a handshake agreed, and what it took.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HandshakeInfo {
    /// The version of TLS.
    pub protocol: Version,
    /// The cipher suite's name as IANA has it.
    pub suite: &'static str,
    /// The key exchange group's name as IANA has it; none in a resumed TLS 1.2 handshake.
    pub group: Option<&'static str>,
    /// The server name: sent by the client (server side), asked for (client side).
    pub sni: Option<String>,
    /// The application protocol.
    pub alpn: Option<Vec<u8>>,
    /// An earlier session was resumed.
    pub resumed: bool,
    /// The server asked for another key share first (HelloRetryRequest): a round trip more.
    pub retried: bool,
    /// The signature scheme by which the server proved itself; none in a resumed handshake.
    pub signature: Option<&'static str>,
    /// Client side: the server's certificate was judged, now or when the session began that
    /// was resumed. Server side: the client showed a certificate, and it was judged now.
    pub verified: bool,
    /// Server side: whose certificate the client showed, by its own account.
    pub client: Option<String>,
    /// Server side: the first common name in it, exactly as it stands there.
    pub client_name: Option<String>,
    /// Server side: the client's own certificate, DER; in a resumed handshake the one of the
    /// session's beginning, which was judged again.
    pub client_certificate: Option<Vec<u8>>,
    /// Server side: what the certificate is made with that fits this client. It was shown, or in a
    /// resumed handshake would have been.
    pub algorithms: Option<Arc<Algorithms>>,
    /// Server side: why the session which the client offered was not resumed.
    pub refused: Option<ResumptionRefused>,
    /// Server side: no ticket was given out, since the session is too large for one (the
    /// client's chain of certificates is).
    pub ticket_withheld: bool,
    /// Bytes received in the handshake.
    pub bytes_in: usize,
    /// Bytes sent in the handshake, tickets included.
    pub bytes_out: usize,
    /// Bytes of each flight, the client's first; what goes beyond is added to the last.
    pub flights: Flights,
}

/// Bytes per flight: client, server, client, …
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Flights {
    bytes: [u32; Flights::MAX],
    count: usize,
}

impl Flights {
    /// HelloRetryRequest and tickets make six; nothing makes more than eight.
    pub const MAX: usize = 8;

    /// The flights there were.
    pub fn bytes(&self) -> &[u32] {
        self.bytes.get(..self.count).unwrap_or_default()
    }

    pub(crate) fn add(&mut self, from_client: bool, bytes: usize) {
        if bytes == 0 {
            return;
        }
        // The client's are the 1st, 3rd, …: the one at work has the index `count - 1`.
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

/// What only this crate knows of the handshake.
pub(crate) struct Taken {
    pub(crate) sni: Option<String>,
    pub(crate) verified: bool,
    pub(crate) of_client: bool,
    pub(crate) bytes_in: usize,
    pub(crate) bytes_out: usize,
    pub(crate) flights: Flights,
}

/// What rustls knows; it must be asked before it gives up the connection.
pub(crate) fn info(
    common: &CommonState,
    scope: &CallScope,
    taken: Taken,
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
    // Server side: `Handshake` has made sure that what was shown was judged.
    let shown = !taken.of_client && common.peer_certificates().is_some();
    Ok(HandshakeInfo {
        protocol,
        suite: suite_name(suite.suite()),
        group: common
            .negotiated_key_exchange_group()
            .map(|group| group_name(group.name())),
        sni: taken.sni,
        alpn: common.alpn_protocol().map(<[u8]>::to_vec),
        resumed,
        retried: kind == Some(HandshakeKind::FullWithHelloRetryRequest),
        signature: scope.signature.filter(|_| !resumed).map(signature_name),
        verified: taken.verified || shown,
        client: scope.client.clone().filter(|_| shown),
        client_name: scope.client_name.clone().filter(|_| shown),
        client_certificate: common
            .peer_certificates()
            .and_then(<[_]>::first)
            .filter(|_| shown)
            .map(|own| own.to_vec()),
        algorithms: scope.algorithms.clone(),
        refused: scope.resumption.reason().filter(|_| !resumed),
        ticket_withheld: scope.resumption.withheld,
        bytes_in: taken.bytes_in,
        bytes_out: taken.bytes_out,
        flights: taken.flights,
    })
}

/// The client's last object of the library: only it can take tickets.
type Kernel = Option<Box<KernelConnection<ClientConnectionData>>>;

/// Writes the connection into `state`. The library's objects end here, but for the client's
/// `KernelConnection`, which is given back.
pub(crate) fn establish(
    connection: Connection,
    scope: &CallScope,
    state: &mut record::State,
) -> Result<Kernel, HandshakeFailure> {
    let kernel = write_connection(connection, scope, state);
    scrub_stack();
    kernel
}

/// Overwrites the part of the stack that was just in use: rustls gives keys out by value, and
/// every move leaves a copy behind.
#[inline(never)]
fn scrub_stack() {
    let zeros = [0_u8; 32_768];
    std::hint::black_box(&zeros);
}

#[inline(never)]
fn write_connection(
    connection: Connection,
    scope: &CallScope,
    state: &mut record::State,
) -> Result<Kernel, HandshakeFailure> {
    let refused = |error: rustls::Error| {
        HandshakeFailure::internal(format!("rustls does not give up the connection: {error}"))
    };
    match connection {
        Connection::Server(server) => {
            let (secrets, kernel) = server.dangerous_into_kernel_connection().map_err(refused)?;
            let version = kernel.protocol_version();
            let direction = Direction {
                role: record::Role::Server,
                read: scope.client_secret.bytes(),
                write: scope.server_secret.bytes(),
            };
            direction.write_state(version, &secrets, state)?;
            Ok(None)
        }
        Connection::Client(client) => {
            let (secrets, kernel) = client.dangerous_into_kernel_connection().map_err(refused)?;
            let version = kernel.protocol_version();
            let direction = Direction {
                role: record::Role::Client,
                read: scope.server_secret.bytes(),
                write: scope.client_secret.bytes(),
            };
            direction.write_state(version, &secrets, state)?;
            let takes_tickets = version == rustls::ProtocolVersion::TLSv1_3;
            Ok(takes_tickets.then(|| Box::new(kernel)))
        }
        Connection::ServerToBe(_) | Connection::ClientToBe(..) => Err(HandshakeFailure::new(
            Blame::Misuse,
            FailureKind::Misuse,
            "the handshake has not begun",
        )),
    }
}

/// Which of the captured secrets reads and which writes.
struct Direction<'a> {
    role: record::Role,
    read: &'a [u8],
    write: &'a [u8],
}

impl Direction<'_> {
    fn write_state(
        &self,
        version: rustls::ProtocolVersion,
        secrets: &ExtractedSecrets,
        state: &mut record::State,
    ) -> Result<(), HandshakeFailure> {
        let (read_seq, read) = (secrets.rx.0, extracted(&secrets.rx.1)?);
        let (write_seq, write) = (secrets.tx.0, extracted(&secrets.tx.1)?);
        if read.suite != write.suite {
            return Err(HandshakeFailure::internal(
                "the directions have different suites",
            ));
        }
        let suite = read.suite;
        let established = if version == rustls::ProtocolVersion::TLSv1_3 {
            // The key rustls uses must be the one which follows from the secret we caught;
            // after a key update inside rustls it would not be.
            if !read.follows_from(self.read) || !write.follows_from(self.write) {
                return Err(HandshakeFailure::internal(
                    "the captured traffic secrets do not yield the keys in use",
                ));
            }
            state.establish_tls13(self.role, suite, self.read, read_seq, self.write, write_seq)
        } else {
            state.establish_tls12(
                self.role,
                suite,
                read.key_iv(),
                read_seq,
                write.key_iv(),
                write_seq,
            )
        };
        established.map_err(|misuse| {
            HandshakeFailure::internal(format!("the record state refuses the keys: {misuse}"))
        })
    }
}

/// One direction's key as rustls gives it out; it is wiped where it lies when dropped there.
struct Extracted<'a> {
    suite: record::Suite,
    key: &'a [u8],
    iv: &'a [u8],
}

impl Extracted<'_> {
    fn follows_from(&self, secret: &[u8]) -> bool {
        record::secret_yields(self.suite, secret, self.key, self.iv)
    }

    fn key_iv(&self) -> record::KeyIv<'_> {
        record::KeyIv {
            key: self.key,
            iv: self.iv,
        }
    }
}

fn extracted(secrets: &ConnectionTrafficSecrets) -> Result<Extracted<'_>, HandshakeFailure> {
    let (suite, key, iv) = match secrets {
        ConnectionTrafficSecrets::Aes128Gcm { key, iv } => {
            (record::Suite::Aes128GcmSha256, key, iv)
        }
        ConnectionTrafficSecrets::Aes256Gcm { key, iv } => {
            (record::Suite::Aes256GcmSha384, key, iv)
        }
        ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => {
            (record::Suite::Chacha20Poly1305Sha256, key, iv)
        }
        _ => {
            return Err(HandshakeFailure::internal(
                "a suite which the record layer does not have",
            ));
        }
    };
    Ok(Extracted {
        suite,
        key: key.as_ref(),
        iv: iv.as_ref(),
    })
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

/// Names as in RFC 8446 §4.2.3.
fn signature_name(scheme: SignatureScheme) -> &'static str {
    match scheme {
        SignatureScheme::ECDSA_NISTP256_SHA256 => "ecdsa_secp256r1_sha256",
        SignatureScheme::ECDSA_NISTP384_SHA384 => "ecdsa_secp384r1_sha384",
        SignatureScheme::ECDSA_NISTP521_SHA512 => "ecdsa_secp521r1_sha512",
        SignatureScheme::RSA_PSS_SHA256 => "rsa_pss_rsae_sha256",
        SignatureScheme::RSA_PSS_SHA384 => "rsa_pss_rsae_sha384",
        SignatureScheme::RSA_PSS_SHA512 => "rsa_pss_rsae_sha512",
        SignatureScheme::RSA_PKCS1_SHA256 => "rsa_pkcs1_sha256",
        SignatureScheme::RSA_PKCS1_SHA384 => "rsa_pkcs1_sha384",
        SignatureScheme::RSA_PKCS1_SHA512 => "rsa_pkcs1_sha512",
        SignatureScheme::ED25519 => "ed25519",
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
