//! Sessions of rustls made from bytes.
//!
//! rustls keeps a TLS 1.3 session as a value which can be neither read nor made from outside
//! (0.23: no accessor, no constructor, not `Clone`), so its stores end with the process. But it
//! makes such a value in one place only, where a connection is shown a NewSessionTicket: ticket,
//! lifetime and age come from that message, and the key from the cryptographic provider, which
//! derives it (RFC 8446 §4.6.1). The provider is ours to wrap. So:
//!
//! - *taken note of*: while a real ticket is handled, the key that was derived is copied into the
//!   turn ([`Psk::Noted`]); with the message it is all there is to a session;
//! - *struck*: a connection which was made with ourselves in memory, when the context was made, is
//!   shown the message again, and is given the kept key in place of the derived one
//!   ([`Psk::Given`]). What it puts into its store is the session as it was.
//!
//! The connection in memory shares verifier and client certificate with those that will use the
//! session, since rustls offers a session under the same ones only. One per hash is needed: a
//! session belongs to the hash of its suite (RFC 8446 §4.2.11).

use std::fmt;
use std::sync::{Arc, LazyLock, Mutex};

use rustls::client::{
    ClientConnectionData, ClientSessionStore, Resumption, Tls12ClientSessionValue,
    Tls13ClientSessionValue,
};
use rustls::crypto::aws_lc_rs::ALL_CIPHER_SUITES;
use rustls::crypto::hmac::Tag;
use rustls::crypto::tls13::{Hkdf, HkdfExpander, OkmBlock, OutputLengthError};
use rustls::crypto::{ActiveKeyExchange, CryptoProvider};
use rustls::kernel::KernelConnection;
use rustls::{
    CipherSuite, CipherSuiteCommon, ClientConfig, Error, NamedGroup, ServerConfig,
    SupportedCipherSuite, Tls13CipherSuite, version,
};
use rustls_pki_types::{ServerName, UnixTime};

use crate::context::settings::SettingsError;
use crate::handshake::call_scope::{Secret, SecretCatcher, TurnTime, with_turn};
use crate::handshake::{Handshake, Progress};
use crate::sessions::client_session::Session;
use crate::sessions::restore::tls12;
use crate::x509::identity::Identity;

/// Not a name that anybody has (RFC 6761 §6.4).
pub(crate) const NAME: &str = "mint.invalid";

/// What the provider does with the key that a ticket stands for.
pub(crate) enum Psk {
    /// Derives it.
    Derived,
    /// Derives it and copies it here.
    Noted(Secret),
    /// Gives out this one in its place.
    Given(Secret),
}

/// Makes rustls' sessions from ours.
pub(crate) struct Mint {
    presses: Mutex<Vec<(CipherSuite, Press)>>,
}

type Press = Box<KernelConnection<ClientConnectionData>>;

impl Mint {
    /// Shakes hands with itself, once per hash. `config` is that of the connections which will
    /// use the sessions.
    pub(crate) fn new(config: &ClientConfig) -> Result<Mint, SettingsError> {
        let mut presses = Vec::new();
        for suite in [
            CipherSuite::TLS13_AES_128_GCM_SHA256,
            CipherSuite::TLS13_AES_256_GCM_SHA384,
        ] {
            presses.push((suite, press(config, suite)?));
        }
        Ok(Mint {
            presses: Mutex::new(presses),
        })
    }

    /// Makes rustls' value of a session. Within a turn, which is as before afterwards.
    pub(crate) fn strike(&self, session: &Session) -> Option<Tls13ClientSessionValue> {
        let parts = session.parts()?;
        let message = message(parts.lifetime_s, parts.age_add, parts.ticket)?;
        let received = UnixTime::since_unix_epoch(std::time::Duration::from_secs(parts.received_s));
        let mut presses = self.presses.lock().ok()?;
        let same_hash = |of: CipherSuite| uses_sha384(of) == uses_sha384(parts.suite);
        let (_, press) = presses.iter_mut().find(|(of, _)| same_hash(*of))?;
        let now = with_turn(|turn| {
            turn.psk = Psk::Given(Secret::of(parts.psk));
            std::mem::replace(&mut turn.now, received)
        })?;
        let struck = press.handle_new_session_ticket(&message);
        with_turn(|turn| {
            turn.now = now;
            turn.psk = Psk::Derived;
            turn.struck.take().filter(|_| struck.is_ok())
        })?
    }
}

impl fmt::Debug for Mint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Mint")
    }
}

fn uses_sha384(suite: CipherSuite) -> bool {
    suite == CipherSuite::TLS13_AES_256_GCM_SHA384
}

/// The payload of a NewSessionTicket, without nonce and extensions.
fn message(lifetime_s: u32, age_add: u32, ticket: &[u8]) -> Option<Vec<u8>> {
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

/// A connection with ourselves.
fn press(config: &ClientConfig, suite: CipherSuite) -> Result<Press, SettingsError> {
    let failed = |why: &dyn fmt::Display| SettingsError::Library(format!("own handshake: {why}"));
    let mut client = config.clone();
    client.alpn_protocols.clear();
    client.resumption = Resumption::store(Arc::new(Tray));
    let name = ServerName::try_from(NAME).map_err(|e| failed(&e))?;
    let mut client = Handshake::with_self(Arc::new(client), name);
    let mut server = Handshake::with_client(Arc::new(counterpart(config, suite)?));
    let now = UnixTime::since_unix_epoch(std::time::Duration::from_secs(1_700_000_000));
    let mut progress = client.handle_input(now, &[]).map_err(|e| failed(&e))?;
    for _ in 0..3 {
        pass(&mut client, &mut server, now)?;
        progress = pass(&mut server, &mut client, now)?;
    }
    if progress != Progress::Established {
        return Err(failed(&"it does not end"));
    }
    let mut state = dormouse_record::State::empty();
    let rested = client.rest(&mut state).map_err(|e| failed(&e))?;
    state.wipe();
    rested
        .tickets
        .map(crate::sessions::ticket_watch::TicketWatch::into_kernel)
        .ok_or_else(|| failed(&"no connection is left of it"))
}

fn pass(
    from: &mut Handshake,
    to: &mut Handshake,
    now: UnixTime,
) -> Result<Progress, SettingsError> {
    let bytes = from.output().to_vec();
    from.output_sent(bytes.len());
    to.handle_input(now, &bytes)
        .map_err(|e| SettingsError::Library(format!("own handshake: {e}")))
}

/// The server of the handshake with ourselves: one suite, and a certificate for nobody.
fn counterpart(config: &ClientConfig, suite: CipherSuite) -> Result<ServerConfig, SettingsError> {
    let identity =
        Identity::self_signed(NAME).map_err(|e| SettingsError::Library(e.to_string()))?;
    let mut provider = CryptoProvider::clone(config.crypto_provider());
    provider.cipher_suites.retain(|one| one.suite() == suite);
    let mut server = ServerConfig::builder_with_details(Arc::new(provider), Arc::new(TurnTime))
        .with_protocol_versions(&[&version::TLS13])?
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(rustls::sign::SingleCertAndKey::from(
            identity.certified_key(),
        )));
    server.key_log = Arc::new(SecretCatcher);
    server.enable_secret_extraction = true;
    server.send_tls13_tickets = 0;
    Ok(server)
}

/// Where the connections with ourselves put what was struck: into the turn.
#[derive(Debug)]
pub(crate) struct Tray;

impl ClientSessionStore for Tray {
    fn set_kx_hint(&self, _: ServerName<'static>, _: NamedGroup) {}

    fn kx_hint(&self, _: &ServerName<'_>) -> Option<NamedGroup> {
        None
    }

    fn set_tls12_session(&self, _: ServerName<'static>, value: Tls12ClientSessionValue) {
        with_turn(|turn| turn.made = Some(value));
    }

    fn tls12_session(&self, _: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        None
    }

    fn remove_tls12_session(&self, _: &ServerName<'static>) {}

    fn insert_tls13_ticket(&self, _: ServerName<'static>, value: Tls13ClientSessionValue) {
        with_turn(|turn| turn.struck = Some(value));
    }

    fn take_tls13_ticket(&self, _: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        None
    }
}

/// The suites, with derivations that look at the turn.
pub(crate) fn noting(suite: SupportedCipherSuite) -> SupportedCipherSuite {
    static NOTING: LazyLock<Vec<Tls13CipherSuite>> = LazyLock::new(|| {
        let all = ALL_CIPHER_SUITES
            .iter()
            .filter_map(SupportedCipherSuite::tls13);
        all.map(with_noting_hkdf).collect()
    });
    let of_tls13 = NOTING
        .iter()
        .find(|noting| noting.common.suite == suite.suite())
        .map(SupportedCipherSuite::Tls13);
    let of_tls12 = || tls12::noting(suite.suite()).map(SupportedCipherSuite::Tls12);
    of_tls13.or_else(of_tls12).unwrap_or(suite)
}

fn with_noting_hkdf(suite: &'static Tls13CipherSuite) -> Tls13CipherSuite {
    // rustls wants suites which live for ever: there are three, made once per process.
    let hkdf_provider = Box::leak(Box::new(NotingHkdf(suite.hkdf_provider)));
    Tls13CipherSuite {
        common: CipherSuiteCommon {
            suite: suite.common.suite,
            hash_provider: suite.common.hash_provider,
            confidentiality_limit: suite.common.confidentiality_limit,
        },
        hkdf_provider,
        aead_alg: suite.aead_alg,
        quic: suite.quic,
    }
}

/// The provider's HKDF. It does all of the work; only the key of a ticket may be copied or replaced.
struct NotingHkdf(&'static dyn Hkdf);

impl Hkdf for NotingHkdf {
    fn extract_from_zero_ikm(&self, salt: Option<&[u8]>) -> Box<dyn HkdfExpander> {
        self.0.extract_from_zero_ikm(salt)
    }

    fn extract_from_secret(&self, salt: Option<&[u8]>, secret: &[u8]) -> Box<dyn HkdfExpander> {
        self.0.extract_from_secret(salt, secret)
    }

    fn extract_from_kx_shared_secret(
        &self,
        salt: Option<&[u8]>,
        kx: Box<dyn ActiveKeyExchange>,
        peer_pub_key: &[u8],
    ) -> Result<Box<dyn HkdfExpander>, Error> {
        self.0.extract_from_kx_shared_secret(salt, kx, peer_pub_key)
    }

    /// Of all that is derived from a secret, only a ticket's key is derived while the turn says
    /// what to do with one: a turn which does handles a ticket and nothing else.
    fn expander_for_okm(&self, okm: &OkmBlock) -> Box<dyn HkdfExpander> {
        let expander = self.0.expander_for_okm(okm);
        match with_turn(|turn| matches!(turn.psk, Psk::Derived)) {
            Some(false) => Box::new(NotingExpander(expander)),
            Some(true) | None => expander,
        }
    }

    fn hmac_sign(&self, key: &OkmBlock, message: &[u8]) -> Tag {
        self.0.hmac_sign(key, message)
    }

    fn fips(&self) -> bool {
        self.0.fips()
    }
}

struct NotingExpander(Box<dyn HkdfExpander>);

impl HkdfExpander for NotingExpander {
    fn expand_slice(&self, info: &[&[u8]], output: &mut [u8]) -> Result<(), OutputLengthError> {
        self.0.expand_slice(info, output)
    }

    fn expand_block(&self, info: &[&[u8]]) -> OkmBlock {
        let derived = self.0.expand_block(info);
        let given = with_turn(|turn| match &mut turn.psk {
            Psk::Derived => None,
            Psk::Noted(note) => {
                note.write(derived.as_ref());
                None
            }
            Psk::Given(psk) => Some(OkmBlock::new(psk.bytes())),
        });
        given.flatten().unwrap_or(derived)
    }

    fn hash_len(&self) -> usize {
        self.0.hash_len()
    }
}
