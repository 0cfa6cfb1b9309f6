//! CAs that routes, originations and ACME trust, and the client certificates for servers.

use super::files::files_of;
use super::former::{self, Changes, Former};
use super::key_mode;
use super::pair::{read_pair, read_with, warnings_of};
use crate::findings::Findings;
use dormouse_config::{Ca, CertificateFiles, ClientAsk, Config, Originate, Place, Route, Severity};
use dormouse_engine::{Roots, SettingsError, TrustStore, read_trust_pem_file};
use dormouse_handover::unix_time;
use dormouse_handover::{ClientTrust, OriginPem, Pem};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Reads the trusted CAs and the client certificate of each origination.
pub(super) fn load_origins(
    config: &Config,
    former: &Former<'_>,
    findings: &mut Findings,
    changes: &mut Changes,
) -> Vec<OriginPem> {
    let all = config.originate.iter().enumerate();
    all.map(|(index, originate)| load_origin(index, originate, former, findings, changes))
        .collect()
}

/// Reads the same again. An origination of which a file cannot be used stays as it is.
pub(super) fn renew_origins(
    config: &Config,
    former: &Former<'_>,
    current: &[OriginPem],
    changes: &mut Changes,
) -> Vec<OriginPem> {
    let all = config.originate.iter().zip(current).enumerate();
    let renew = |(index, (originate, current)): (usize, (&Originate, &OriginPem))| {
        let mut findings = Findings::default();
        let read = load_origin(index, originate, former, &mut findings, changes);
        keep_on_error(read, current, &findings, changes)
    };
    all.map(renew).collect()
}

fn load_origin(
    index: usize,
    originate: &Originate,
    former: &Former<'_>,
    findings: &mut Findings,
    changes: &mut Changes,
) -> OriginPem {
    let place = |option| Place::of_origination(index, option);
    let roots = match originate.insecure {
        true => None,
        false => read_roots(&originate.ca, place("ca"), findings),
    };
    let (files, place) = (&originate.certificates, place("certificates"));
    let identity = read_identity(files, place, former, findings, changes);
    OriginPem { roots, identity }
}

/// Reads the same for routes with TLS to their backends.
pub(super) fn load_backend_tls(
    config: &Config,
    former: &Former<'_>,
    findings: &mut Findings,
    changes: &mut Changes,
) -> Vec<Option<OriginPem>> {
    let all = config.routes.iter().enumerate();
    all.map(|(index, route)| load_one_backend_tls(index, route, former, findings, changes))
        .collect()
}

/// Reads the same again. A route of which a file cannot be used stays as it is.
pub(super) fn renew_backend_tls(
    config: &Config,
    former: &Former<'_>,
    current: &[Option<OriginPem>],
    changes: &mut Changes,
) -> Vec<Option<OriginPem>> {
    let all = config.routes.iter().zip(current).enumerate();
    let renew = |(index, (route, current)): (usize, (&Route, &Option<OriginPem>))| {
        let mut findings = Findings::default();
        let read = load_one_backend_tls(index, route, former, &mut findings, changes);
        keep_on_error(read, current, &findings, changes)
    };
    all.map(renew).collect()
}

fn load_one_backend_tls(
    index: usize,
    route: &Route,
    former: &Former<'_>,
    findings: &mut Findings,
    changes: &mut Changes,
) -> Option<OriginPem> {
    if !route.backend_tls {
        return None;
    }
    let place = |option| Place::of_route(index, option);
    let roots = read_roots(&route.backend_ca, place("backend_ca"), findings);
    let (files, place) = (&route.backend_certificates, place("backend_certificates"));
    let identity = read_identity(files, place, former, findings, changes);
    Some(OriginPem { roots, identity })
}

/// What was read, or without change what is in use if there were errors.
fn keep_on_error<T: Clone>(read: T, current: &T, findings: &Findings, changes: &mut Changes) -> T {
    match findings.has_errors() {
        true => {
            changes.kept.extend(findings.words(Severity::Error));
            current.clone()
        }
        false => read,
    }
}

/// Reads the CAs and revocation lists of every route that requests client certificates.
pub(super) fn load_client_trust(
    config: &Config,
    findings: &mut Findings,
) -> Vec<Option<ClientTrust>> {
    let mut files = TrustFiles::default();
    let all = config.routes.iter().enumerate();
    all.map(|(index, route)| files.of_route(index, route, findings))
        .collect()
}

/// Reads the same again. A route of which a file cannot be used stays as it is: it never verifies less than its
/// configuration says.
pub(super) fn renew_client_trust(
    config: &Config,
    current: &[Option<ClientTrust>],
    changes: &mut Changes,
) -> Vec<Option<ClientTrust>> {
    let mut files = TrustFiles::default();
    let all = config.routes.iter().zip(current).enumerate();
    all.map(|(index, (route, current))| {
        let mut findings = Findings::default();
        let read = files.of_route(index, route, &mut findings);
        keep_on_error(read, current, &findings, changes)
    })
    .collect()
}

/// CAs, PEM, and the name and PEM of each revocation list.
type Trust = (String, Vec<(String, String)>);

/// What was read for the routes before. Files that several routes name are read and parsed once: a revocation list may have
/// many megabytes.
#[derive(Default)]
struct TrustFiles<'a>(HashMap<(&'a Option<PathBuf>, &'a Vec<PathBuf>), Trust>);

impl<'a> TrustFiles<'a> {
    /// `None`: the route requests no client certificates, or there is an error.
    fn of_route(
        &mut self,
        index: usize,
        route: &'a Route,
        findings: &mut Findings,
    ) -> Option<ClientTrust> {
        let required = match route.client_certificates {
            ClientAsk::None => return None,
            ClientAsk::Optional => false,
            ClientAsk::Required => true,
        };
        let (roots, crls) = match self.0.entry((&route.client_ca, &route.client_crl)) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => new.insert(read_trust(index, route, findings)?),
        };
        Some(ClientTrust {
            required,
            roots: roots.clone(),
            crls: crls.clone(),
            allow: route.client_allow.clone(),
        })
    }
}

/// Reads and checks the CAs and revocation lists of a route. `None`: there is an error.
fn read_trust(index: usize, route: &Route, findings: &mut Findings) -> Option<Trust> {
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
        return None;
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

fn read_identity(
    files: &[CertificateFiles],
    place: Place,
    former: &Former<'_>,
    findings: &mut Findings,
    changes: &mut Changes,
) -> Option<Pem> {
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
                    let current = former.pair(&files.cert, &files.key);
                    identity = Some(match current.zip(former::is_worse(&own, current)) {
                        Some((current, why)) => {
                            changes.kept.push(format!("{}: {why}", pem.name));
                            current.clone()
                        }
                        None => pem,
                    });
                }
                Err(error) => mistakes.push(error.to_string()),
            }
        }
        findings.errors(place, mistakes);
    }
    identity
}
