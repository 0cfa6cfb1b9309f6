//! Certificates and keys: read by main, checked against each other before anything starts.

use crate::config::{ClientAsk, Config, Route};
use crate::handover::{ClientTrust, Material, Pem};
use dormouse_engine::{Identity, UnixTime};
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
