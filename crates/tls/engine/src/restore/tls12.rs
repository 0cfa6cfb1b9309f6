//! TLS 1.2 sessions. A session is the master secret and the id or ticket by which the server finds it.
//!
//! Id and ticket are sent unencrypted ([`server_flight`](crate::sessions::server_flight)); the master secret is
//! captured. Restoring takes a whole loopback handshake, in which the provider gives both sides the captured
//! master secret, and the server issues the id or ticket. That takes some tens of microseconds, since there is
//! no signature and no key exchange, and happens once per session and process: afterwards its value is cloned.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use rustls::client::Tls12ClientSessionValue;
use rustls::crypto::{CryptoProvider, GetRandomFailed, SecureRandom};
use rustls::server::{ProducesTickets, StoresServerSessions};
use rustls::sign::{CertifiedKey, Signer, SigningKey, SingleCertAndKey};
use rustls::{
    CipherSuite, ClientConfig, Error, ServerConfig, SignatureAlgorithm, SignatureScheme,
    Tls12CipherSuite, version,
};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};

use super::loopback;
use crate::call_scope::{CallerTime, Facts, Subject, in_scope};
use crate::handshake::scoped_suites::{self, MASTER_SECRET_LEN};
use crate::handshake::{Handshake, HandshakeLimits};
use crate::secrets::{Derivation, Secret, SessionSecrets};
use crate::sessions::client_facts::ClientResumption;
use crate::sessions::client_session::{SESSION_ID_LEN, Session, SessionHandle};
use crate::sessions::server_flight::ServerFlight;
use crate::settings_error::SettingsError;

/// Returns the session that a full handshake made, or a new ticket for a resumed one. `None` if there is none,
/// or if it cannot be restored.
pub(crate) fn session(
    suite: CipherSuite,
    now: UnixTime,
    master_secret: &Derivation,
    flight: &ServerFlight,
) -> Option<Session> {
    let Derivation::Captured(master_secret) = master_secret else {
        return None;
    };
    let master_secret = Some(master_secret.bytes()).filter(|m| m.len() == MASTER_SECRET_LEN)?;
    let (lifetime_s, handle) = match &flight.ticket {
        Some((lifetime_s, ticket)) => (*lifetime_s, SessionHandle::Ticket(ticket.clone())),
        None => (0, SessionHandle::Id(flight.id.as_slice().try_into().ok()?)),
    };
    Session::of_tls12(suite, now, lifetime_s, master_secret, &handle)
}

/// Restores TLS 1.2 sessions.
pub(crate) struct Tls12Restorer {
    client: Arc<ClientConfig>,
    /// One server per suite.
    servers: Vec<(CipherSuite, Arc<ServerConfig>)>,
}

impl Tls12Restorer {
    /// `config` belongs to the clients that will use the sessions.
    pub(crate) fn new(config: &ClientConfig) -> Result<Tls12Restorer, SettingsError> {
        let suites = &config.crypto_provider().cipher_suites;
        let suites = suites.iter().filter_map(scoped_suites::tls12);
        let servers = suites.map(|suite| Ok((suite.common.suite, server_config(config, suite)?)));
        Ok(Tls12Restorer {
            client: loopback::client_config(config),
            servers: servers.collect::<Result<_, SettingsError>>()?,
        })
    }

    /// Returns rustls' value of a session.
    pub(crate) fn restore(&self, session: &Session) -> Option<Tls12ClientSessionValue> {
        let parts = session.parts()?;
        let handle = session.handle()?;
        let (_, server) = self.servers.iter().find(|(of, _)| *of == parts.suite)?;
        let name = ServerName::try_from(loopback::NAME).ok()?;
        let mut client = Handshake::loopback_client(Arc::clone(&self.client), name);
        let mut server =
            Handshake::with_server_config(Arc::clone(server), HandshakeLimits::default());
        for side in [&mut client, &mut server] {
            let master = Derivation::Replaced(Secret::of(parts.psk));
            side.facts::<SessionSecrets>().master = master;
            side.facts::<Issued>().0 = Some(handle.clone());
        }
        let received = UnixTime::since_unix_epoch(Duration::from_secs(parts.received_s));
        loopback::run(&mut client, &mut server, received).ok()?;
        client.facts::<ClientResumption>().tls12_value.take()
    }
}

/// Returns the server of a loopback handshake: one suite, and a dummy certificate.
fn server_config(
    config: &ClientConfig,
    suite: &Tls12CipherSuite,
) -> Result<Arc<ServerConfig>, SettingsError> {
    let mut provider = CryptoProvider::clone(config.crypto_provider());
    let id = suite.common.suite;
    provider.cipher_suites.retain(|one| one.suite() == id);
    provider.secure_random = &IssuedRandom;
    let key = Arc::new(NullKey(suite.sign.first().copied()));
    let dummy = CertifiedKey::new(vec![CertificateDer::from(vec![0])], key);
    let mut server = ServerConfig::builder_with_details(Arc::new(provider), Arc::new(CallerTime))
        .with_protocol_versions(&[&version::TLS12])?
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(SingleCertAndKey::from(dummy)));
    server.ticketer = Arc::new(IssuedTickets);
    server.session_storage = Arc::new(IssuedIds);
    Ok(Arc::new(server))
}

/// A key that does not sign: a loopback client verifies no signature.
#[derive(Debug)]
struct NullKey(Option<SignatureScheme>);

impl SigningKey for NullKey {
    fn choose_scheme(&self, offered: &[SignatureScheme]) -> Option<Box<dyn Signer>> {
        let scheme = self.0.filter(|scheme| offered.contains(scheme))?;
        Some(Box::new(NullKey(Some(scheme))))
    }

    fn algorithm(&self) -> SignatureAlgorithm {
        match self.0 {
            Some(SignatureScheme::ECDSA_NISTP256_SHA256)
            | Some(SignatureScheme::ECDSA_NISTP384_SHA384)
            | Some(SignatureScheme::ECDSA_NISTP521_SHA512) => SignatureAlgorithm::ECDSA,
            Some(SignatureScheme::ED25519) => SignatureAlgorithm::ED25519,
            _ => SignatureAlgorithm::RSA,
        }
    }
}

impl Signer for NullKey {
    fn sign(&self, _: &[u8]) -> Result<Vec<u8>, Error> {
        Ok(vec![0])
    }

    fn scheme(&self) -> SignatureScheme {
        self.0.unwrap_or(SignatureScheme::Unknown(0))
    }
}

/// The session id or ticket that the server of a loopback handshake issues.
#[derive(Default)]
struct Issued(Option<SessionHandle>);

impl Facts for Issued {
    const SUBJECT: Subject = Subject::Loopback;
}

fn issued<R>(look: impl FnOnce(&SessionHandle) -> Option<R>) -> Option<R> {
    in_scope(|Issued(handle)| handle.as_ref().and_then(look)).flatten()
}

/// Issues the session's ticket.
#[derive(Debug)]
struct IssuedTickets;

impl ProducesTickets for IssuedTickets {
    fn enabled(&self) -> bool {
        issued(|handle| matches!(handle, SessionHandle::Ticket(_)).then_some(())).is_some()
    }

    /// Not sent: the session itself stores its expiry.
    fn lifetime(&self) -> u32 {
        0
    }

    fn encrypt(&self, _: &[u8]) -> Option<Vec<u8>> {
        issued(|handle| match handle {
            SessionHandle::Ticket(ticket) => Some(ticket.clone()),
            SessionHandle::Id(_) => None,
        })
    }

    fn decrypt(&self, _: &[u8]) -> Option<Vec<u8>> {
        None
    }
}

/// Stores nothing but claims to, so that rustls sends an id.
#[derive(Debug)]
struct IssuedIds;

impl StoresServerSessions for IssuedIds {
    fn put(&self, _: Vec<u8>, _: Vec<u8>) -> bool {
        true
    }

    fn get(&self, _: &[u8]) -> Option<Vec<u8>> {
        None
    }

    fn take(&self, _: &[u8]) -> Option<Vec<u8>> {
        None
    }

    fn can_cache(&self) -> bool {
        issued(|handle| matches!(handle, SessionHandle::Id(_)).then_some(())).is_some()
    }
}

/// Returns the session's id where rustls asks for as many random bytes as an id has. (The server's random has
/// the same length, which is harmless in memory.)
#[derive(Debug)]
struct IssuedRandom;

impl SecureRandom for IssuedRandom {
    fn fill(&self, room: &mut [u8]) -> Result<(), GetRandomFailed> {
        let id = issued(|handle| match handle {
            SessionHandle::Id(id) => Some(*id),
            SessionHandle::Ticket(_) => None,
        });
        match id {
            Some(id) if room.len() == SESSION_ID_LEN => room.copy_from_slice(&id),
            _ => aws_lc_rs::rand::fill(room).map_err(|_| GetRandomFailed)?,
        }
        Ok(())
    }
}

impl fmt::Debug for Tls12Restorer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tls12Restorer")
    }
}
