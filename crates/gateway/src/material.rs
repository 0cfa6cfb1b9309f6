//! Certificates and keys: read by main, checked against each other before anything starts.

use crate::config::{Config, Route};
use crate::handover::Pem;
use dormouse_engine::{Identity, UnixTime};
use std::fs;
use std::path::Path;
use std::time::SystemTime;

/// The largest PEM file that is read: a chain of certificates is a few kilobytes.
const PEM_BYTES_MAX: u64 = 1 << 20;

/// Reads what every route shows its clients. All mistakes are returned, one per entry.
pub(crate) fn load(config: &Config) -> Result<Vec<Vec<Pem>>, Vec<String>> {
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

fn load_route(route: &Route, mistakes: &mut Vec<String>) -> Vec<Pem> {
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
