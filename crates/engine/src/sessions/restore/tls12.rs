//! The same for TLS 1.2: rustls' sessions made from bytes (see `mint`).
//!
//! A session of TLS 1.2 is the master secret and what the server knows it by, an id or a ticket.
//! These two pass by in the clear (`overheard`); the master secret goes through the provider's PRF,
//! which is ours to wrap:
//!
//! - *taken note of*: what key block is expanded from (RFC 5246 §6.3) is copied into the turn. Of
//!   sessions without extended master secret (RFC 7627) none is: they would not be resumed as such.
//! - *struck*: a whole handshake with ourselves in memory, in which both sides are given the master
//!   secret in place of the one they agree on, and the server gives out the id or the ticket. It
//!   takes some tens of microseconds, since nothing is signed and no secret is agreed on, and is
//!   made once per session and process: afterwards its value is cloned.

use std::fmt;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use rustls::client::{Resumption, Tls12ClientSessionValue};
use rustls::crypto::aws_lc_rs::ALL_CIPHER_SUITES;
use rustls::crypto::tls12::Prf;
use rustls::crypto::{ActiveKeyExchange, CryptoProvider, GetRandomFailed, SecureRandom};
use rustls::server::{ProducesTickets, StoresServerSessions};
use rustls::sign::{CertifiedKey, Signer, SigningKey, SingleCertAndKey};
use rustls::{
    CipherSuite, CipherSuiteCommon, ClientConfig, Error, ServerConfig, SignatureAlgorithm,
    SignatureScheme, SupportedCipherSuite, Tls12CipherSuite, version,
};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};

use crate::context::settings::SettingsError;
use crate::handshake::call_scope::{Secret, TurnTime, with_turn};
use crate::handshake::{Handshake, Progress};
use crate::sessions::client_session::{Key, Session};
use crate::sessions::restore::tls13::{NAME, Tray};
use crate::sessions::server_flight::Overheard;

/// RFC 5246 §8.1.
const MASTER_LEN: usize = 48;
/// rustls' servers, which strike, make ids of this length; so do OpenSSL and all who use it.
const ID_LEN: usize = 32;

/// What the provider does with the master secret.
pub(crate) enum Master {
    /// Derives it.
    Derived,
    /// Derives it and copies it here.
    Noted(Secret),
    /// Gives out this one in its place.
    Given(Secret),
}

/// What the server of a handshake with ourselves gives out.
pub(crate) enum Dictated {
    Id([u8; ID_LEN]),
    Ticket(Vec<u8>),
}

/// The session which a full handshake made, or a new ticket for one that was resumed. `None`: there
/// is none, or it can't be struck again.
pub(crate) fn session(
    suite: CipherSuite,
    now: UnixTime,
    master: &Master,
    overheard: &Overheard,
) -> Option<Session> {
    let Master::Noted(master) = master else {
        return None;
    };
    let (lifetime_s, key) = match &overheard.ticket {
        Some((lifetime_s, ticket)) => (*lifetime_s, Key::Ticket(ticket)),
        None if overheard.id.len() == ID_LEN => (0, Key::Id(&overheard.id)),
        None => return None,
    };
    let whole = master.bytes().len() == MASTER_LEN;
    whole.then(|| Session::of_tls12(suite, now, lifetime_s, master.bytes(), key))?
}

/// Makes rustls' sessions of TLS 1.2 from ours.
pub(crate) struct MintTls12 {
    client: Arc<ClientConfig>,
    /// One suite each.
    servers: Vec<(CipherSuite, Arc<ServerConfig>)>,
}

impl MintTls12 {
    /// `config` is that of the connections which will use the sessions.
    pub(crate) fn new(config: &ClientConfig) -> Result<MintTls12, SettingsError> {
        let mut client = config.clone();
        client.alpn_protocols.clear();
        client.resumption = Resumption::store(Arc::new(Tray));
        let suites = &config.crypto_provider().cipher_suites;
        let servers = suites.iter().filter_map(of_tls12);
        let servers = servers.map(|suite| Ok((suite.common.suite, server(config, suite)?)));
        Ok(MintTls12 {
            servers: servers.collect::<Result<_, SettingsError>>()?,
            client: Arc::new(client),
        })
    }

    /// Makes rustls' value of a session.
    pub(crate) fn strike(&self, session: &Session) -> Option<Tls12ClientSessionValue> {
        let parts = session.parts()?;
        let dictated = || match session.key()? {
            Key::Id(id) => id.try_into().ok().map(Dictated::Id),
            Key::Ticket(ticket) => Some(Dictated::Ticket(ticket.to_vec())),
        };
        let (_, server) = self.servers.iter().find(|(of, _)| *of == parts.suite)?;
        let name = ServerName::try_from(NAME).ok()?;
        let mut client = Handshake::with_self(Arc::clone(&self.client), name);
        let mut server = Handshake::with_client(Arc::clone(server));
        for side in [&mut client, &mut server] {
            side.dictate(Master::Given(Secret::of(parts.psk)), dictated());
        }
        let received = UnixTime::since_unix_epoch(Duration::from_secs(parts.received_s));
        let mut progress = client.handle_input(received, &[]).ok()?;
        for _ in 0..2 {
            pass(&mut client, &mut server, received)?;
            progress = pass(&mut server, &mut client, received)?;
        }
        client
            .take_struck()
            .filter(|_| progress == Progress::Established)
    }
}

fn pass(from: &mut Handshake, to: &mut Handshake, now: UnixTime) -> Option<Progress> {
    let bytes = from.output().to_vec();
    from.output_sent(bytes.len());
    to.handle_input(now, &bytes).ok()
}

fn server(
    config: &ClientConfig,
    suite: &Tls12CipherSuite,
) -> Result<Arc<ServerConfig>, SettingsError> {
    let mut provider = CryptoProvider::clone(config.crypto_provider());
    let id = suite.common.suite;
    provider.cipher_suites.retain(|one| one.suite() == id);
    provider.secure_random = &DictatedRandom;
    let key = Arc::new(NoKey(suite.sign.first().copied()));
    let nobody = CertifiedKey::new(vec![CertificateDer::from(vec![0])], key);
    let mut server = ServerConfig::builder_with_details(Arc::new(provider), Arc::new(TurnTime))
        .with_protocol_versions(&[&version::TLS12])?
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(SingleCertAndKey::from(nobody)));
    server.ticketer = Arc::new(DictatedTickets);
    server.session_storage = Arc::new(DictatedIds);
    Ok(Arc::new(server))
}

/// Signs nothing: in a handshake with ourselves no signature is looked at.
#[derive(Debug)]
struct NoKey(Option<SignatureScheme>);

impl SigningKey for NoKey {
    fn choose_scheme(&self, offered: &[SignatureScheme]) -> Option<Box<dyn Signer>> {
        let scheme = self.0.filter(|scheme| offered.contains(scheme))?;
        Some(Box::new(NoKey(Some(scheme))))
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

impl Signer for NoKey {
    fn sign(&self, _: &[u8]) -> Result<Vec<u8>, Error> {
        Ok(vec![0])
    }

    fn scheme(&self) -> SignatureScheme {
        self.0.unwrap_or(SignatureScheme::Unknown(0))
    }
}

fn dictated<R>(look: impl FnOnce(&Dictated) -> Option<R>) -> Option<R> {
    with_turn(|turn| turn.dictated.as_ref().and_then(look)).flatten()
}

/// Gives out the ticket that is dictated.
#[derive(Debug)]
struct DictatedTickets;

impl ProducesTickets for DictatedTickets {
    fn enabled(&self) -> bool {
        dictated(|what| matches!(what, Dictated::Ticket(_)).then_some(())).is_some()
    }

    /// Not said: how long it is good is judged by the session that it is struck from.
    fn lifetime(&self) -> u32 {
        0
    }

    fn encrypt(&self, _: &[u8]) -> Option<Vec<u8>> {
        dictated(|what| match what {
            Dictated::Ticket(ticket) => Some(ticket.clone()),
            Dictated::Id(_) => None,
        })
    }

    fn decrypt(&self, _: &[u8]) -> Option<Vec<u8>> {
        None
    }
}

/// Keeps nothing, but says that it does, so that there is an id.
#[derive(Debug)]
struct DictatedIds;

impl StoresServerSessions for DictatedIds {
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
        dictated(|what| matches!(what, Dictated::Id(_)).then_some(())).is_some()
    }
}

/// Where rustls asks for as many random bytes as an id has: the id that is dictated. (The server's
/// random is one of these, which is no harm in memory.)
#[derive(Debug)]
struct DictatedRandom;

impl SecureRandom for DictatedRandom {
    fn fill(&self, room: &mut [u8]) -> Result<(), GetRandomFailed> {
        let id = dictated(|what| match what {
            Dictated::Id(id) => Some(*id),
            Dictated::Ticket(_) => None,
        });
        match id {
            Some(id) if room.len() == ID_LEN => room.copy_from_slice(&id),
            _ => aws_lc_rs::rand::fill(room).map_err(|_| GetRandomFailed)?,
        }
        Ok(())
    }
}

/// A suite of TLS 1.2 whose PRF looks at the turn.
pub(crate) fn noting(suite: CipherSuite) -> Option<&'static Tls12CipherSuite> {
    static NOTING: LazyLock<Vec<Tls12CipherSuite>> = LazyLock::new(|| {
        let all = ALL_CIPHER_SUITES.iter().filter_map(of_tls12);
        all.map(with_noting_prf).collect()
    });
    NOTING.iter().find(|noting| noting.common.suite == suite)
}

fn of_tls12(suite: &SupportedCipherSuite) -> Option<&'static Tls12CipherSuite> {
    match suite {
        SupportedCipherSuite::Tls12(suite) => Some(suite),
        SupportedCipherSuite::Tls13(_) => None,
    }
}

fn with_noting_prf(suite: &'static Tls12CipherSuite) -> Tls12CipherSuite {
    // rustls wants suites which live for ever: there are six, made once per process.
    let prf_provider = Box::leak(Box::new(NotingPrf(suite.prf_provider)));
    Tls12CipherSuite {
        common: CipherSuiteCommon {
            suite: suite.common.suite,
            hash_provider: suite.common.hash_provider,
            confidentiality_limit: suite.common.confidentiality_limit,
        },
        prf_provider,
        kx: suite.kx,
        sign: suite.sign,
        aead_alg: suite.aead_alg,
    }
}

/// The provider's PRF. It does all of the work; only the master secret may be copied or replaced.
struct NotingPrf(&'static dyn Prf);

impl Prf for NotingPrf {
    fn for_key_exchange(
        &self,
        output: &mut [u8; MASTER_LEN],
        kx: Box<dyn ActiveKeyExchange>,
        peer_pub_key: &[u8],
        label: &[u8],
        seed: &[u8],
    ) -> Result<(), Error> {
        let given = with_turn(|turn| match &turn.master {
            Master::Given(master) => {
                let whole = master.bytes().len() == output.len();
                whole.then(|| output.copy_from_slice(master.bytes()))
            }
            Master::Noted(_) if label != b"extended master secret" => {
                turn.master = Master::Derived;
                None
            }
            Master::Derived | Master::Noted(_) => None,
        });
        match given.flatten() {
            Some(()) => Ok(()),
            None => self
                .0
                .for_key_exchange(output, kx, peer_pub_key, label, seed),
        }
    }

    fn for_secret(&self, output: &mut [u8], secret: &[u8], label: &[u8], seed: &[u8]) {
        if label == b"key expansion" {
            with_turn(|turn| {
                if let Master::Noted(note) = &mut turn.master {
                    note.write(secret);
                }
            });
        }
        self.0.for_secret(output, secret, label, seed);
    }

    fn fips(&self) -> bool {
        self.0.fips()
    }
}

impl fmt::Debug for MintTls12 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MintTls12")
    }
}
