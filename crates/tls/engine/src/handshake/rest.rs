//! The end of a handshake: secrets and sequence numbers go into the record state, and the library's objects are
//! dropped.

use dormouse_record as record;
use rustls::client::ClientConnectionData;
use rustls::kernel::KernelConnection;
use rustls::{ConnectionTrafficSecrets, ExtractedSecrets};

use super::info::HandshakeInfo;
use crate::call_scope::CallScope;
use crate::failure::{Blame, FailureKind, HandshakeFailure};
use crate::handshake::driver::RustlsConnection;
use crate::handshake::record_protection::Protection;
use crate::handshake::secret_log::CapturedSecrets;
use crate::sessions::refusal::ServerResumption;
use crate::sessions::ticket_watch::TicketWatch;

/// What remains of a handshake besides the state.
#[derive(Debug)]
pub struct Rested {
    /// Bytes that must be sent before any record sealed with the state.
    pub unsent: Vec<u8>,
    /// Bytes received after the handshake: the first bytes to open.
    pub leftover: Vec<u8>,
    /// The results of the handshake.
    pub info: HandshakeInfo,
    /// The expanded keys of the state. Drop them, or keep them for the first events.
    pub keys: record::BothKeys,
    /// Client, TLS 1.3, resumption enabled: receives the tickets that are still to come.
    pub tickets: Option<TicketWatch>,
}

/// The last library object of a client; only it can handle tickets.
type Kernel = Option<Box<KernelConnection<ClientConnectionData>>>;

/// Writes the connection into `state` and expands its keys. All library objects are dropped, except the client's
/// `KernelConnection`, which is returned.
pub(crate) fn establish(
    connection: RustlsConnection,
    scope: &mut CallScope,
    state: &mut record::State,
) -> Result<(Kernel, record::BothKeys), HandshakeFailure> {
    let written = write_connection(connection, scope, state);
    scrub_stack();
    written
}

/// Overwrites the part of the stack that was just in use: rustls returns keys by value, and every move leaves a
/// copy behind.
#[inline(never)]
pub(crate) fn scrub_stack() {
    let zeros = [0_u8; 32_768];
    std::hint::black_box(&zeros);
}

#[inline(never)]
fn write_connection(
    connection: RustlsConnection,
    scope: &mut CallScope,
    state: &mut record::State,
) -> Result<(Kernel, record::BothKeys), HandshakeFailure> {
    let refused = |error: rustls::Error| {
        HandshakeFailure::internal(format!("rustls does not give up the connection: {error}"))
    };
    let Some(sealer) = &scope.of::<Protection>().sealer else {
        return Err(HandshakeFailure::internal("no record was ever sealed"));
    };
    let write_seq = sealer.next_sequence();
    let stored = scope.find::<ServerResumption>();
    let stored = stored.and_then(|resumption| resumption.stored.take());
    let captured = scope.of::<CapturedSecrets>();
    match connection {
        RustlsConnection::Server(server) => {
            let (secrets, kernel) = server.dangerous_into_kernel_connection().map_err(refused)?;
            let version = kernel.protocol_version();
            let traffic = TrafficSecrets {
                role: record::Role::Server,
                read: captured.client.bytes(),
                write: captured.server.bytes(),
                write_seq,
            };
            let keys = traffic.write_state(version, &secrets, state)?;
            if let Some(session) = stored {
                state.set_session_mark(session.mark);
            }
            Ok((None, keys))
        }
        RustlsConnection::Client(client) => {
            let (secrets, kernel) = client.dangerous_into_kernel_connection().map_err(refused)?;
            let version = kernel.protocol_version();
            let traffic = TrafficSecrets {
                role: record::Role::Client,
                read: captured.server.bytes(),
                write: captured.client.bytes(),
                write_seq,
            };
            let keys = traffic.write_state(version, &secrets, state)?;
            let takes_tickets = version == rustls::ProtocolVersion::TLSv1_3;
            Ok((takes_tickets.then(|| Box::new(kernel)), keys))
        }
        RustlsConnection::ServerToBe(_) | RustlsConnection::ClientToBe(..) => {
            Err(HandshakeFailure::new(
                Blame::Misuse,
                FailureKind::Misuse,
                "the handshake has not begun",
            ))
        }
    }
}

/// The traffic secrets that were captured (RFC 8446 §7.1), for reading and for writing.
struct TrafficSecrets<'a> {
    role: record::Role,
    read: &'a [u8],
    write: &'a [u8],
    /// Sequence number of the next record. rustls does not count the records that we sealed after its own.
    write_seq: u64,
}

impl TrafficSecrets<'_> {
    /// Writes the state, and verifies that it continues with the keys that rustls used: secret and key come from
    /// different sources, and after a key update inside rustls they would be of different generations.
    fn write_state(
        &self,
        version: rustls::ProtocolVersion,
        secrets: &ExtractedSecrets,
        state: &mut record::State,
    ) -> Result<record::BothKeys, HandshakeFailure> {
        let (read_seq, read) = (secrets.rx.0, extracted(&secrets.rx.1)?);
        let (write_seq, write) = (self.write_seq, extracted(&secrets.tx.1)?);
        if read.suite != write.suite {
            return Err(HandshakeFailure::internal(
                "the directions have different suites",
            ));
        }
        let suite = read.suite;
        let established = if version == rustls::ProtocolVersion::TLSv1_3 {
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
        })?;
        let keys = record::BothKeys::new(state);
        if !keys.open.has_iv(read.iv) || !keys.seal.has_iv(write.iv) {
            state.wipe();
            return Err(HandshakeFailure::internal(
                "the captured traffic secrets do not yield the keys in use",
            ));
        }
        Ok(keys)
    }
}

/// One direction's key as rustls returns it; wiped in place when dropped.
struct Extracted<'a> {
    suite: record::Suite,
    key: &'a [u8],
    iv: &'a [u8],
}

impl Extracted<'_> {
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
                "a suite that the record layer does not support",
            ));
        }
    };
    Ok(Extracted {
        suite,
        key: key.as_ref(),
        iv: iv.as_ref(),
    })
}
