//! Reading one certificate with its key, and the OCSP response about it.

use super::files::PairFiles;
use dormouse_engine::{Identity, OcspProblem, read_pem_file};
use dormouse_handover::Pem;
use dormouse_handover::unix_time;
use std::fs;
use std::io::Read as _;
use std::path::Path;

/// Longest OCSP response that is read: one byte more than any has.
const OCSP_MAX: u64 = (16 << 10) + 1;

const DAY_S: u64 = 86_400;
/// A certificate that expires within this time is worth a warning.
const SOON_S: u64 = 14 * DAY_S;

/// Reads a certificate and its key. `None`: what is wrong was added to `mistakes`.
pub(super) fn read_pair(cert: &Path, key: &Path, mistakes: &mut Vec<String>) -> Option<Pem> {
    let names = (cert.display().to_string(), key.display().to_string());
    let chain = read_pem_file(cert).map_err(|error| error.to_string());
    match (chain.map(|text| certificates_in(&text)), read(key)) {
        (Ok(chain), Ok(key)) => Some(Pem {
            name: names.0,
            key_name: names.1,
            chain,
            ocsp: Vec::new(),
            ocsp_from_file: false,
            is_pushed: false,
            key,
        }),
        (chain, key) => {
            mistakes.extend([chain.err(), key.err()].into_iter().flatten());
            None
        }
    }
}

/// Reads the OCSP response from its file, if there is one. A response about another certificate is an
/// error; one that is not valid now is a warning, and the certificate is shown without it.
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
    let read = fs::File::open(path).and_then(|file| {
        let mut bytes = Vec::new();
        file.take(OCSP_MAX).read_to_end(&mut bytes).map(|_| bytes)
    });
    let response = read.map_err(|error| format!("{shown}: cannot be read: {error}"))?;
    match identity.staple(&response, unix_time()) {
        Ok(_) => pem.ocsp = response,
        Err(problem @ OcspProblem::NotNow(_)) => warnings.push(format!("{shown}: {problem}")),
        Err(problem) => return Err(format!("{shown}: {problem}")),
    }
    Ok(identity)
}

/// Keeps an authority's former response about the same chain.
pub(super) fn keep_response(pem: &mut Pem, former: &[Vec<Pem>]) {
    let is_same = |other: &&Pem| other.chain == pem.chain && !other.ocsp_from_file;
    if !pem.ocsp_from_file
        && let Some(other) = former.iter().flatten().find(is_same)
    {
        pem.ocsp = other.ocsp.clone();
    }
}

/// The certificates of a file that may also hold their key: what is passed on as public has nothing
/// secret in it. A text without certificates stays as it is, so that the mistake is reported.
pub(crate) fn certificates_in(text: &str) -> String {
    let mut certificates = String::with_capacity(text.len());
    // Where the certificate begins whose end has not come yet. One that never ends may have a key behind it.
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

/// What is, or will soon be, wrong with a certificate.
pub(super) fn warnings_of(identity: &Identity, name: &str) -> Vec<String> {
    let now = unix_time();
    let mut warnings: Vec<String> = (identity.warnings(now).iter())
        .map(|warning| format!("{name}: {warning}"))
        .collect();
    let left_s = identity.expires_at_s().saturating_sub(now.as_secs());
    if (1..SOON_S).contains(&left_s) {
        let days = left_s.div_ceil(DAY_S);
        warnings.push(format!("{name}: expires within {days} days: renew it soon"));
    }
    warnings
}

/// The text of a PEM file, read as `dormouse check` reads it.
pub(super) fn read(path: &Path) -> Result<String, String> {
    match read_pem_file(path) {
        Ok(text) => Ok(text.as_str().to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::certificates_in;

    #[test]
    fn a_key_beside_certificates_is_not_passed_on_as_public() {
        let block =
            |label: &str| format!("-----BEGIN {label}-----\r\nAAAA\r\n-----END {label}-----\r\n");
        let both = ["CERTIFICATE", "PRIVATE KEY", "EC PARAMETERS", "CERTIFICATE"].map(block);
        let one = block("CERTIFICATE").replace('\r', "");
        assert_eq!(certificates_in(&both.concat()), format!("{one}{one}"));
        let key = block("PRIVATE KEY");
        assert_eq!(certificates_in(&key), key, "the mistake is told elsewhere");
        assert_eq!(certificates_in(""), "");
        // A certificate that does not end, or ends in a way of its own.
        let broken = block("CERTIFICATE").replace("END", "--END");
        let kept = certificates_in(&[&one, &broken, &key, &broken, &one].map(|s| &**s).concat());
        assert_eq!(kept, format!("{one}{one}"));
        let kept = certificates_in(&[&one, &broken].map(|s| &**s).concat());
        assert_eq!(kept, one);
    }
}
