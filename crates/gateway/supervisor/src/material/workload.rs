//! What the SPIFFE agent has given: certificates by id, and authorities by trust domain. They take the places that the
//! configuration names, again after each response. Until the first one these places are empty, and refuse everybody.

use dormouse_config::{
    CertificateFiles, ClientAsk, ClientMatch, Config, Route, SpiffeCertificate, TrustDomain,
};
use dormouse_engine::{Identity, PemFile, pem_chain, spiffe_id};
use dormouse_handover::lists::RevocationList;
use dormouse_handover::{ClientTrust, OriginPem, Pem, PemContents, SecretText};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::OnceLock;

/// The beginning of the names of the agent's certificates. No file's path begins so, because paths have no two slashes in a
/// row where they are read.
const NAMED: &str = "spiffe://";

/// A response of the agent.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Workload {
    /// The id of the first certificate. `None`: the agent has not answered.
    first: Option<String>,
    /// Named by their ids.
    certificates: Vec<Pem>,
    /// PEM.
    authorities: BTreeMap<TrustDomain, String>,
}

impl Workload {
    /// That of an agent that has not answered.
    pub(crate) const fn none() -> Workload {
        Workload {
            first: None,
            certificates: Vec::new(),
            authorities: BTreeMap::new(),
        }
    }

    /// Adds a certificate, PEM. Fails if it is not of this id, or its key is another one.
    pub(crate) fn add_certificate(
        &mut self,
        id: String,
        chain: String,
        mut key: SecretText,
    ) -> Result<(), String> {
        let leaf = pem_chain(chain.as_bytes(), &id).map_err(|error| error.to_string())?;
        if leaf.first().and_then(|leaf| spiffe_id(leaf)).as_ref() != Some(&id) {
            return Err(format!("{id}: the certificate has another id"));
        }
        let pem = Pem::from(PemContents {
            name: id.clone(),
            key_name: format!("the key of {id}"),
            chain,
            ocsp: Vec::new(),
            ocsp_from_file: false,
            is_pushed: false,
            // Moved: a copy would not be wiped.
            key: std::mem::take(&mut key.0),
        });
        pem.identity().map_err(ToString::to_string)?;
        self.first.get_or_insert(id);
        self.certificates.push(pem);
        Ok(())
    }

    /// Adds the authorities of a trust domain, PEM. Fails if one cannot be an authority.
    pub(crate) fn add_authorities(&mut self, domain: &str, pem: &str) -> Result<(), String> {
        let parsed = TrustDomain::parse(domain);
        let parsed = parsed.ok_or_else(|| format!("{domain} is no trust domain"))?;
        let pem = PemFile::of(pem.as_bytes(), domain).authorities();
        let pem = pem.map_err(|error| error.to_string())?;
        self.authorities.insert(parsed, pem);
        Ok(())
    }

    /// Whether the agent has not answered.
    pub(crate) fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    /// The certificates, named by their ids, the first one first.
    pub(crate) fn certificates(&self) -> &[Pem] {
        &self.certificates
    }

    /// The trust domains whose authorities are known.
    pub(crate) fn domains(&self) -> impl Iterator<Item = &TrustDomain> {
        self.authorities.keys()
    }

    /// What the configuration names and the agent does not have.
    pub(crate) fn missing(&self, config: &Config) -> Vec<String> {
        let mut missing = Vec::new();
        let mut certificates = |files: &[CertificateFiles]| {
            for one in files {
                if one
                    .spiffe()
                    .is_some_and(|which| self.certificate(&which).is_none())
                {
                    missing.push(format!("certificate {}", one.cert.display()));
                }
            }
        };
        for route in &config.routes {
            certificates(&route.certificates);
            certificates(&route.backend_certificates);
        }
        for one in &config.originate {
            certificates(&one.certificates);
        }
        let clients = config
            .routes
            .iter()
            .filter_map(|route| route.client_ca.as_ref());
        let clients = clients.filter_map(|ca| ca.trust_domain());
        let servers = config.routes.iter().map(|route| &route.backend_ca);
        let servers = servers.chain(config.originate.iter().map(|one| &one.ca));
        let servers = servers.filter_map(|ca| ca.trust_domain());
        let unknown = clients.chain(servers);
        let unknown = unknown.filter(|domain| !self.authorities.contains_key(domain));
        missing.extend(unknown.map(|domain| format!("authorities of {domain}")));
        missing.sort();
        missing.dedup();
        missing
    }

    fn certificate(&self, which: &SpiffeCertificate) -> Option<&Pem> {
        let id = match which {
            SpiffeCertificate::First => self.first.as_ref()?,
            SpiffeCertificate::Id(id) => id,
        };
        self.certificates.iter().find(|pem| pem.name == *id)
    }

    /// The authorities of a trust domain, PEM. If they are not known: one that has signed nothing, and never will.
    pub(super) fn authorities(&self, domain: &TrustDomain) -> &str {
        match self.authorities.get(domain) {
            Some(pem) => pem,
            None => nobody(),
        }
    }

    /// Replaces the agent's certificates among those of a route. They follow those from files.
    pub(super) fn place_certificates(&self, route: &Route, pems: &mut Vec<Pem>) {
        pems.retain(|pem| !is_of_agent(pem));
        let named = route
            .certificates
            .iter()
            .filter_map(CertificateFiles::spiffe);
        pems.extend(named.filter_map(|which| self.certificate(&which).cloned()));
    }

    /// The agent's certificate for servers. `None`: the configuration names none of the agent.
    pub(super) fn own_certificate(&self, files: &[CertificateFiles]) -> Option<Option<Pem>> {
        let which = files.first()?.spiffe()?;
        Some(self.certificate(&which).cloned())
    }

    /// Fills in what an origination, or a route with TLS to its backends, has of the agent.
    pub(super) fn place_origin(
        &self,
        files: &[CertificateFiles],
        domain: Option<&TrustDomain>,
        pem: &mut OriginPem,
    ) {
        if let Some(domain) = domain {
            pem.roots = Some(self.authorities(domain).to_owned());
        }
        if let Some(own) = self.own_certificate(files) {
            pem.identity = own;
        }
    }

    /// Fills in the keys of certificates that came without them from another binary, from those that serve. Drops those that
    /// serve nowhere.
    pub(super) fn with_keys_of(mut self, serving: &[&Pem]) -> Workload {
        let with_key = |pem: Pem| {
            let same = serving
                .iter()
                .find(|one| one.name == pem.name && one.chain == pem.chain);
            same.map(|&one| one.clone())
        };
        self.certificates = self.certificates.into_iter().filter_map(with_key).collect();
        self
    }
}

/// Whether the agent has given this certificate.
pub(crate) fn is_of_agent(pem: &Pem) -> bool {
    pem.name.starts_with(NAMED)
}

/// Trust in clients with ids of a trust domain. Each certificate must have one: its authorities sign for no other domain.
pub(super) fn client_trust(
    route: &Route,
    domain: &TrustDomain,
    (roots, crls): (String, Vec<RevocationList>),
) -> ClientTrust {
    let mut allow = route.client_allow.clone();
    if allow.is_empty() {
        allow.push(ClientMatch::Uri(domain.rule()));
    }
    ClientTrust {
        required: route.client_certificates == ClientAsk::Required,
        roots,
        crls,
        allow,
    }
}

/// An authority whose key nobody has, PEM. The same as long as this process runs, so that it is no change.
fn nobody() -> &'static str {
    static NOBODY: OnceLock<String> = OnceLock::new();
    NOBODY.get_or_init(|| {
        let made = Identity::self_signed_pem("unknown-trust-domain.invalid");
        made.map(|(certificate, _)| certificate).unwrap_or_default()
    })
}
