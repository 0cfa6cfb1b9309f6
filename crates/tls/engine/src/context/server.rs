//! Server settings, made once into a context that all connections share.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;

use rustls::server::{
    ClientHello, NoServerSessionStorage, ResolvesServerCert, WebPkiClientVerifier,
};
use rustls::sign::CertifiedKey;
use rustls::{ServerConfig, SignatureScheme};
use rustls_pki_types::ServerName;

use crate::call_scope::{self, CallerTime, in_scope};
use crate::client_hello::first_flight::{self, host_name};
use crate::client_hello::requested::Requested;
use crate::context::choose_identity::ChooseIdentity;
use crate::context::settings::{Group, Protocols, check_alpn, provider};
use crate::context::suites::{self, Suite};
use crate::failure::NoCertificate;
use crate::handshake::secret_log::{SecretCatcher, SecretLog};
use crate::handshake::{Handshake, HandshakeLimits};
use crate::sessions::client_session::digest;
use crate::sessions::refusal::{NAMES_LEN, ServerResumption};
use crate::sessions::server_sessions::ServerSessions;
use crate::sessions::server_store::SealedStore;
use crate::sessions::tickets::{TicketKeys, TicketSettings, Ticketer};
use crate::settings_error::SettingsError;
use crate::x509::client_auth::{ClientAuth, ClientCertificates, ClientVerifier};
use crate::x509::facts::CertificateFacts;
use crate::x509::identity::{Algorithms, Identity, Stapled};
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

/// What happens if a client sends no server name, or one that no certificate covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum UnknownName {
    /// The first certificate that the client can use.
    #[default]
    Default,
    /// The alert unrecognized_name (RFC 6066 §3); missing_extension without a name
    /// (RFC 8446 §9.2).
    Refuse,
    /// The alert unrecognized_name for a name that no certificate covers; the first certificate for a client that
    /// sends none.
    RefuseNamed,
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

/// State shared by all connections of a server. Cloning it is cheap.
#[derive(Clone)]
pub struct ServerContext {
    pub(crate) config: Arc<ServerConfig>,
    /// A name that this server has a certificate for, used by the warm-up.
    pub(crate) own_name: String,
    ticketer: Option<Arc<Ticketer>>,
    certificates: Arc<Certificates>,
    /// Whether connections get an exporter.
    exporter: bool,
    client_auth: Option<Arc<ClientAuth>>,
    /// Whether handshakes may wait for signatures that are made elsewhere.
    is_deferred: bool,
}

impl ServerContext {
    /// Checks the settings and prepares them, so that no connection has to parse anything.
    pub fn new(settings: ServerSettings) -> Result<ServerContext, SettingsError> {
        let no_identity = settings.identities.is_empty() && settings.awaited.is_empty();
        if no_identity && settings.chooser.is_none() {
            return Err(SettingsError::NoIdentity);
        }
        check_alpn(&settings.alpn)?;
        let provider = suites::only(provider(&settings.groups)?, &settings.suites)?;
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
        let own_name = own_name(&settings.identities);
        let is_deferred = settings.identities.iter().any(Identity::has_deferred_key);
        let mut certificates = Certificates::new(&settings.identities, settings.unknown_name);
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
        let ticketer = match settings.tickets {
            None => None,
            Some(tickets) => {
                tickets.check()?;
                let ticketer = Arc::new(Ticketer::new(&tickets, client_auth.clone())?);
                let beside_tickets = settings.sessions.is_none();
                if beside_tickets {
                    config.ticketer = Arc::clone(&ticketer) as _;
                }
                if let Some(store) = settings.sessions.or(settings.sessions_by_id) {
                    config.session_storage = Arc::new(SealedStore {
                        ticketer: Arc::clone(&ticketer),
                        store,
                        beside_tickets,
                    });
                }
                config.send_tls13_tickets = tickets.per_handshake;
                Some(ticketer)
            }
        };
        Ok(ServerContext {
            config: Arc::new(config),
            own_name,
            ticketer,
            certificates,
            exporter: settings.exporter,
            client_auth,
            is_deferred,
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

    /// Returns which clients' standings are still good; `None` if clients are asked for no certificate.
    pub fn standings(&self) -> Option<&ClientStandings> {
        self.client_auth.as_deref().map(ClientAuth::standings)
    }

    /// Returns the SHA-256 digest of each certificate, and its names in lower case.
    pub fn certificates(&self) -> impl Iterator<Item = ([u8; 32], &[String])> {
        let all = self.certificates.all.iter();
        all.map(|one| (one.fingerprint, one.names.as_slice()))
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

/// Returns a host name that an identity covers, or an invalid name if there is none.
fn own_name(identities: &[Identity]) -> String {
    let names = identities.iter().flat_map(Identity::names);
    let hosts = names.filter(|name| name.parse::<std::net::IpAddr>().is_err());
    let good = |name: &String| ServerName::try_from(name.as_str()).is_ok();
    let mut hosts = hosts
        .map(|name| name.replacen('*', "warm-up", 1))
        .filter(good);
    hosts.next().unwrap_or_else(|| "warm-up.invalid".to_owned())
}

/// The protocol of the ACME challenge for domain validation (RFC 8737 §6.2). It carries no data.
pub const ACME_TLS: &[u8] = b"acme-tls/1";

/// A certificate, with and without its stapled OCSP response.
struct OfferedCertificate {
    bare: Arc<CertifiedKey>,
    stapled: Option<Stapled>,
    algorithms: Arc<Algorithms>,
    fingerprint: [u8; 32],
    /// First and last second of validity, in Unix time.
    validity_s: RangeInclusive<u64>,
    /// In lower case, sorted.
    names: Vec<String>,
    names_digest: [u8; NAMES_LEN],
}

impl OfferedCertificate {
    fn new(identity: &Identity) -> OfferedCertificate {
        let names = identity.names().iter();
        let mut names: Vec<String> = names.map(|name| name.to_ascii_lowercase()).collect();
        names.sort();
        let parts: Vec<&[u8]> = names.iter().map(String::as_bytes).collect();
        let names_digest = digest(&parts).first_chunk().copied().unwrap_or_default();
        OfferedCertificate {
            bare: identity.certified_key(),
            stapled: identity.stapled(),
            algorithms: identity.algorithms(),
            fingerprint: identity.fingerprint(),
            validity_s: identity.begins_at_s()..=identity.expires_at_s(),
            names,
            names_digest,
        }
    }

    /// Returns the certificate as it is presented now, if the client accepts its signature. `name` is that of the session.
    fn fitting(&self, name: &str, schemes: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        let signer = self.bare.key.choose_scheme(schemes)?;
        in_scope(|facts: &mut CertificateFacts| {
            facts.signature = Some(signer.scheme());
            facts.algorithms = Some(Arc::clone(&self.algorithms));
            facts.fingerprint = Some(self.fingerprint);
        });
        self.bind_session(name);
        Some(self.now())
    }

    /// Returns the certificate for a client that cannot use it: given any certificate, rustls sends the right
    /// alert.
    fn unfitting(&self, name: &str) -> Arc<CertifiedKey> {
        self.bind_session(name);
        Arc::clone(&self.bare)
    }

    /// Binds the session of the current connection to this certificate. If the certificate covers the requested
    /// name, the name is enough. Otherwise the client accepted the certificate for another reason, so its session
    /// belongs to the names that the certificate has.
    ///
    /// Without this, a client whose connection is diverted to another address of this server, or to another
    /// machine with the same ticket keys, would resume there, although it would refuse that certificate.
    fn bind_session(&self, name: &str) {
        let names = match self.covers(name) {
            true => [0; NAMES_LEN],
            false => self.names_digest,
        };
        in_scope(|resumption: &mut ServerResumption| resumption.certificate_names = names);
    }

    /// Whether the certificate covers this name; a wildcard stands for one label (RFC 6125 §6.4.3).
    fn covers(&self, name: &str) -> bool {
        // In every handshake: a certificate may have thousands of names.
        let wildcard = || "*.".bytes().chain(parent(name).bytes());
        let exact = |own: &String| own.as_str().cmp(name);
        self.names.binary_search_by(exact).is_ok()
            || self
                .names
                .binary_search_by(|own| own.bytes().cmp(wildcard()))
                .is_ok()
    }

    /// Returns the certificate as it is presented now: stapled while the OCSP response is valid.
    fn now(&self) -> Arc<CertifiedKey> {
        let now_s = call_scope::now().map_or(u64::MAX, |now| now.as_secs());
        match &self.stapled {
            Some(stapled) if now_s < stapled.until_s => Arc::clone(&stapled.certified),
            _ => Arc::clone(&self.bare),
        }
    }
}

/// Chooses a certificate by the requested name and the signatures that the client accepts.
struct CertificateChoice {
    certificates: Arc<Certificates>,
    /// Our application protocols, preferred first.
    alpn: Vec<Vec<u8>>,
}

/// The certificates of a context.
struct Certificates {
    all: Vec<OfferedCertificate>,
    exact: HashMap<String, Vec<usize>>,
    /// Keyed by the part after `*.`.
    wildcard: HashMap<String, Vec<usize>>,
    unknown_name: UnknownName,
    /// In lower case.
    awaited: HashSet<String>,
    /// Consulted before the other certificates.
    chooser: Option<Arc<dyn ChooseIdentity>>,
}

impl Certificates {
    fn new(identities: &[Identity], unknown_name: UnknownName) -> Certificates {
        let mut choice = Certificates {
            all: Vec::new(),
            exact: HashMap::new(),
            wildcard: HashMap::new(),
            unknown_name,
            awaited: HashSet::new(),
            chooser: None,
        };
        for (index, identity) in identities.iter().enumerate() {
            let offered = OfferedCertificate::new(identity);
            for name in &offered.names {
                let (names, key) = match name.strip_prefix("*.") {
                    Some(parent) => (&mut choice.wildcard, parent),
                    None => (&mut choice.exact, name.as_str()),
                };
                names.entry(key.to_owned()).or_default().push(index);
            }
            choice.all.push(offered);
        }
        choice
    }

    /// Returns candidates in order of preference: certificates for this name, then all others, the default first. Of
    /// both, those that are not valid now are last: a renewed certificate may have another file than the expired one.
    fn candidates<'a>(
        &'a self,
        name: &str,
        now_s: u64,
    ) -> impl Iterator<Item = &'a OfferedCertificate> + use<'a> {
        let all = if self.refuses(name) {
            0
        } else {
            self.all.len()
        };
        let for_name = self.timely_first(self.for_name(name), now_s);
        for_name.chain(self.timely_first(0..all, now_s))
    }

    fn timely_first(
        &self,
        indices: impl Iterator<Item = usize> + Clone,
        now_s: u64,
    ) -> impl Iterator<Item = &OfferedCertificate> {
        let all = indices.filter_map(|index| self.all.get(index));
        let is_timely = move |one: &&OfferedCertificate| one.validity_s.contains(&now_s);
        let rest = all.clone().filter(move |one| !is_timely(one));
        all.filter(is_timely).chain(rest)
    }

    /// Certificates for exactly this name, then wildcards for it (one label, RFC 6125 §6.4.3).
    fn for_name<'a>(&'a self, name: &str) -> impl Iterator<Item = usize> + Clone + use<'a> {
        let exact = listed(&self.exact, name).iter();
        exact.chain(listed(&self.wildcard, parent(name))).copied()
    }

    /// Returns the reason for presenting no certificate, if there is one.
    fn no_certificate(&self, name: &str) -> Option<NoCertificate> {
        // A certificate covers it.
        if self.for_name(name).next().is_some() {
            return None;
        }
        let is_awaited = || {
            let wildcard = format!("*.{}", parent(name));
            self.awaited.contains(name) || self.awaited.contains(&wildcard)
        };
        if self.all.is_empty() || is_awaited() {
            return Some(NoCertificate::Awaited);
        }
        self.refuses(name).then_some(NoCertificate::UnknownName)
    }

    /// Returns whether a client whose name no certificate covers is refused; the name is empty if it sends none.
    fn refuses(&self, name: &str) -> bool {
        match self.unknown_name {
            UnknownName::Default => false,
            UnknownName::Refuse => true,
            UnknownName::RefuseNamed => !name.is_empty(),
        }
    }

    /// Returns the identity that the caller's hook chooses.
    fn chosen(&self, hello: &ClientHello<'_>, name: Option<String>) -> Option<Identity> {
        let chooser = self.chooser.as_ref()?;
        chooser.choose_identity(&first_flight::ClientHello {
            server_name: name,
            alpn: (hello.alpn().into_iter().flatten())
                .map(<[u8]>::to_vec)
                .collect(),
        })
    }
}

/// Returns the name without its first label, which a wildcard stands for.
fn parent(name: &str) -> &str {
    name.split_once('.').map_or("", |(_, parent)| parent)
}

fn listed<'a>(names: &'a HashMap<String, Vec<usize>>, name: &str) -> &'a [usize] {
    names.get(name).map_or(&[], Vec::as_slice)
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
        let any = certificates.all.get(any);
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
