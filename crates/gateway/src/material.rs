//! Certificates and keys: read by main, checked against each other before anything starts.

use crate::config::{Ca, CertificateFiles, ClientAsk, Config, Originate, Route};
use crate::handover::{ClientTrust, OriginPem, Pem};
use dormouse_engine::{Identity, Roots, TrustStore, UnixTime, read_pem_file};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Reads what every route shows its clients. All mistakes are returned, one per entry. What was
/// made on the spot before (`former`) is not made again, so that clients see the same certificate.
pub(crate) fn load(config: &Config, former: &[Vec<Pem>]) -> Result<Vec<Vec<Pem>>, Vec<String>> {
    let mut mistakes = Vec::new();
    let loaded = config
        .routes
        .iter()
        .map(|route| load_route(route, former, &mut mistakes))
        .collect();
    if mistakes.is_empty() {
        Ok(loaded)
    } else {
        Err(mistakes)
    }
}

/// What became of files that have changed.
pub(crate) struct Renewed {
    /// What every route shows now.
    pub(crate) certificates: Vec<Vec<Pem>>,
    /// Those which are new.
    pub(crate) names: Vec<String>,
    /// Why others are not.
    pub(crate) complaints: Vec<String>,
}

/// Reads all pairs of certificate and key again. Where one is not what it should be, the current
/// one stays.
pub(crate) fn renew(config: &Config, current: &[Vec<Pem>]) -> Renewed {
    let mut renewed = Renewed {
        certificates: current.to_vec(),
        names: Vec::new(),
        complaints: Vec::new(),
    };
    for (route, pems) in config.routes.iter().zip(&mut renewed.certificates) {
        for (files, pem) in route.certificates.iter().zip(pems) {
            let mut mistakes = Vec::new();
            match read_pair(files, &mut mistakes) {
                Some(new) if new.chain == pem.chain && new.key == pem.key => {}
                Some(new) => match new.identity() {
                    Ok(identity) => {
                        warn_of(&identity, &new.name);
                        renewed.names.push(new.name.clone());
                        *pem = new;
                    }
                    Err(error) => mistakes.push(error.to_string()),
                },
                None => {}
            }
            renewed.complaints.append(&mut mistakes);
        }
    }
    renewed
}

/// Reads whom originations trust and what they show.
pub(crate) fn load_origins(config: &Config) -> Result<Vec<OriginPem>, Vec<String>> {
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

/// Reads whom routes trust that speak TLS with their backends, and what they show them.
pub(crate) fn load_backend_tls(config: &Config) -> Result<Vec<Option<OriginPem>>, Vec<String>> {
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

fn read_roots(ca: &Ca, mistakes: &mut Vec<String>) -> Option<String> {
    let read = match ca {
        Ca::System => Roots::system_pem().map_err(|error| {
            format!("{error}; install ca-certificates, or name a file of authorities")
        }),
        Ca::File(path) => read(path).and_then(|text| check_roots(path, text)),
    };
    read.map_err(|mistake| mistakes.push(mistake)).ok()
}

fn read_identity(files: &[CertificateFiles], mistakes: &mut Vec<String>) -> Option<Pem> {
    let mut identity = None;
    for files in files {
        if let Some(pem) = read_pair(files, mistakes) {
            match pem.identity() {
                Ok(_) => identity = Some(pem),
                Err(error) => mistakes.push(error.to_string()),
            }
        }
    }
    identity
}

fn check_roots(path: &Path, text: String) -> Result<String, String> {
    match TrustStore::from_pem(text.as_bytes()) {
        Ok(_) => Ok(text),
        Err(error) => Err(format!("{}: {error}", path.display())),
    }
}

/// Reads who may vouch for clients, for every route which asks them for certificates.
pub(crate) fn load_clients(config: &Config) -> Result<Vec<Option<ClientTrust>>, Vec<String>> {
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
    let roots = read(ca).map_err(|why| mistakes.push(why)).ok()?;
    let mut crls = Vec::new();
    for path in &route.client_crl {
        for file in files_of(path).map_err(|why| mistakes.push(why)).ok()? {
            let name = file.display().to_string();
            crls.push((name, read(&file).map_err(|why| mistakes.push(why)).ok()?));
        }
    }
    let trust = ClientTrust {
        required,
        roots,
        crls,
    };
    for warning in trust.settings().warnings(now()) {
        tracing::warn!("{warning}");
    }
    if let Err(why) = trust.settings().check() {
        mistakes.push(format!("{}: {why}", ca.display()));
    }
    Some(trust)
}

/// A file, or all files of a directory in the order of their names.
fn files_of(path: &Path) -> Result<Vec<PathBuf>, String> {
    let cannot = |e: io::Error| format!("cannot read {}: {e}", path.display());
    if !fs::metadata(path).map_err(cannot)?.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut files = Vec::new();
    for entry in fs::read_dir(path).map_err(cannot)? {
        let file = entry.map_err(cannot)?.path();
        let hidden = file
            .file_name()
            .is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        if !hidden && fs::metadata(&file).map_err(cannot)?.is_file() {
            files.push(file);
        }
    }
    files.sort();
    if files.is_empty() {
        return Err(format!(
            "{}: there is no revocation list in this directory",
            path.display()
        ));
    }
    Ok(files)
}

fn load_route(route: &Route, former: &[Vec<Pem>], mistakes: &mut Vec<String>) -> Vec<Pem> {
    let mut pems = Vec::new();
    for files in &route.certificates {
        pems.extend(read_pair(files, mistakes));
    }
    if let Some(name) = &route.self_signed {
        match make_self_signed(name, former) {
            Ok(pem) => pems.push(pem),
            Err(mistake) => mistakes.push(mistake),
        }
    }
    for pem in &pems {
        match pem.identity() {
            Ok(identity) => warn_of(&identity, &pem.name),
            Err(error) => mistakes.push(error.to_string()),
        }
    }
    pems
}

/// The one that was made before, or a new one.
fn make_self_signed(name: &str, former: &[Vec<Pem>]) -> Result<Pem, String> {
    let shown = format!("self_signed {name}");
    if let Some(pem) = former.iter().flatten().find(|pem| pem.name == shown) {
        return Ok(pem.clone());
    }
    let (chain, key) = Identity::self_signed_pem(name).map_err(|error| error.to_string())?;
    Ok(Pem {
        key_name: shown.clone(),
        name: shown,
        chain,
        key: key.to_string(),
    })
}

fn read_pair(files: &CertificateFiles, mistakes: &mut Vec<String>) -> Option<Pem> {
    match (read(&files.cert), read(&files.key)) {
        (Ok(chain), Ok(key)) => Some(Pem {
            name: files.cert.display().to_string(),
            key_name: files.key.display().to_string(),
            chain,
            key,
        }),
        (chain, key) => {
            mistakes.extend([chain.err(), key.err()].into_iter().flatten());
            None
        }
    }
}

fn warn_of(identity: &Identity, name: &str) {
    for warning in identity.warnings(now()) {
        tracing::warn!("{name}: {warning}");
    }
}

fn now() -> UnixTime {
    let since = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    UnixTime::since_unix_epoch(since)
}

/// The one reader of such files is the engine's: `check` says the same words.
fn read(path: &Path) -> Result<String, String> {
    match read_pem_file(path) {
        Ok(text) => Ok(text.as_str().to_owned()),
        Err(error) => Err(error.to_string()),
    }
}
