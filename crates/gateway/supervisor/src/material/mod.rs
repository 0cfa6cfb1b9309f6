//! Certificates, keys and CAs: read by main, and checked against each other before anything starts.
//!
//! ```text
//!   contents      what was read, as main keeps it
//!   certificates  certificates for clients      trust  CAs that routes and originations trust
//!   former        what serves is not lost       files  which files a configuration names
//!   acme          files from ACME servers
//!   pair          one certificate with its key       pushed  those from an administrator
//!   workload      from a SPIFFE agent
//!   key_mode      keys that other users can read     layouts  which files of a directory are pairs
//! ```

pub(crate) mod acme;
mod certificates;
mod contents;
pub(crate) mod directories;
mod directory;
mod files;
pub(crate) mod findings;
mod former;
mod key_mode;
mod layouts;
mod pair;
mod pushed;
mod trust;
pub(crate) mod workload;

pub(crate) use contents::{Certificates, Material, OfHelpers};
pub(crate) use files::can_write_into;
pub(crate) use former::{Changes, Former};
pub(crate) use pushed::{Pushed, RouteCertificates};
pub(crate) use trust::{authorities, authorities_of, certificates_of_helpers};

use crate::material::findings::Findings;
use crate::material::workload::Workload;
use dormouse_config::{Ca, CertificateFiles, Config, Place, Route};
use dormouse_handover::Pem;
use dormouse_handover::parts::MATERIAL_BYTES_MAX;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

impl Material {
    /// Reads everything. The result is valid only if no error was found. Self-signed certificates and OCSP responses that
    /// serve are reused.
    pub(crate) fn load(
        config: &Config,
        former: &Former<'_>,
        findings: &mut Findings,
    ) -> (Material, Changes) {
        let mut changes = Changes::default();
        let workload = former.workload();
        let material = Material {
            certificates: certificates::load(config, former, findings, &mut changes),
            client_trust: trust::load_client_trust(config, workload, findings),
            workload: workload.clone(),
            origins: trust::load_origins(config, former, findings, &mut changes),
            backend_tls: trust::load_backend_tls(config, former, findings, &mut changes),
            of_helpers: trust::load_of_helpers(config, former, findings, &mut changes),
        };
        let bytes = material.bytes();
        if bytes > MATERIAL_BYTES_MAX {
            let what = format!(
                "certificates and revocation lists of all routes have {} MiB together; at most {} MiB are allowed\nlet fewer routes read the large files: each route counts its own authorities",
                bytes >> 20,
                MATERIAL_BYTES_MAX >> 20
            );
            findings.error(Place::Whole, what);
        }
        (material, changes)
    }

    /// This material with what the SPIFFE agent has given now.
    pub(crate) fn with_workload(&self, config: &Config, workload: Workload) -> Material {
        let mut material = self.clone();
        for (route, pems) in config.routes.iter().zip(&mut material.certificates) {
            workload.place_certificates(route, pems);
        }
        for (route, trust) in config.routes.iter().zip(&mut material.client_trust) {
            let domain = route.client_ca.as_ref().and_then(|ca| ca.trust_domain());
            if let (Some(domain), Some(trust)) = (domain, trust) {
                trust.roots = workload.authorities(domain).to_owned();
            }
        }
        for (one, pem) in config.originate.iter().zip(&mut material.origins) {
            workload.place_origin(&one.certificates, one.ca.trust_domain(), pem);
        }
        for (route, pem) in config.routes.iter().zip(&mut material.backend_tls) {
            if let Some(pem) = pem {
                let domain = route.backend_ca.trust_domain();
                workload.place_origin(&route.backend_certificates, domain, pem);
            }
        }
        material.workload = workload;
        material
    }

    /// This material, which another binary has left, with what the agent had given that: it is in its places, and only the
    /// keys are missing.
    pub(crate) fn taken_over_with(self, workload: &Workload) -> Material {
        let origins = self.origins.iter();
        let origins = origins.chain(self.backend_tls.iter().flatten());
        let own = origins.filter_map(|origin| origin.identity.as_ref());
        let serving: Vec<&Pem> = self.certificates.iter().flatten().chain(own).collect();
        let workload = workload.clone().with_keys_of(&serving);
        Material { workload, ..self }
    }

    /// Reads the files again with the same configuration. What cannot be read stays as it is.
    pub(crate) fn renew(
        &self,
        config: &Config,
        was_there: &dyn Fn(&str) -> bool,
    ) -> (Material, Changes) {
        let former = Former::of(self, was_there);
        let mut changes = Changes::default();
        let certificates = certificates::renew(config, &former, &mut changes);
        let current = &self.client_trust;
        let client_trust = trust::renew_client_trust(config, &self.workload, current, &mut changes);
        if client_trust != self.client_trust {
            changes
                .new
                .push("client CAs or revocation lists".to_owned());
        }
        let origins = trust::renew_origins(config, &former, &self.origins, &mut changes);
        let backend_tls =
            trust::renew_backend_tls(config, &former, &self.backend_tls, &mut changes);
        let of_helpers = trust::renew_of_helpers(config, &former, &self.of_helpers, &mut changes);
        if of_helpers != self.of_helpers
            || origins != self.origins
            || backend_tls != self.backend_tls
        {
            changes
                .new
                .push("certificates or CAs for servers".to_owned());
        }
        let material = Material {
            certificates,
            client_trust,
            origins,
            backend_tls,
            of_helpers,
            workload: self.workload.clone(),
        };
        (material, changes)
    }
}

/// The files that main watches for changes: certificates and keys, CAs, revocation lists, and the directories of these
/// files.
pub(crate) fn watched(config: &Config) -> Vec<PathBuf> {
    let mut all = Vec::new();
    let certificates = config.routes.iter().flat_map(|route| &route.certificates);
    let certificates = certificates.filter(|one| one.spiffe().is_none());
    let distinct: BTreeSet<&CertificateFiles> = certificates.collect();
    all.extend(distinct.into_iter().flat_map(files::watched));
    for route in &config.routes {
        let names = route.acme.iter();
        all.extend(names.map(|name| acme::file_of(config, name.as_str())));
    }
    let lists = lists_for_servers(config).map(PathBuf::as_path);
    for path in trust_in_clients(config).chain(lists) {
        all.push(path.to_owned());
        all.extend(files::files_of(path, "file").unwrap_or_default());
    }
    for (certificates, ca) in of_client(config) {
        let of_files = certificates.iter().filter(|one| one.spiffe().is_none());
        all.extend(of_files.flat_map(files::watched));
        all.extend(ca.cloned());
    }
    // To compare tens of thousands of paths part by part takes long.
    all.sort_unstable_by(|one, other| one.as_os_str().cmp(other.as_os_str()));
    all.dedup_by(|one, other| one.as_os_str() == other.as_os_str());
    all
}

/// Whether the configuration names a file to watch.
pub(crate) fn has_watched(config: &Config) -> bool {
    let of_route = |route: &Route| {
        !route.certificates.is_empty() || !route.acme.is_empty() || route.client_ca.is_some()
    };
    let has_lists = lists_for_servers(config).next().is_some();
    let of_client =
        |(certificates, ca): (&[_], Option<_>)| !certificates.is_empty() || ca.is_some();
    has_lists || config.routes.iter().any(of_route) || self::of_client(config).any(of_client)
}

/// The CAs and revocation lists for clients' certificates, files or directories.
fn trust_in_clients(config: &Config) -> impl Iterator<Item = &Path> {
    let routes = config.routes.iter();
    routes.flat_map(|route| {
        let ca = route.client_ca.as_ref().and_then(|ca| ca.files());
        ca.into_iter()
            .chain(route.client_crl.iter().map(PathBuf::as_path))
    })
}

/// The revocation lists for servers' certificates, files or directories.
fn lists_for_servers(config: &Config) -> impl Iterator<Item = &PathBuf> {
    let routes = config.routes.iter().filter(|route| route.backend_tls);
    let of_routes = routes.flat_map(|route| &route.backend_crl);
    of_routes.chain(config.originate.iter().flat_map(|one| &one.crl))
}

/// The certificates that Dormouse shows as a client, and the files of CAs for servers' certificates: of originations, of
/// routes with TLS to their backends, and of helpers, which read their CAs when they start.
fn of_client(config: &Config) -> impl Iterator<Item = (&[CertificateFiles], Option<&PathBuf>)> {
    fn file(ca: &Ca) -> Option<&PathBuf> {
        match ca {
            Ca::File(path) => Some(path),
            Ca::System | Ca::Spiffe(_) => None,
        }
    }
    let originations = config.originate.iter();
    let originations = originations.map(|one| (&one.certificates[..], file(&one.ca)));
    let routes = config.routes.iter().filter(|route| route.backend_tls);
    let routes = routes.map(|route| (&route.backend_certificates[..], file(&route.backend_ca)));
    let store = &config.tickets.ticket_store_certificates;
    let of_helpers = [store, &config.acme.acme_certificates].map(|files| (&files[..], None));
    originations.chain(routes).chain(of_helpers)
}
