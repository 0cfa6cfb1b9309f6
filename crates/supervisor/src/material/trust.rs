//! CAs that routes, originations and ACME trust, and the client certificates for servers.

use super::files::files_of;
use super::key_mode;
use super::pair::{read_pair, read_with, warnings_of};
use crate::findings::Findings;
use dormouse_config::{Ca, CertificateFiles, ClientAsk, Config, Originate, Place, Route};
use dormouse_engine::{Roots, SettingsError, TrustStore, read_trust_pem_file};
use dormouse_handover::unix_time;
use dormouse_handover::{ClientTrust, OriginPem, Pem};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Reads the trusted CAs and the client certificate of each origination.
pub(super) fn load_origins(config: &Config, findings: &mut Findings) -> Vec<OriginPem> {
    let all = config.originate.iter().enumerate();
    all.map(|(index, originate)| load_origin(index, originate, findings))
        .collect()
}

fn load_origin(index: usize, originate: &Originate, findings: &mut Findings) -> OriginPem {
    let place = |option| Place::of_origination(index, option);
    let roots = match originate.insecure {
        true => None,
        false => read_roots(&originate.ca, place("ca"), findings),
    };
    let identity = read_identity(&originate.certificates, place("certificates"), findings);
    OriginPem { roots, identity }
}

/// Reads the same for routes with TLS to their backends.
pub(super) fn load_backend_tls(config: &Config, findings: &mut Findings) -> Vec<Option<OriginPem>> {
    let mut load = |(index, route): (usize, &Route)| {
        let place = |option| Place::of_route(index, option);
        let roots = read_roots(&route.backend_ca, place("backend_ca"), findings);
        let place = place("backend_certificates");
        let identity = read_identity(&route.backend_certificates, place, findings);
        OriginPem { roots, identity }
    };
    let all = config.routes.iter().enumerate();
    all.map(|(index, route)| route.backend_tls.then(|| load((index, route))))
        .collect()
}

/// Reads the CAs and revocation lists of every route that requests client certificates.
pub(crate) fn load_client_trust(
    config: &Config,
    findings: &mut Findings,
) -> Vec<Option<ClientTrust>> {
    let mut read = HashMap::new();
    let all = config.routes.iter().enumerate().map(|(index, route)| {
        let required = match route.client_certificates {
            ClientAsk::None => return None,
            ClientAsk::Optional => false,
            ClientAsk::Required => true,
        };
        // Files that several routes name are read and parsed once: a revocation list may have many megabytes.
        let (roots, crls) = match read.entry((&route.client_ca, &route.client_crl)) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => new.insert(read_trust(index, route, findings)?),
        };
        Some(ClientTrust {
            required,
            roots: roots.clone(),
            crls: crls.clone(),
            allow: route.client_allow.clone(),
        })
    });
    all.collect()
}

/// Reads and checks the CAs and revocation lists of a route: PEM, and the name and PEM of each list.
fn read_trust(
    index: usize,
    route: &Route,
    findings: &mut Findings,
) -> Option<(String, Vec<(String, String)>)> {
    let place = Place::of_route(index, "client_ca");
    let ca = route.client_ca.as_deref()?;
    let roots = read_all(ca, "authority");
    let crls = route.client_crl.iter().enumerate().map(|(item, path)| {
        let place = Place::of_route(index, "client_crl").item(item);
        let read = read_all(path, "revocation list");
        read.map_err(|why| findings.error(place, why)).ok()
    });
    // All of them are read before an error returns, so that each error is reported.
    let crls: Vec<_> = crls.collect();
    let roots = roots.map_err(|why| findings.error(place, why)).ok()?;
    let crls: Option<Vec<_>> = crls.into_iter().collect();
    let trust = ClientTrust {
        required: true,
        roots: roots.into_iter().map(|(_, text)| text + "\n").collect(),
        crls: crls?.into_iter().flatten().collect(),
        allow: Vec::new(),
    };
    let settings = trust.settings();
    findings.warnings(place, settings.warnings(unix_time()));
    if let Err(why) = settings.verifier() {
        let place = match why {
            SettingsError::ClientCrl(_) => Place::of_route(index, "client_crl"),
            _ => place,
        };
        findings.error(place, format!("{}: {why}", ca.display()));
    }
    Some((trust.roots, trust.crls))
}

/// The text of a file, or of all files of a directory, each with its path.
fn read_all(path: &Path, what: &str) -> Result<Vec<(String, String)>, String> {
    let read_one = |file: PathBuf| Ok((file.display().to_string(), read(&file)?));
    files_of(path, what)?.into_iter().map(read_one).collect()
}

fn read(path: &Path) -> Result<String, String> {
    read_with(read_trust_pem_file, path)
}

fn read_roots(ca: &Ca, place: Place, findings: &mut Findings) -> Option<String> {
    let read = authorities(ca);
    read.map_err(|mistake| findings.error(place, mistake)).ok()
}

/// The trusted CAs for a server, PEM.
pub(crate) fn authorities(ca: &Ca) -> Result<String, String> {
    match ca {
        Ca::System => Roots::system_pem()
            .map_err(|error| format!("{error}; install ca-certificates, or set a CA file")),
        Ca::File(path) if is_missing(path) => Err(format!(
            "{}: no such file\nname a PEM file with the authorities, or \"system\" for those of the operating system",
            path.display()
        )),
        Ca::File(path) => authorities_of(path),
    }
}

fn is_missing(path: &Path) -> bool {
    fs::metadata(path).is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
}

/// The CAs in a PEM file.
pub(crate) fn authorities_of(path: &Path) -> Result<String, String> {
    read(path).and_then(|text| check_roots(path, text))
}

fn check_roots(path: &Path, text: String) -> Result<String, String> {
    match TrustStore::from_pem(text.as_bytes()) {
        Ok(_) => Ok(text),
        Err(error) => Err(format!("{}: {error}", path.display())),
    }
}

fn read_identity(files: &[CertificateFiles], place: Place, findings: &mut Findings) -> Option<Pem> {
    let mut identity = None;
    for (item, files) in files.iter().enumerate() {
        let place = place.item(item);
        let mut mistakes = Vec::new();
        if let Some(pem) = read_pair(&files.cert, &files.key, &mut mistakes) {
            match pem.identity() {
                Ok(own) => {
                    findings.warnings(place, warnings_of(&own, &pem.name));
                    let exposed = key_mode::warning_of(&files.key);
                    findings.warnings(place, exposed.into_iter().collect());
                    identity = Some(pem);
                }
                Err(error) => mistakes.push(error.to_string()),
            }
        }
        findings.errors(place, mistakes);
    }
    identity
}
