//! Certificates, keys and CAs: read by main, and checked against each other before anything starts.
//!
//! ```text
//!   certificates  certificates for clients      trust  CAs that routes and originations trust
//!   acme          files from ACME servers       files  which files a configuration names
//!   pair          one certificate with its key       pushed  those from an administrator
//!   key_mode      keys that other users can read
//! ```

pub(crate) mod acme;
mod certificates;
mod files;
mod key_mode;
pub(crate) mod pair;
mod pushed;
mod trust;

pub(crate) use certificates::{Renewed, renew};
pub(crate) use files::can_write_into;
pub(crate) use pair::certificates_in;
pub(crate) use pushed::{Pushed, RouteCertificates};
pub(crate) use trust::{authorities, authorities_of, load_client_trust};

use crate::findings::Findings;
use dormouse_config::Config;
use dormouse_handover::{ClientTrust, OriginPem, Pem};
use std::collections::BTreeSet;
use std::path::PathBuf;

/// The certificates of each route, in the order of the configuration.
pub(crate) type Certificates = Vec<Vec<Pem>>;

/// Everything that a configuration reads from PEM files. Lists are in configuration order.
#[derive(Clone)]
pub(crate) struct Material {
    /// Certificates for clients, by route.
    pub(crate) certificates: Certificates,
    /// CAs and revocation lists for client certificates, by route.
    pub(crate) client_trust: Vec<Option<ClientTrust>>,
    /// Trusted CAs and client certificate, by origination.
    pub(crate) origins: Vec<OriginPem>,
    /// Trusted CAs and client certificate for TLS with backends, by route.
    pub(crate) backend_tls: Vec<Option<OriginPem>>,
}

impl Material {
    /// Reads everything. The result is valid only if no error was found. Self-signed certificates and OCSP
    /// responses in `former` are reused.
    pub(crate) fn load(config: &Config, former: &[Vec<Pem>], findings: &mut Findings) -> Material {
        Material {
            certificates: certificates::load(config, former, findings),
            client_trust: trust::load_client_trust(config, findings),
            origins: trust::load_origins(config, findings),
            backend_tls: trust::load_backend_tls(config, findings),
        }
    }
}

/// The files that main watches for changes: certificates and keys, client CAs, revocation lists, and the
/// directories of these files.
pub(crate) fn watched(config: &Config) -> BTreeSet<PathBuf> {
    let mut all = BTreeSet::new();
    for route in &config.routes {
        all.extend(route.certificates.iter().flat_map(files::watched));
        let names = route.acme.iter();
        all.extend(names.map(|name| acme::file_of(config, name.as_str())));
        for path in route.client_ca.iter().chain(&route.client_crl) {
            all.insert(path.clone());
            all.extend(files::files_of(path, "file").unwrap_or_default());
        }
    }
    all
}
