//! Server settings, made once into a context that all connections share.

use std::fmt;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use dormouse_record::Version;
use rustls::server::{
    ClientHello, NoServerSessionStorage, ResolvesServerCert, WebPkiClientVerifier,
};
use rustls::sign::CertifiedKey;
use rustls::{NamedGroup, ServerConfig};

use crate::call_scope::{self, CallerTime, in_scope};
use crate::client_hello::first_flight::host_name;
use crate::client_hello::key_share::ClientShare;
use crate::client_hello::requested::Requested;
use crate::context::certificates::{
    Certificates, OfferedCertificate, OfferedIdentity, RetiredCertificates, UnknownName,
};
use crate::context::choose_identity::ChooseIdentity;
use crate::context::settings::{Group, Protocols, check_alpn, provider};
use crate::context::suites::{self, Suite};
use crate::failure::NoCertificate;
use crate::handshake::secret_log::{SecretCatcher, SecretLog};
use crate::handshake::{Handshake, HandshakeLimits};
use crate::sessions::server_sessions::ServerSessions;
use crate::sessions::server_store::SealedStore;
use crate::sessions::tickets::{TicketKeyring, TicketKeys, TicketSettings, Ticketer};
use crate::settings_error::SettingsError;
use crate::x509::client_auth::{ClientAuth, ClientCertificates, ClientVerifier};
use crate::x509::identity::Identity;
use crate::x509::judge_certificate::JudgeCertificate;
use crate::x509::standing::ClientStandings;

/// TLS settings of a server.
#[derive(Debug)]
pub struct ServerSettings {
    /// Certificates with their keys. The first is the default for clients that send no server name, or one that
    /// no certificate covers.
    pub identities: Vec<Identity>,
    /// Enabled TLS versions.
    pub protocols: Protocols,
    /// Application protocols, preferred first; empty: the server does not use ALPN.
    pub alpn: Vec<Vec<u8>>,
    /// Key exchange groups, preferred first.
    pub groups: Vec<Group>,
    /// Enabled cipher suites; the client's order decides among them.
    pub suites: Vec<Suite>,
    /// Session tickets; `None`: no resumption.
    pub tickets: Option<TicketSettings>,
    /// The keys of `tickets`, if other contexts share them. `None`: those in `tickets`.
    pub ticket_keyring: Option<TicketKeyring>,
    /// Where sessions are stored, if not in the tickets: each TLS 1.3 ticket then works once, and TLS 1.2 uses
    /// session ids.
    pub sessions: Option<Arc<dyn ServerSessions>>,
    /// Where TLS 1.2 sessions are stored for clients without ticket support, if other clients keep theirs in
    /// tickets.
    pub sessions_by_id: Option<Arc<dyn ServerSessions>>,
    /// Client certificates; `None`: none are requested.
    pub client_certificates: Option<ClientCertificates>,
    /// The verifier of `client_certificates`, from [`ClientCertificates::verifier`], if other contexts share it; its
    /// revocation lists count. `None`: this context parses authorities and lists itself.
    pub client_verifier: Option<ClientVerifier>,
    /// What happens if no certificate covers the requested name.
    pub unknown_name: UnknownName,
    /// Names whose certificates are not issued yet. A client that requests one of them is refused, unless
    /// another certificate covers the name. If this is not empty, `identities` may be.
    pub awaited: Vec<String>,
    /// Chooses certificates before `identities` is consulted. If it is set, `identities` may be empty.
    pub chooser: Option<Arc<dyn ChooseIdentity>>,
    /// The caller's check of client certificates, after the check against the roots.
    pub judge: Option<Arc<dyn JudgeCertificate>>,
    /// Whether connections get an [`Exporter`](crate::Exporter). TLS 1.2 then requires an extended master
    /// secret (RFC 7627 §5.4).
    pub exporter: bool,
    /// Receives the secrets of all connections.
    pub secret_log: Option<Arc<dyn SecretLog>>,
}

impl ServerSettings {
    /// Returns the defaults with these certificates.
    pub fn new(identities: Vec<Identity>) -> ServerSettings {
        ServerSettings {
            identities,
            protocols: Protocols::ALL,
            alpn: Vec::new(),
            groups: Group::ALL.to_vec(),
            suites: Suite::ALL.to_vec(),
            tickets: Some(TicketSettings::default()),
            ticket_keyring: None,
            sessions: None,
            sessions_by_id: None,
            client_certificates: None,
            client_verifier: None,
            unknown_name: UnknownName::Default,
            awaited: Vec::new(),
            chooser: None,
            judge: None,
            exporter: false,
            secret_log: None,
        }
    }
}

/// Sets what is the same for all servers. Without tickets, no session is stored.
fn set_fixed(config: &mut ServerConfig) {
    config.enable_secret_extraction = true;
    // No data structure of rustls grows with the number of sessions.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    // Both features stay off. 0-RTT can be replayed (RFC 8446 §8); data before the client's Finished would
    // make the sequence number at rest depend on the backend.
    config.max_early_data_size = 0;
    config.send_half_rtt_data = false;
    config.cert_compressors = Vec::new();
    config.cert_decompressors = Vec::new();
}

/// Sets what tickets and stored sessions need. `stores`: in place of tickets, and beside them.
fn set_tickets(
    config: &mut ServerConfig,
    tickets: &TicketSettings,
    keyring: Option<TicketKeyring>,
    [sessions, sessions_by_id]: [Option<Arc<dyn ServerSessions>>; 2],
    client_auth: Option<Arc<ClientAuth>>,
) -> Result<Arc<Ticketer>, SettingsError> {
    tickets.check()?;
    let ticketer = Arc::new(Ticketer::new(tickets, keyring, client_auth)?);
    let beside_tickets = sessions.is_none();
    if beside_tickets {
        config.ticketer = Arc::clone(&ticketer) as _;
    }
    if let Some(store) = sessions.or(sessions_by_id) {
        config.session_storage = Arc::new(SealedStore {
            ticketer: Arc::clone(&ticketer),
            store,
            beside_tickets,
        });
    }
    config.send_tls13_tickets = tickets.per_handshake;
    Ok(ticketer)
}

/// See [`ServerContext::kind`].
fn kind_of(settings: &ServerSettings, certificates: &Certificates) -> u64 {
    let mut digest = DefaultHasher::new();
    (settings.protocols, &settings.groups, &settings.suites).hash(&mut digest);
    (&settings.alpn, settings.exporter).hash(&mut digest);
    settings.client_certificates.is_some().hash(&mut digest);
    settings.tickets.is_some().hash(&mut digest);
    (
        settings.sessions.is_some(),
        settings.sessions_by_id.is_some(),
    )
        .hash(&mut digest);
    certificates.key_kind().hash(&mut digest);
    digest.finish()
}

/// State shared by all connections of a server. Cloning it is cheap.
#[derive(Clone)]
pub struct ServerContext {
    pub(crate) config: Arc<ServerConfig>,
    /// A name that this server has a certificate for, used by the warm-up.
    pub(crate) own_name: String,
    /// Digest of the settings that a handshake depends on, used by the warm-up.
    kind: u64,
    ticketer: Option<Arc<Ticketer>>,
    certificates: Arc<Certificates>,
    /// Whether connections get an exporter.
    exporter: bool,
    client_auth: Option<Arc<ClientAuth>>,
    /// Whether handshakes may wait for signatures that are made elsewhere.
    is_deferred: bool,
    /// The groups of TLS 1.3; none, if it is disabled.
    groups: Arc<[NamedGroup]>,
}

impl ServerContext {
    /// Checks the settings and prepares them, so that no connection has to parse anything.
    pub fn new(mut settings: ServerSettings) -> Result<ServerContext, SettingsError> {
        let mut certificates = Certificates::new();
        for identity in std::mem::take(&mut settings.identities) {
            certificates.add(&OfferedIdentity::new(&identity));
        }
        ServerContext::with_certificates(settings, certificates)
    }

    /// As [`ServerContext::new`], with these certificates in place of `identities`.
    pub fn with_certificates(
        settings: ServerSettings,
        mut certificates: Certificates,
    ) -> Result<ServerContext, SettingsError> {
        let no_identity = certificates.is_empty() && settings.awaited.is_empty();
        if no_identity && settings.chooser.is_none() {
            return Err(SettingsError::NoIdentity);
        }
        check_alpn(&settings.alpn)?;
        let kind = kind_of(&settings, &certificates);
        let provider = suites::only(provider(&settings.groups)?, &settings.suites)?;
        let groups = match settings.protocols.max {
            Version::Tls13 => settings.groups.iter().map(|group| group.id()).collect(),
            Version::Tls12 => [].into(),
        };
        let time = Arc::new(CallerTime);
        let client_auth = match &settings.client_certificates {
            Some(asked) => {
                let (shared, judge) = (settings.client_verifier, settings.judge.clone());
                Some(Arc::new(ClientAuth::new(asked, shared, &provider, judge)?))
            }
            None => None,
        };
        let verifier = match &client_auth {
            Some(client_auth) => Arc::clone(client_auth) as _,
            None => WebPkiClientVerifier::no_client_auth(),
        };
        let own_name = certificates.own_name();
        let is_deferred = certificates.has_deferred_key;
        certificates.unknown_name = settings.unknown_name;
        certificates.awaited = settings.awaited.into_iter().collect();
        certificates.chooser = settings.chooser;
        let certificates = Arc::new(certificates);
        let choice = CertificateChoice {
            certificates: Arc::clone(&certificates),
            alpn: settings.alpn.clone(),
        };
        let mut config = ServerConfig::builder_with_details(provider, time)
            .with_protocol_versions(&settings.protocols.supported()?)?
            .with_client_cert_verifier(verifier)
            .with_cert_resolver(Arc::new(choice));

        config.alpn_protocols = settings.alpn;
        config.key_log = Arc::new(SecretCatcher {
            log: settings.secret_log,
        });
        config.require_ems |= settings.exporter;
        set_fixed(&mut config);
        let stores = [settings.sessions, settings.sessions_by_id];
        let ticketer = settings.tickets.map(|tickets| {
            let auth = client_auth.clone();
            set_tickets(&mut config, &tickets, settings.ticket_keyring, stores, auth)
        });
        let ticketer = ticketer.transpose()?;
        Ok(ServerContext {
            config: Arc::new(config),
            own_name,
            kind,
            ticketer,
            certificates,
            exporter: settings.exporter,
            client_auth,
            is_deferred,
            groups,
        })
    }

    /// Returns the same context with other application protocols, for programs that choose them per connection.
    /// Nothing is parsed again.
    pub fn with_alpn(&self, alpn: Vec<Vec<u8>>) -> Result<ServerContext, SettingsError> {
        check_alpn(&alpn)?;
        let mut config = ServerConfig::clone(&self.config);
        config.cert_resolver = Arc::new(CertificateChoice {
            certificates: Arc::clone(&self.certificates),
            alpn: alpn.clone(),
        });
        config.alpn_protocols = alpn;
        Ok(ServerContext {
            config: Arc::new(config),
            ..self.clone()
        })
    }

    /// Returns the same number for contexts whose handshakes differ in names and keys only.
    pub fn kind(&self) -> u64 {
        self.kind
    }

    /// Returns which clients' standings are still good; `None` if clients are asked for no certificate.
    pub fn standings(&self) -> Option<&ClientStandings> {
        self.client_auth.as_deref().map(ClientAuth::standings)
    }

    /// Returns the SHA-256 digest of each certificate, and its names in lower case.
    pub fn certificates(&self) -> impl Iterator<Item = ([u8; 32], &[String])> {
        self.certificates.described()
    }

    /// Returns the certificates, to be released after all clones of this context.
    pub fn retired(&self) -> RetiredCertificates {
        RetiredCertificates(Arc::clone(&self.certificates))
    }

    /// Predicts from a client's first bytes for which of its shares the handshake will need an agreement, if X25519 makes
    /// it.
    pub fn x25519_share(&self, first: &[u8]) -> Option<ClientShare> {
        ClientShare::of(first, &self.groups)
    }

    /// Installs new ticket keys in this context and all its clones.
    pub fn replace_ticket_keys(&self, keys: &TicketKeys) -> Result<(), SettingsError> {
        match &self.ticketer {
            Some(ticketer) => ticketer.replace_keys(keys),
            None => Ok(()),
        }
    }
}

impl Handshake {
    /// Starts a handshake with a client that has just connected.
    pub fn server(context: &ServerContext, limits: HandshakeLimits) -> Handshake {
        let handshake = Handshake::with_server_config(Arc::clone(&context.config), limits);
        let handshake = handshake.keep_exporter(context.exporter);
        match context.is_deferred {
            true => handshake.keep_beginning(),
            false => handshake,
        }
    }
}

impl fmt::Debug for ServerContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerContext").finish_non_exhaustive()
    }
}

/// The protocol of the ACME challenge for domain validation (RFC 8737 §6.2). It carries no data.
pub const ACME_TLS: &[u8] = b"acme-tls/1";

/// Chooses a certificate by the requested name and the signatures that the client accepts.
struct CertificateChoice {
    certificates: Arc<Certificates>,
    /// Our application protocols, preferred first.
    alpn: Vec<Vec<u8>>,
}

impl ResolvesServerCert for CertificateChoice {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        // rustls chooses the application protocol only after the session, which must match it.
        let alpn = hello.alpn().and_then(|offered| {
            let offered: Vec<&[u8]> = offered.collect();
            let ours = self.alpn.iter();
            ours.into_iter()
                .find(|ours| offered.contains(&ours.as_slice()))
        });
        let names = in_scope(|requested: &mut Requested| {
            requested.alpn = alpn.cloned();
            requested.server_name = match &requested.odd_name {
                Some(odd) => odd.text.clone(),
                None => hello.server_name().map(str::to_owned),
            };
            let wanted = requested.server_name.as_deref().map(host_name);
            let of_session = requested.session_name().map(host_name);
            (wanted, of_session.unwrap_or_default())
        });
        let (wanted, of_session) = names.unwrap_or_default();
        // Certificates are found by it; empty without SNI.
        let name = wanted.clone().unwrap_or_default();
        let now_s = call_scope::now().map(|now| now.as_secs());
        let certificates = &*self.certificates;
        // rustls has already removed the schemes that do not match the offered suites.
        let schemes = hello.signature_schemes();
        if let Some(identity) = certificates.chosen(&hello, wanted) {
            let chosen = OfferedCertificate::new(&identity);
            let fitting = chosen.fitting(&of_session, schemes);
            return fitting.or_else(|| Some(chosen.unfitting(&of_session)));
        }
        if let Some(why) = self
            .challenge(&hello)
            .or_else(|| certificates.no_certificate(&name))
        {
            in_scope(|requested: &mut Requested| requested.no_certificate = Some(why));
            return None;
        }
        let mut candidates = certificates.candidates(&name, now_s.unwrap_or_default());
        let fitting = candidates.find_map(|candidate| candidate.fitting(&of_session, schemes));
        if fitting.is_some() {
            return fitting;
        }
        let any = certificates.for_name(&name).next().unwrap_or(0);
        let any = certificates.get(any);
        any.map(|shown| shown.unfitting(&of_session))
    }
}

impl CertificateChoice {
    /// Whether the client only wants to validate an ACME challenge, and none is pending.
    fn challenge(&self, hello: &ClientHello<'_>) -> Option<NoCertificate> {
        let mut offered = hello.alpn().into_iter().flatten();
        let only = offered.next() == Some(ACME_TLS) && offered.next().is_none();
        let ours = self.alpn.iter().any(|ours| ours == ACME_TLS);
        (only && !ours).then_some(NoCertificate::Challenge)
    }
}

impl fmt::Debug for CertificateChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CertificateChoice").finish_non_exhaustive()
    }
}
