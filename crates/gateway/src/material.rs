//! Certificates and keys: read by main, checked against each other before anything starts.

use crate::config::{Ca, CertificateFiles, Config, Originate, Route};
use crate::handover::{OriginPem, Pem};
use dormouse_engine::{Identity, Roots, TrustStore, UnixTime};
use std::fs;
use std::path::Path;
use std::time::SystemTime;

/// The largest PEM file that is read: a chain of certificates is a few kilobytes.
const PEM_BYTES_MAX: u64 = 1 << 20;

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
    let roots = match (&originate.ca, originate.insecure) {
        (_, true) => None,
        (Ca::System, false) => match Roots::system_pem() {
            Ok(roots) => Some(roots),
            Err(error) => {
                let hint = "install ca-certificates, or give ca = \"authority.pem\"";
                mistakes.push(format!("{error}; {hint}"));
                None
            }
        },
        (Ca::File(path), false) => match read(path).and_then(|text| check_roots(path, text)) {
            Ok(roots) => Some(roots),
            Err(mistake) => {
                mistakes.push(mistake);
                None
            }
        },
    };
    if originate.insecure {
        let names: Vec<&str> = originate.to.iter().map(|to| to.given.as_str()).collect();
        tracing::warn!(
            to = names.join(", "),
            "INSECURE: any certificate is taken; whoever is between here and the server can read \
             and change everything"
        );
    }
    let mut identity = None;
    for files in &originate.certificates {
        if let Some(pem) = read_pair(files, mistakes) {
            match pem.identity() {
                Ok(_) => identity = Some(pem),
                Err(error) => mistakes.push(error.to_string()),
            }
        }
    }
    OriginPem { roots, identity }
}

fn check_roots(path: &Path, text: String) -> Result<String, String> {
    match TrustStore::from_pem(text.as_bytes()) {
        Ok(_) => Ok(text),
        Err(error) => Err(format!("{}: {error}", path.display())),
    }
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
    let now = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    for warning in identity.warnings(UnixTime::since_unix_epoch(now)) {
        tracing::warn!("{name}: {warning}");
    }
}

fn read(path: &Path) -> Result<String, String> {
    let shown = path.display();
    let cannot = |why: &dyn std::fmt::Display| format!("cannot read {shown}: {why}");
    let found = fs::metadata(path).map_err(|e| cannot(&e))?;
    if found.is_dir() {
        return Err(cannot(&"it is a directory; a PEM file is needed"));
    }
    if found.len() > PEM_BYTES_MAX {
        return Err(cannot(&format!(
            "{} bytes; a PEM file has at most 1 MiB",
            found.len()
        )));
    }
    let bytes = fs::read(path).map_err(|e| cannot(&e))?;
    String::from_utf8(bytes).map_err(|_| {
        cannot(&"not text, so not PEM; `openssl x509 -inform der` converts a certificate in DER")
    })
}
