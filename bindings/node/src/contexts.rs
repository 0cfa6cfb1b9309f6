//! Settings of servers and clients, prepared once.

use std::sync::Arc;

use dormouse_embed::{
    ClientCertificates, ClientSettings, Group, Issuers, NAMED_SUITES, NamedSuite, Protocols,
    ResumptionSettings, Reuse, Roots, SecretLog, ServerSettings, TicketSettings, TrustStore,
    UnixTime, Version, groups_by_name,
};
use napi_derive::napi;
use zeroize::Zeroizing;

use crate::errors::{self, Result};
use crate::judge::Judge;
use crate::key_log::KeyLog;

/// A certificate chain with its key.
#[napi]
pub struct Identity(dormouse_embed::Identity);

#[napi]
impl Identity {
    /// Reads a chain and its key, both PEM. What the chain lacks is taken from the trusted certificates, as in
    /// OpenSSL.
    #[napi(constructor)]
    pub fn new(certificate: &[u8], key: &[u8], trust: Option<&Trust>) -> Result<Identity> {
        let names = ("options.cert", "options.key");
        let identity = dormouse_embed::Identity::from_pem(certificate, key, names.0, names.1)
            .map_err(errors::settings)?;
        Ok(Identity(match trust {
            Some(trust) => identity.completed(&trust.issuers),
            None => identity,
        }))
    }

    /// Returns the certificates, DER, its own first.
    #[napi]
    pub fn chain(&self) -> Vec<napi::bindgen_prelude::Buffer> {
        let chain = self.0.chain();
        chain.into_iter().map(|der| der.to_vec().into()).collect()
    }
}

/// Creates a self-signed certificate for `name`: the certificate and its key, PEM.
#[napi]
pub fn self_signed(name: String) -> Result<Vec<String>> {
    let (certificate, key) =
        dormouse_embed::Identity::self_signed_pem(&name).map_err(errors::settings)?;
    Ok(vec![certificate, (*key).clone()])
}

/// Trusted certificates, parsed once.
#[napi]
pub struct Trust {
    store: TrustStore,
    issuers: Arc<Issuers>,
}

#[napi]
impl Trust {
    /// Reads a PEM bundle, in which every certificate must be usable.
    #[napi(constructor)]
    pub fn new(pem: &[u8]) -> Result<Trust> {
        let store = TrustStore::from_pem(pem).map_err(errors::settings)?;
        let issuers = Issuers::from_pem(pem, "options.ca").map_err(errors::settings)?;
        let issuers = Arc::new(issuers);
        Ok(Trust { store, issuers })
    }
}

/// Settings that servers and clients share.
#[napi(object)]
#[derive(Debug, Default)]
pub struct Settings {
    /// Oldest version: 12 or 13.
    pub oldest: u32,
    /// Newest version.
    pub newest: u32,
    /// Key exchange groups by their names in OpenSSL or IANA's registry; empty: all.
    pub groups: Vec<String>,
    /// Application protocols.
    pub alpn: Vec<String>,
    /// Whether lines for `keylog` are collected.
    pub logs_keys: bool,
    /// Whether connections can export keying material.
    pub exports_keys: bool,
}

/// The same, as the engine takes them.
struct Negotiation {
    protocols: Protocols,
    alpn: Vec<Vec<u8>>,
    groups: Vec<Group>,
    exporter: bool,
    secret_log: Option<Arc<dyn SecretLog>>,
}

impl Settings {
    fn negotiation(&self) -> Result<Negotiation> {
        Ok(Negotiation {
            protocols: self.protocols()?,
            alpn: self.alpn.iter().map(|name| latin1(name)).collect(),
            groups: groups(&self.groups)?,
            exporter: self.exports_keys,
            secret_log: self.logs_keys.then(|| Arc::new(KeyLog) as _),
        })
    }

    fn protocols(&self) -> Result<Protocols> {
        let version = |number| match number {
            12 => Ok(Version::Tls12),
            13 => Ok(Version::Tls13),
            _ => Err(errors::argument(format!(
                "{number} is not a version of TLS"
            ))),
        };
        Ok(Protocols {
            min: version(self.oldest)?,
            max: version(self.newest)?,
        })
    }
}

/// The bytes of a protocol's name; JavaScript has a character for each.
fn latin1(name: &str) -> Vec<u8> {
    name.chars().map(|one| u32::from(one) as u8).collect()
}

fn groups(names: &[String]) -> Result<Vec<Group>> {
    groups_by_name(names)
        .map_err(|unknown| errors::settings(format!("options.ecdhCurve: {unknown}")))
}

/// Settings of a server.
#[napi(object)]
pub struct ServerOptions {
    /// Whether client certificates are requested.
    pub asks: bool,
    /// Whether a client without a valid certificate is refused.
    pub rejects: bool,
    /// 48 or 80 bytes; `None`: generated keys, which rotate.
    pub ticket_keys: Option<napi::bindgen_prelude::Buffer>,
    /// Lifetime of a ticket in seconds.
    pub ticket_lifetime_s: Option<u32>,
    /// Whether sessions can be resumed.
    pub resumes: bool,
    /// OpenSSL's names of the allowed suites; empty: all.
    pub suites: Vec<String>,
    /// Revocation lists, PEM.
    pub crls: Vec<String>,
}

/// The shared context of a server's connections.
#[napi]
pub struct ServerContext {
    pub(crate) context: dormouse_embed::ServerContext,
}

#[napi]
impl ServerContext {
    /// Prepares the settings.
    #[napi(constructor)]
    pub fn new(
        identities: Vec<&Identity>,
        trust: Option<&Trust>,
        settings: Settings,
        options: ServerOptions,
    ) -> Result<ServerContext> {
        let identities = identities.into_iter().map(|one| one.0.clone()).collect();
        let Negotiation {
            protocols,
            alpn,
            groups,
            exporter,
            secret_log,
        } = settings.negotiation()?;
        let mut server = ServerSettings {
            protocols,
            alpn,
            groups,
            exporter,
            secret_log,
            ..ServerSettings::new(identities)
        };
        if !options.suites.is_empty() {
            let is_named =
                |suite: &&NamedSuite| options.suites.iter().any(|name| name == suite.openssl);
            let named = NAMED_SUITES.iter().filter(is_named);
            server.suites = named.map(|suite| suite.suite).collect();
        }
        if options.asks {
            server.client_certificates = Some(ClientCertificates {
                required: options.rejects,
                roots: trust.map_or(Vec::new(), |trust| trust.issuers.to_pem().into_bytes()),
                crls: options.crls.iter().map(|pem| crl(pem)).collect(),
                ..ClientCertificates::default()
            });
            server.judge = Some(Arc::new(Judge {
                rejects: options.rejects,
                issuers: trust.map(|trust| Arc::clone(&trust.issuers)),
            }));
        }
        server.tickets = tickets(&options)?;
        let context = dormouse_embed::ServerContext::new(server).map_err(errors::settings)?;
        if !settings.logs_keys {
            // The first connection costs no more than the thousandth.
            let warm = context.warm_up(UnixTime::now());
            warm.map_err(|failure| errors::settings(failure.reason))?;
        }
        Ok(ServerContext { context })
    }

    /// Returns the same context with one application protocol.
    #[napi]
    pub fn with_protocol(&self, name: String) -> Result<ServerContext> {
        let context = self.context.with_alpn(vec![latin1(&name)]);
        let context = context.map_err(errors::settings)?;
        Ok(ServerContext { context })
    }
}

/// A revocation list with its name for errors.
fn crl(pem: &str) -> (String, Vec<u8>) {
    ("options.crl".to_owned(), pem.as_bytes().to_vec())
}

fn tickets(options: &ServerOptions) -> Result<Option<TicketSettings>> {
    if !options.resumes {
        return Ok(None);
    }
    let mut settings = TicketSettings::default();
    if let Some(lifetime_s) = options.ticket_lifetime_s {
        settings.lifetime_s = lifetime_s;
    }
    if let Some(keys) = &options.ticket_keys {
        let keys = Zeroizing::new(keys.to_vec());
        let keys = dormouse_embed::TicketKeys::from_file(&keys, &[]).map_err(errors::settings)?;
        settings.keys = Some(keys);
    }
    Ok(Some(settings))
}

/// Settings of a client.
#[napi(object)]
pub struct ClientOptions {
    /// Whether a server without a valid certificate is refused.
    pub rejects: bool,
    /// Whether sessions are received and can be resumed.
    pub resumes: bool,
}

/// The shared context of a client's connections.
#[napi]
pub struct ClientContext {
    pub(crate) context: dormouse_embed::ClientContext,
    pub(crate) rejects: bool,
}

#[napi]
impl ClientContext {
    /// Prepares the settings.
    #[napi(constructor)]
    pub fn new(
        identity: Option<&Identity>,
        trust: &Trust,
        settings: Settings,
        options: ClientOptions,
    ) -> Result<ClientContext> {
        let roots = Roots::Store(trust.store.clone());
        let Negotiation {
            protocols,
            alpn,
            groups,
            exporter,
            secret_log,
        } = settings.negotiation()?;
        let mut client = ClientSettings {
            protocols,
            alpn,
            groups,
            exporter,
            secret_log,
            ..ClientSettings::new(roots)
        };
        client.identity = identity.map(|one| one.0.clone());
        client.judge = Some(Arc::new(Judge {
            rejects: options.rejects,
            issuers: Some(Arc::clone(&trust.issuers)),
        }));
        client.resumption = options.resumes.then(|| ResumptionSettings {
            // JavaScript keeps the sessions, and decides how often each is used.
            by_caller: Some(Reuse {
                uses_max: u32::MAX,
                age_max_s: u64::MAX,
            }),
            ..ResumptionSettings::default()
        });
        let context = dormouse_embed::ClientContext::new(client).map_err(errors::settings)?;
        let rejects = options.rejects;
        Ok(ClientContext { context, rejects })
    }
}

/// Checks that these key exchange groups are known.
#[napi]
pub fn check_groups(names: Vec<String>) -> Result<()> {
    groups(&names).map(drop)
}

/// Returns OpenSSL's names of all suites.
#[napi]
pub fn suite_names() -> Vec<String> {
    let names = NAMED_SUITES.iter().map(|suite| suite.openssl.to_owned());
    names.collect()
}
