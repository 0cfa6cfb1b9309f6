//! Client settings, checked once and made into a context that all connections share, with one parsed trust
//! store and one session store.

use std::fmt;
use std::sync::Arc;

use dormouse_record::Version;
use rustls::ClientConfig;
use rustls::SignatureScheme;
use rustls::client::{ResolvesClientCert, Resumption};
use rustls::crypto::CryptoProvider;
use rustls::sign::CertifiedKey;
use rustls_pki_types::ServerName;

use crate::call_scope::{CallerTime, in_scope};
use crate::context::settings::{Group, Protocols, check_alpn, first_shares, provider};
use crate::context::suites::{self, Suite};
use crate::handshake::secret_log::{SecretCatcher, SecretLog};
use crate::handshake::{ClientSessions, ClientSide, Handshake, HandshakeLimits};
use crate::restore::client_store::ClientStore;
use crate::restore::tls12::Tls12Restorer;
use crate::restore::tls13::Tls13Restorer;
use crate::sessions::client_session::Reuse;
use crate::sessions::group_hints::FirstShares;
use crate::sessions::memory_store::MemoryStore;
use crate::settings_error::SettingsError;
use crate::x509::facts::CertificateFacts;
use crate::x509::identity::Identity;
use crate::x509::judge_certificate::JudgeCertificate;
use crate::x509::trust::Roots;

/// TLS settings of a client.
#[derive(Debug)]
pub struct ClientSettings {
    /// Trusted certificates.
    pub roots: Roots,
    /// Enabled TLS versions.
    pub protocols: Protocols,
    /// Offered application protocols, preferred first.
    pub alpn: Vec<Vec<u8>>,
    /// Key exchange groups, preferred first.
    pub groups: Vec<Group>,
    /// Enabled cipher suites.
    pub suites: Vec<Suite>,
    /// The client's own certificate, for servers that request one.
    pub identity: Option<Identity>,
    /// Session resumption; `None`: every handshake is full.
    pub resumption: Option<ResumptionSettings>,
    /// The caller's check of server certificates, after the check against the roots.
    pub judge: Option<Arc<dyn JudgeCertificate>>,
    /// Whether connections get an [`Exporter`](crate::Exporter). TLS 1.2 then requires an extended master
    /// secret (RFC 7627 §5.4).
    pub exporter: bool,
    /// Receives the secrets of all connections.
    pub secret_log: Option<Arc<dyn SecretLog>>,
}

/// Session resumption of a client. Unless the caller stores the sessions, they are used for a day at most after the full
/// handshake, which verifies the server's certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResumptionSettings {
    /// Maximum number of sessions over all servers; those of the oldest server are dropped first.
    pub sessions_max: usize,
    /// Number of tickets that a TLS 1.3 connection waits for after a full handshake, before it drops its last
    /// library object; see [`TicketWatch`](crate::TicketWatch). After a resumed one it waits for one ticket.
    pub tickets_expected: u32,
    /// Set if the caller stores the sessions (see [`Handshake::keep_sessions`](crate::Handshake)), so that they
    /// can be shared with other processes and outlive this one. Says how often each may be reused.
    pub by_caller: Option<Reuse>,
}

impl Default for ResumptionSettings {
    fn default() -> Self {
        ResumptionSettings {
            sessions_max: 1_024,
            tickets_expected: 1,
            by_caller: None,
        }
    }
}

impl ClientSettings {
    /// Returns the defaults with these roots.
    pub fn new(roots: Roots) -> ClientSettings {
        ClientSettings {
            roots,
            protocols: Protocols::ALL,
            alpn: Vec::new(),
            groups: Group::ALL.to_vec(),
            suites: Suite::ALL.to_vec(),
            identity: None,
            resumption: Some(ResumptionSettings::default()),
            judge: None,
            exporter: false,
            secret_log: None,
        }
    }
}

/// State shared by all connections of a client. Cloning it is cheap.
#[derive(Clone)]
pub struct ClientContext {
    config: Arc<ClientConfig>,
    /// 0: tickets are not used.
    tickets_expected: u32,
    /// Whether server certificates are verified.
    judges: bool,
    /// Whether connections get an exporter.
    exporter: bool,
    /// Whether handshakes may wait for signatures that are made elsewhere.
    is_deferred: bool,
    /// Set if the caller stores the sessions.
    client_store: Option<Arc<ClientStore>>,
}

impl ClientContext {
    /// Checks the settings and prepares them, so that no connection has to parse anything.
    pub fn new(settings: ClientSettings) -> Result<ClientContext, SettingsError> {
        check_alpn(&settings.alpn)?;
        let by_caller = settings.resumption.and_then(|r| r.by_caller);
        let mut provider = suites::only(provider(&settings.groups)?, &settings.suites)?;
        drop_ml_dsa(Arc::make_mut(&mut provider));
        let verifier = settings.roots.verifier(&provider, settings.judge.clone())?;
        let builder = ClientConfig::builder_with_details(provider, Arc::new(CallerTime))
            .with_protocol_versions(&settings.protocols.supported()?)?
            .dangerous()
            .with_custom_certificate_verifier(verifier);
        let is_deferred = settings
            .identity
            .as_ref()
            .is_some_and(Identity::has_deferred_key);
        let mut config = match settings.identity {
            None => builder.with_no_client_auth(),
            Some(identity) => {
                let own = OwnCertificate(identity.certified_key());
                builder.with_client_cert_resolver(Arc::new(own))
            }
        };

        config.alpn_protocols = settings.alpn;
        config.key_log = Arc::new(SecretCatcher {
            log: settings.secret_log,
        });
        config.require_ems |= settings.exporter;
        config.enable_secret_extraction = true;
        config.enable_early_data = false;
        config.cert_compressors = Vec::new();
        config.cert_decompressors = Vec::new();
        let first_shares = FirstShares(first_shares(&settings.groups));
        let mut client_store = None;
        config.resumption = match (settings.resumption, by_caller) {
            (Some(_), Some(reuse)) => {
                let tls13_restorer = match settings.protocols.max {
                    Version::Tls13 => Some(Tls13Restorer::new(&config)?),
                    Version::Tls12 => None,
                };
                let tls12_restorer = Tls12Restorer::new(&config)?;
                let store = ClientStore::new(tls13_restorer, tls12_restorer, reuse, first_shares);
                let store = client_store.insert(Arc::new(store));
                Resumption::store(Arc::clone(store) as _)
            }
            // A session of this store can be taken only once, and a second attempt would need it again.
            (Some(_), None) if is_deferred => Resumption::disabled(),
            (Some(resumption), None) => {
                let store = MemoryStore::new(resumption.sessions_max, first_shares);
                Resumption::store(Arc::new(store))
            }
            (None, _) => Resumption::disabled(),
        };
        Ok(ClientContext {
            config: Arc::new(config),
            judges: settings.roots.judges() || settings.judge.is_some(),
            exporter: settings.exporter,
            is_deferred,
            client_store,
            tickets_expected: settings
                .resumption
                .map_or(0, |resumption| resumption.tickets_expected),
        })
    }
}

impl ClientContext {
    /// Returns the same context, except that TLS 1.2 sessions are resumed only by id, never by ticket: for
    /// finding out whether a server stores sessions.
    #[must_use]
    pub fn with_session_ids_only(&self) -> ClientContext {
        let mut config = ClientConfig::clone(&self.config);
        let ids = rustls::client::Tls12Resumption::SessionIdOnly;
        config.resumption = config.resumption.clone().tls12_resumption(ids);
        ClientContext {
            config: Arc::new(config),
            ..self.clone()
        }
    }
}

impl Handshake {
    /// Starts a handshake with the server `server_name`, a host name or an IP address. The first call of
    /// [`Handshake::handle_input`] passes no input.
    pub fn client(
        context: &ClientContext,
        server_name: &str,
        limits: HandshakeLimits,
    ) -> Result<Handshake, SettingsError> {
        let name = ServerName::try_from(server_name.to_owned())
            .map_err(|_| SettingsError::BadServerName(server_name.to_owned()))?;
        let client_store = context.client_store.clone();
        let side = ClientSide {
            server_name: server_name.to_owned(),
            tickets_expected: context.tickets_expected,
            judges: context.judges,
            sessions: client_store.map(|store| store as Arc<dyn ClientSessions>),
            ..ClientSide::default()
        };
        let config = Arc::clone(&context.config);
        let handshake = Handshake::with_client_config(config, name, limits, side);
        let handshake = handshake.keep_exporter(context.exporter);
        Ok(match context.is_deferred {
            true => handshake.keep_beginning(),
            false => handshake,
        })
    }
}

impl fmt::Debug for ClientContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientContext").finish_non_exhaustive()
    }
}

/// Removes the ML-DSA schemes, which are at the end of the list. Erlang/OTP 25 crashes when it reads them in a
/// ClientHello that resumes, and no public authority issues certificates with them.
fn drop_ml_dsa(provider: &mut CryptoProvider) {
    let algorithms = &mut provider.signature_verification_algorithms;
    let is_ml_dsa = |scheme: SignatureScheme| {
        matches!(
            scheme,
            SignatureScheme::ML_DSA_44 | SignatureScheme::ML_DSA_65 | SignatureScheme::ML_DSA_87
        )
    };
    let rest = (algorithms.mapping.iter()).position(|(scheme, _)| is_ml_dsa(*scheme));
    algorithms.mapping = rest
        .and_then(|rest| algorithms.mapping.get(..rest))
        .unwrap_or(algorithms.mapping);
}

/// Presents the client's only certificate to every server that requests one.
struct OwnCertificate(Arc<CertifiedKey>);

impl ResolvesClientCert for OwnCertificate {
    fn resolve(
        &self,
        _root_hint_subjects: &[&[u8]],
        schemes: &[SignatureScheme],
    ) -> Option<Arc<CertifiedKey>> {
        self.0.key.choose_scheme(schemes)?;
        in_scope(|facts: &mut CertificateFacts| facts.own_sent = true);
        Some(Arc::clone(&self.0))
    }

    fn has_certs(&self) -> bool {
        true
    }
}

impl fmt::Debug for OwnCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OwnCertificate")
    }
}
