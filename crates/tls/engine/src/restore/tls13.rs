//! TLS 1.3 sessions: a loopback connection receives the session's ticket again, and the provider returns the
//! captured key.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustls::client::{ClientConnectionData, Tls13ClientSessionValue};
use rustls::crypto::CryptoProvider;
use rustls::kernel::KernelConnection;
use rustls::{CipherSuite, ClientConfig, ServerConfig, SupportedCipherSuite, version};
use rustls_pki_types::{ServerName, UnixTime};

use super::loopback;
use crate::call_scope::{self, CallerTime, in_scope};
use crate::handshake::secret_log::SecretCatcher;
use crate::handshake::{Handshake, HandshakeLimits};
use crate::secrets::{Derivation, Secret, SessionSecrets};
use crate::sessions::client_facts::ClientResumption;
use crate::sessions::client_session::Session;
use crate::sessions::ticket_watch::TicketWatch;
use crate::settings_error::SettingsError;
use crate::x509::identity::Identity;

/// Restores TLS 1.3 sessions.
pub(crate) struct Tls13Restorer {
    /// One connection per hash of an enabled suite: a session belongs to the hash of its suite (RFC 8446 §4.2.11).
    connections: Mutex<Vec<(CipherSuite, Connection)>>,
}

type Connection = Box<KernelConnection<ClientConnectionData>>;

impl Tls13Restorer {
    /// Makes the loopback connections. `config` belongs to the clients that will use the sessions.
    pub(crate) fn new(config: &ClientConfig) -> Result<Tls13Restorer, SettingsError> {
        let mut connections: Vec<(CipherSuite, Connection)> = Vec::new();
        let suites = config.crypto_provider().cipher_suites.iter();
        let suites = suites.filter_map(SupportedCipherSuite::tls13);
        for suite in suites.map(|suite| suite.common.suite) {
            if !connections.iter().any(|(of, _)| has_same_hash(*of, suite)) {
                connections.push((suite, connect(config, suite)?));
            }
        }
        Ok(Tls13Restorer {
            connections: Mutex::new(connections),
        })
    }

    /// Returns rustls' value of a session. Runs within a call scope and leaves it unchanged.
    pub(crate) fn restore(&self, session: &Session) -> Option<Tls13ClientSessionValue> {
        let parts = session.parts()?;
        let message = ticket_message(parts.lifetime_s, parts.age_add, parts.ticket)?;
        let received = UnixTime::since_unix_epoch(Duration::from_secs(parts.received_s));
        let mut connections = self.connections.lock().ok()?;
        let mut connections = connections.iter_mut();
        let (_, connection) = connections.find(|(of, _)| has_same_hash(*of, parts.suite))?;
        let now = call_scope::replace_now(received)?;
        let replace = |psk| in_scope(|secrets: &mut SessionSecrets| secrets.psk = psk);
        replace(Derivation::Replaced(Secret::of(parts.psk)));
        let handled = connection.handle_new_session_ticket(&message);
        replace(Derivation::Unchanged);
        call_scope::replace_now(now);
        let restored = in_scope(|own: &mut ClientResumption| own.tls13_value.take())?;
        restored.filter(|_| handled.is_ok())
    }
}

impl fmt::Debug for Tls13Restorer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tls13Restorer")
    }
}

fn has_same_hash(one: CipherSuite, other: CipherSuite) -> bool {
    let is_sha384 = |suite| suite == CipherSuite::TLS13_AES_256_GCM_SHA384;
    is_sha384(one) == is_sha384(other)
}

/// The payload of a NewSessionTicket, without nonce and extensions.
fn ticket_message(lifetime_s: u32, age_add: u32, ticket: &[u8]) -> Option<Vec<u8>> {
    let ticket_len = u16::try_from(ticket.len()).ok()?;
    let mut message = Vec::with_capacity(13 + ticket.len());
    message.extend_from_slice(&lifetime_s.to_be_bytes());
    message.extend_from_slice(&age_add.to_be_bytes());
    message.push(0);
    message.extend_from_slice(&ticket_len.to_be_bytes());
    message.extend_from_slice(ticket);
    message.extend_from_slice(&[0, 0]);
    Some(message)
}

/// Makes a loopback connection.
fn connect(config: &ClientConfig, suite: CipherSuite) -> Result<Connection, SettingsError> {
    let failed = |why: &dyn fmt::Display| SettingsError::Library(format!("own handshake: {why}"));
    let name = ServerName::try_from(loopback::NAME).map_err(|e| failed(&e))?;
    let mut client = Handshake::loopback_client(loopback::client_config(config), name);
    let mut server = Handshake::with_server_config(
        Arc::new(server_config(config, suite)?),
        HandshakeLimits::default(),
    );
    let now = UnixTime::since_unix_epoch(Duration::from_secs(1_700_000_000));
    loopback::run(&mut client, &mut server, now).map_err(|e| failed(&e))?;
    let mut state = dormouse_record::State::empty();
    let rested = client.rest(&mut state).map_err(|e| failed(&e))?;
    state.wipe();
    rested
        .tickets
        .map(TicketWatch::into_kernel)
        .ok_or_else(|| failed(&"it returned no connection"))
}

/// Returns the server of the loopback connection: one suite, and a self-signed certificate.
fn server_config(config: &ClientConfig, suite: CipherSuite) -> Result<ServerConfig, SettingsError> {
    let identity =
        Identity::self_signed(loopback::NAME).map_err(|e| SettingsError::Library(e.to_string()))?;
    let mut provider = CryptoProvider::clone(config.crypto_provider());
    provider.cipher_suites.retain(|one| one.suite() == suite);
    let mut server = ServerConfig::builder_with_details(Arc::new(provider), Arc::new(CallerTime))
        .with_protocol_versions(&[&version::TLS13])?
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(rustls::sign::SingleCertAndKey::from(
            identity.certified_key(),
        )));
    server.key_log = Arc::new(SecretCatcher::default());
    server.enable_secret_extraction = true;
    server.send_tls13_tickets = 0;
    Ok(server)
}
