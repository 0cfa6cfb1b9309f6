//! Reading a certificate with its key, and its OCSP response.

use super::files::PairFiles;
use crate::error::unreadable;
use dormouse_engine::{Identity, IdentityError, OcspProblem, read_pem_file};
use dormouse_handover::Pem;
use dormouse_handover::unix_time;
use dormouse_reactor::file::open_regular;
use std::io::Read as _;
use std::path::Path;
use zeroize::Zeroizing;

/// Maximum bytes read of an OCSP response: one more than the longest valid one.
const OCSP_MAX: u64 = (16 << 10) + 1;

const DAY_S: u64 = 86_400;
/// Remaining validity below which a warning is due.
const SOON_S: u64 = 14 * DAY_S;

/// Reads a certificate and its key. `None`: the errors were added to `mistakes`.
pub(super) fn read_pair(cert: &Path, key: &Path, mistakes: &mut Vec<String>) -> Option<Pem> {
    let names = (cert.display().to_string(), key.display().to_string());
    match (read(cert).map(|text| certificates_in(&text)), read(key)) {
        (Ok(chain), Ok(mut key)) => Some(Pem {
            name: names.0,
            key_name: names.1,
            chain,
            ocsp: Vec::new(),
            ocsp_from_file: false,
            is_pushed: false,
            // Moved: a copy would not be wiped.
            key: std::mem::take(&mut *key),
        }),
        (chain, key) => {
            mistakes.extend([chain.err(), key.err()].into_iter().flatten());
            None
        }
    }
}

/// Reads the OCSP response from its file, if there is one. A response for another certificate is an
/// error; an expired one is a warning, and the certificate is served without it.
pub(super) fn read_staple(
    pair: &PairFiles,
    pem: &mut Pem,
    warnings: &mut Vec<String>,
) -> Result<Identity, String> {
    let mut identity = pem.identity().map_err(|error| error.to_string())?;
    let Some(path) = &pair.ocsp else {
        return Ok(identity);
    };
    pem.ocsp_from_file = true;
    let shown = path.display();
    let read = open_regular(path).and_then(|file| {
        let mut bytes = Vec::new();
        file.take(OCSP_MAX).read_to_end(&mut bytes).map(|_| bytes)
    });
    let response = read.map_err(|error| unreadable(path, &error))?;
    match identity.staple(&response, unix_time()) {
        Ok(_) => pem.ocsp = response,
        Err(problem @ OcspProblem::NotNow(_)) => warnings.push(format!("{shown}: {problem}")),
        Err(problem) => return Err(format!("{shown}: {problem}")),
    }
    Ok(identity)
}

/// Reuses an OCSP response that was fetched for the same chain.
pub(super) fn keep_response(pem: &mut Pem, former: &[Vec<Pem>]) {
    let is_same = |other: &&Pem| other.chain == pem.chain && !other.ocsp_from_file;
    if !pem.ocsp_from_file
        && let Some(other) = former.iter().flatten().find(is_same)
    {
        pem.ocsp = other.ocsp.clone();
    }
}

/// Extracts the certificates from a file that may also hold their key, so that no secret is passed on as
/// public. A text without certificates is returned unchanged, so that its error is reported later.
pub(crate) fn certificates_in(text: &str) -> String {
    let mut certificates = String::with_capacity(text.len());
    // Start of an unfinished certificate. A certificate without an end may be followed by a key.
    let mut begun = None;
    for line in text.lines() {
        let line = line.trim_end();
        if line.starts_with("-----BEGIN ") {
            certificates.truncate(begun.take().unwrap_or(certificates.len()));
            begun = (line == "-----BEGIN CERTIFICATE-----").then_some(certificates.len());
        }
        if begun.is_some() {
            certificates.push_str(line);
            certificates.push('\n');
        }
        if line == "-----END CERTIFICATE-----" {
            begun = None;
        }
    }
    certificates.truncate(begun.unwrap_or(certificates.len()));
    if certificates.is_empty() {
        text.clone_into(&mut certificates);
    }
    certificates
}

/// Current and imminent problems of a certificate.
pub(super) fn warnings_of(identity: &Identity, name: &str) -> Vec<String> {
    let now = unix_time();
    let mut warnings: Vec<String> = (identity.warnings(now).iter())
        .map(|warning| format!("{name}: {warning}"))
        .collect();
    let left_s = identity.expires_at_s().saturating_sub(now.as_secs());
    if (1..SOON_S).contains(&left_s) {
        let days = left_s.div_ceil(DAY_S);
        warnings.push(format!("{name}: expires within {days} days; renew it"));
    }
    warnings
}

/// Reads a file with a certificate or a key.
fn read(path: &Path) -> Result<Zeroizing<String>, String> {
    read_with(read_pem_file, path)
}

/// Reads a PEM file with the same limits as `dormouse check`.
pub(super) fn read_with<T>(
    read: fn(&Path) -> Result<T, IdentityError>,
    path: &Path,
) -> Result<T, String> {
    open_regular(path).map_err(|error| unreadable(path, &error))?;
    read(path).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::certificates_in;

    #[test]
    fn a_key_beside_certificates_is_not_passed_on() {
        let block =
            |label: &str| format!("-----BEGIN {label}-----\r\nAAAA\r\n-----END {label}-----\r\n");
        let both = ["CERTIFICATE", "PRIVATE KEY", "EC PARAMETERS", "CERTIFICATE"].map(block);
        let one = block("CERTIFICATE").replace('\r', "");
        assert_eq!(certificates_in(&both.concat()), format!("{one}{one}"));
        let key = block("PRIVATE KEY");
        assert_eq!(certificates_in(&key), key, "the error is reported later");
        assert_eq!(certificates_in(""), "");
        // A certificate without an end, or with a malformed one.
        let broken = block("CERTIFICATE").replace("END", "--END");
        let kept = certificates_in(&[&one, &broken, &key, &broken, &one].map(|s| &**s).concat());
        assert_eq!(kept, format!("{one}{one}"));
        let kept = certificates_in(&[&one, &broken].map(|s| &**s).concat());
        assert_eq!(kept, one);
    }
}
