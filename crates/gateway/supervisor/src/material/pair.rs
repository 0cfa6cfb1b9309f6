//! Reading files: a certificate with its key, its OCSP response, authorities, revocation lists.

use super::former::Former;
use crate::error::unreadable;
use dormouse_config::TokenKey;
use dormouse_engine::{Identity, IdentityError, IdentityProblem, OcspProblem, PemFile, digest};
use dormouse_handover::unix_time;
use dormouse_handover::{Pem, PemContents};
use dormouse_helpers::private_file::read_secret_line;
use dormouse_reactor::file::open_regular;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

/// Maximum bytes read of an OCSP response: one more than the longest valid one.
const OCSP_MAX: u64 = (16 << 10) + 1;

/// Paths of a certificate and its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PairFiles {
    /// The chain.
    pub(super) cert: PathBuf,
    /// The key; may be the same file.
    pub(super) key: PathBuf,
    /// An OCSP response.
    pub(super) ocsp: Option<PathBuf>,
    /// The passphrase of the key.
    pub(super) passphrase: Option<PathBuf>,
    /// Found in a directory, not named by the configuration: if it is invalid, the others are used
    /// without it.
    pub(super) found: bool,
}

/// Reads a certificate and its key, with the file of its passphrase if it has one. If the files are as they were when
/// `current` was read, it is that one, and nothing is parsed. `None`: the errors were added to `mistakes`.
pub(super) fn read_pair(
    cert: &Path,
    key: &Path,
    passphrase: Option<&Path>,
    current: Option<&Pem>,
    mistakes: &mut Vec<String>,
) -> Option<Pem> {
    let names = (cert.display().to_string(), key.display().to_string());
    let words = |error: IdentityError| match error.problem {
        IdentityProblem::CertificateInsteadOfKey if cert == key => format!(
            "{}: has no key, neither in this file nor in {} beside it",
            error.file,
            cert.with_extension("key").display()
        ),
        IdentityProblem::EncryptedKey => format!(
            "{}: is encrypted with a passphrase; write it to a file readable only by its owner, and add passphrase = \"FILE\" \
             beside `cert` and `key`",
            error.file
        ),
        _ => error.to_string(),
    };
    let chain = read_file(cert);
    let key_source = KeySource::read(key, passphrase);
    let source = match (&chain, &key_source) {
        (Ok(chain), Ok(key)) => {
            let parts = [names.0.as_bytes(), names.1.as_bytes(), chain.text()];
            Some(digest(&[&parts[..], &key.parts()].concat()))
        }
        _ => None,
    };
    if let Some(current) = current.filter(|pem| source.is_some() && pem.source() == source) {
        return Some(current.clone());
    }
    let chain = chain.and_then(|file| file.chain().map_err(words));
    let key = key_source.and_then(|source| source.key(&names.1).map_err(words));
    match (chain, key, source) {
        (Ok(chain), Ok(mut key), Some(source)) => {
            let contents = PemContents {
                name: names.0,
                key_name: names.1,
                chain,
                ocsp: Vec::new(),
                ocsp_from_file: false,
                is_pushed: false,
                // Moved: a copy would not be wiped.
                key: std::mem::take(&mut *key),
            };
            Some(Pem::of_files(contents, source))
        }
        (chain, key, _) => {
            let mut found: Vec<String> = chain.err().into_iter().chain(key.err()).collect();
            // One file has both.
            found.dedup();
            mistakes.append(&mut found);
            None
        }
    }
}

/// Where a key comes from.
enum KeySource {
    /// A token: its URI is the key's name.
    Token,
    /// A file, and the passphrase for it.
    File(PemFile, Option<Zeroizing<Vec<u8>>>),
}

impl KeySource {
    fn read(key: &Path, passphrase: Option<&Path>) -> Result<KeySource, String> {
        if TokenKey::is_uri(key) {
            return Ok(KeySource::Token);
        }
        let read = |path| read_secret_line(path, "the passphrase of a key");
        let passphrase = passphrase.map(read).transpose()?;
        Ok(KeySource::File(read_file(key)?, passphrase))
    }

    /// Everything that the key depends on.
    fn parts(&self) -> [&[u8]; 2] {
        match self {
            KeySource::Token => [&[], &[]],
            KeySource::File(file, passphrase) => {
                let passphrase = passphrase.as_ref().map(|bytes| bytes.as_slice());
                [file.text(), passphrase.unwrap_or_default()]
            }
        }
    }

    fn key(&self, name: &str) -> Result<Zeroizing<String>, IdentityError> {
        match self {
            KeySource::Token => Ok(Zeroizing::new(name.to_owned())),
            KeySource::File(file, passphrase) => {
                file.key_with(passphrase.as_ref().map(|bytes| bytes.as_slice()))
            }
        }
    }
}

/// Reads the OCSP response from its file, if there is one. A response for another certificate is an
/// error; an expired one is a warning, and the certificate is served without it.
pub(super) fn read_staple(
    pair: &PairFiles,
    pem: &mut Pem,
    identity: &mut Identity,
    warnings: &mut Vec<String>,
) -> Result<(), String> {
    let Some(path) = &pair.ocsp else {
        return Ok(());
    };
    pem.change(|pem| pem.ocsp_from_file = true);
    let shown = path.display();
    let read = open_regular(path).and_then(|file| {
        let mut bytes = Vec::new();
        file.take(OCSP_MAX).read_to_end(&mut bytes).map(|_| bytes)
    });
    let response = read.map_err(|error| unreadable(path, &error))?;
    match identity.staple(&response, unix_time()) {
        Ok(_) => pem.change(|pem| pem.ocsp = response),
        Err(problem @ OcspProblem::NotNow(_)) => warnings.push(format!("{shown}: {problem}")),
        Err(problem) => return Err(format!("{shown}: {problem}")),
    }
    Ok(())
}

/// Reuses an OCSP response that was fetched for the same chain.
pub(super) fn keep_response(pem: &mut Pem, former: &Former<'_>) {
    if !pem.ocsp_from_file
        && let Some(other) = former.with_chain(&pem.chain)
    {
        pem.change(|pem| pem.ocsp.clone_from(&other.ocsp));
    }
}

/// Current and imminent problems of a certificate.
pub(super) fn warnings_of(identity: &Identity, name: &str) -> Vec<String> {
    let warnings = identity.warnings(unix_time()).into_iter();
    warnings
        .map(|warning| format!("{name}: {warning}"))
        .collect()
}

/// Reads a file with a chain or a key, if it is one: a pipe would block main.
fn read_file(path: &Path) -> Result<PemFile, String> {
    let file = open_regular(path).map_err(|error| unreadable(path, &error))?;
    let len = file.metadata().map_or(0, |found| found.len());
    PemFile::read_from(file, len, path).map_err(|error| error.to_string())
}

/// Reads a file, if it is one: a pipe would block main.
pub(super) fn read_with(
    read: fn(&Path) -> Result<PemFile, IdentityError>,
    path: &Path,
) -> Result<PemFile, String> {
    open_regular(path).map_err(|error| unreadable(path, &error))?;
    read(path).map_err(|error| error.to_string())
}
