//! Certificates and keys: read by main, checked against each other before anything starts.

use crate::config::{Ca, CertificateFiles, ClientAsk, Config, Originate, Route};
use crate::handover::{ClientTrust, Material, OriginPem, Pem};
use dormouse_engine::{Identity, Roots, TrustStore, UnixTime};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The largest PEM file that is read: a chain of certificates is a few kilobytes.
const PEM_BYTES_MAX: u64 = 1 << 20;

/// Reads what every route shows its clients. All mistakes are returned, one per entry.
pub(crate) fn load(config: &Config) -> Result<Vec<Material>, Vec<String>> {
    let mut mistakes = Vec::new();
    let loaded = config
        .routes
        .iter()
        .map(|route| load_route(route, &mut mistakes))
        .collect();
    if mistakes.is_empty() {
        Ok(loaded)
    } else {
        Err(mistakes)
    }
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
        let mut pems = Vec::new();
        load_pair(files, &mut pems, mistakes);
        for pem in pems {
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

fn load_route(route: &Route, mistakes: &mut Vec<String>) -> Material {
    Material {
        pems: load_pems(route, mistakes),
        clients: load_clients(route, mistakes),
    }
}

fn load_clients(route: &Route, mistakes: &mut Vec<String>) -> Option<ClientTrust> {
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

fn load_pems(route: &Route, mistakes: &mut Vec<String>) -> Vec<Pem> {
    let mut pems = Vec::new();
    for files in &route.certificates {
        load_pair(files, &mut pems, mistakes);
    }
    if let Some(name) = &route.self_signed {
        match Identity::self_signed_pem(name) {
            Ok((chain, key)) => {
                let name = format!("self_signed {name}");
                pems.push(Pem {
                    key_name: name.clone(),
                    name,
                    chain,
                    key: key.to_string(),
                });
            }
            Err(error) => mistakes.push(error.to_string()),
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

fn load_pair(files: &CertificateFiles, pems: &mut Vec<Pem>, mistakes: &mut Vec<String>) {
    match (read(&files.cert), read(&files.key)) {
        (Ok(chain), Ok(key)) => pems.push(Pem {
            name: files.cert.display().to_string(),
            key_name: files.key.display().to_string(),
            chain,
            key,
        }),
        (chain, key) => mistakes.extend([chain.err(), key.err()].into_iter().flatten()),
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
