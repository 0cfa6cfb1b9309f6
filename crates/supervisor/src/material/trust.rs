//! Authorities: which ones routes, originations and ACME trust, and the certificates shown to servers.

use super::files::files_of;
use super::pair::{read, read_pair};
use dormouse_config::{Ca, CertificateFiles, ClientAsk, Config, Originate, Route};
use dormouse_engine::{Roots, TrustStore};
use dormouse_handover::unix_time;
use dormouse_handover::{ClientTrust, OriginPem, Pem};
use std::path::Path;

/// Reads the authorities that originations trust, and the certificates they show.
pub(super) fn load_origins(config: &Config) -> Result<Vec<OriginPem>, Vec<String>> {
    let mut mistakes = Vec::new();
    let loaded = config
        .originate
        .iter()
        .map(|originate| load_origin(originate, &mut mistakes))
        .collect();
    mistakes.dedup();
    if mistakes.is_empty() {
        Ok(loaded)
    } else {
        Err(mistakes)
    }
}

fn load_origin(originate: &Originate, mistakes: &mut Vec<String>) -> OriginPem {
    let roots = match originate.insecure {
        true => None,
        false => read_roots(&originate.ca, mistakes),
    };
    if originate.insecure {
        let names: Vec<&str> = originate.to.iter().map(|to| to.given.as_str()).collect();
        tracing::warn!(
            to = names.join(", "),
            "INSECURE: any certificate is taken; whoever is between here and the server can read \
             and change everything"
        );
    }
    let identity = read_identity(&originate.certificates, mistakes);
    OriginPem { roots, identity }
}

/// Reads the same for routes that speak TLS with their backends.
pub(super) fn load_backend_tls(config: &Config) -> Result<Vec<Option<OriginPem>>, Vec<String>> {
    let mut mistakes = Vec::new();
    let mut load = |route: &Route| {
        let roots = read_roots(&route.backend_ca, &mut mistakes);
        let identity = read_identity(&route.backend_certificates, &mut mistakes);
        OriginPem { roots, identity }
    };
    let load = |route: &Route| route.backend_tls.then(|| load(route));
    let loaded = config.routes.iter().map(load).collect();
    mistakes.dedup();
    if mistakes.is_empty() {
        Ok(loaded)
    } else {
        Err(mistakes)
    }
}

/// Reads the authorities and revocation lists for every route that asks clients for certificates.
pub(crate) fn load_client_trust(config: &Config) -> Result<Vec<Option<ClientTrust>>, Vec<String>> {
    let mut mistakes = Vec::new();
    let loaded = config
        .routes
        .iter()
        .map(|route| clients_of(route, &mut mistakes))
        .collect();
    if mistakes.is_empty() {
        Ok(loaded)
    } else {
        Err(mistakes)
    }
}

fn clients_of(route: &Route, mistakes: &mut Vec<String>) -> Option<ClientTrust> {
    let required = match route.client_certificates {
        ClientAsk::None => return None,
        ClientAsk::Optional => false,
        ClientAsk::Required => true,
    };
    let ca = route.client_ca.as_deref()?;
    let mut roots = String::new();
    let authorities = files_of(ca, "authority");
    for file in authorities.map_err(|why| mistakes.push(why)).ok()? {
        roots.push_str(&read(&file).map_err(|why| mistakes.push(why)).ok()?);
        roots.push('\n');
    }
    let mut crls = Vec::new();
    for path in &route.client_crl {
        let lists = files_of(path, "revocation list");
        for file in lists.map_err(|why| mistakes.push(why)).ok()? {
            let name = file.display().to_string();
            crls.push((name, read(&file).map_err(|why| mistakes.push(why)).ok()?));
        }
    }
    let trust = ClientTrust {
        required,
        roots,
        crls,
        allow: route.client_allow.clone(),
    };
    for warning in trust.settings().warnings(unix_time()) {
        tracing::warn!("{warning}");
    }
    if let Err(why) = trust.settings().check() {
        mistakes.push(format!("{}: {why}", ca.display()));
    }
    Some(trust)
}

pub(super) fn read_roots(ca: &Ca, mistakes: &mut Vec<String>) -> Option<String> {
    let read = authorities(ca);
    read.map_err(|mistake| mistakes.push(mistake)).ok()
}

/// The authorities that may vouch for a server, PEM.
pub(crate) fn authorities(ca: &Ca) -> Result<String, String> {
    match ca {
        Ca::System => Roots::system_pem().map_err(|error| {
            format!("{error}; install ca-certificates, or name a file of authorities")
        }),
        Ca::File(path) => read(path).and_then(|text| check_roots(path, text)),
    }
}

fn check_roots(path: &Path, text: String) -> Result<String, String> {
    match TrustStore::from_pem(text.as_bytes()) {
        Ok(_) => Ok(text),
        Err(error) => Err(format!("{}: {error}", path.display())),
    }
}

fn read_identity(files: &[CertificateFiles], mistakes: &mut Vec<String>) -> Option<Pem> {
    let mut identity = None;
    for files in files {
        if let Some(pem) = read_pair(&files.cert, &files.key, mistakes) {
            match pem.identity() {
                Ok(_) => identity = Some(pem),
                Err(error) => mistakes.push(error.to_string()),
            }
        }
    }
    identity
}
