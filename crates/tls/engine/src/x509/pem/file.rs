//! Files of certificates, keys, authorities and revocation lists.

use std::io;
use std::path::Path;

use dormouse_printable::line_up_to;
use rustls_pki_types::{PrivateKeyDer, UnixTime};
use zeroize::Zeroizing;

use crate::x509::chain::DateProblem;
use crate::x509::identity_error::{IdentityError, IdentityProblem};
use crate::x509::outline::{Outline, name_as_text};
use crate::x509::pem::contents;

/// Maximum size of a file with certificates or a key.
const FILE_MAX: usize = 1 << 20;
/// Maximum size of a file with authorities or revocation lists. Public authorities have lists of 20 MiB; base64 adds a
/// third.
const TRUST_FILE_MAX: usize = 32 << 20;
/// Maximum length of a subject in a warning.
const SUBJECT_LEN_MAX: usize = 200;

/// A file in PEM. It is wiped when dropped, because it may have a key.
///
/// What it holds is returned as PEM of one form, whatever the form of the file: `chain` has certificates only, so it
/// may be passed on where a key must not be, and other readers find in it what was found here.
pub struct PemFile {
    name: String,
    text: Zeroizing<Vec<u8>>,
}

impl PemFile {
    /// Reads a file with a chain, a key, or both: up to 1 MiB.
    pub fn read(path: &Path) -> Result<PemFile, IdentityError> {
        PemFile::read_up_to(path, FILE_MAX)
    }

    /// As [`PemFile::read`], from an open file of this length. `path` is for errors.
    pub fn read_from(file: impl io::Read, len: u64, path: &Path) -> Result<PemFile, IdentityError> {
        PemFile::read_opened(file, len, path, FILE_MAX)
    }

    /// Reads a file with authorities or revocation lists: up to 32 MiB.
    pub fn read_trust(path: &Path) -> Result<PemFile, IdentityError> {
        PemFile::read_up_to(path, TRUST_FILE_MAX)
    }

    /// Takes a text from elsewhere. `name` is for errors.
    pub fn of(text: &[u8], name: &str) -> PemFile {
        PemFile {
            name: name.to_owned(),
            text: Zeroizing::new(text.to_vec()),
        }
    }

    /// Returns the file's path, or the name of a text.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the text as it is, for a reader of the same kind.
    pub fn text(&self) -> &[u8] {
        &self.text
    }

    /// Returns the certificates of a chain.
    pub fn chain(&self) -> Result<String, IdentityError> {
        let chain = contents::chain(&self.text, &self.name)?;
        Ok(contents::encode_certificates(
            chain.iter().map(AsRef::as_ref),
        ))
    }

    /// Returns the private key. It must not be encrypted.
    pub fn key(&self) -> Result<Zeroizing<String>, IdentityError> {
        self.key_with(None)
    }

    /// Returns the private key, decrypted with this passphrase if it is encrypted.
    pub fn key_with(&self, passphrase: Option<&[u8]>) -> Result<Zeroizing<String>, IdentityError> {
        let key = contents::key(&self.text, &self.name, passphrase)?;
        let label = match &*key {
            PrivateKeyDer::Pkcs1(_) => "RSA PRIVATE KEY",
            PrivateKeyDer::Sec1(_) => "EC PRIVATE KEY",
            _ => "PRIVATE KEY",
        };
        Ok(contents::encode(label, key.secret_der()))
    }

    /// Returns the certificates of authorities, each of which can be one.
    pub fn authorities(&self) -> Result<String, IdentityError> {
        let (_, all) = contents::roots(&self.text, &self.name)?;
        Ok(contents::encode_certificates(all.iter().map(AsRef::as_ref)))
    }

    /// Returns a warning if an authority is not valid at `now`. A trusted authority is a name and a key (RFC 5280
    /// §6.1.1), so what it has signed is accepted all the same.
    pub fn untimely_authorities(&self, now: UnixTime) -> Option<String> {
        let all = contents::authorities(&self.text, &self.name).unwrap_or_default();
        let mut untimely = all.iter().filter_map(|(line, der)| {
            let outline = Outline::read(der)?;
            let (from_s, until_s) = (outline.not_before_s, outline.not_after_s);
            match DateProblem::of(from_s, until_s, now.as_secs())? {
                DateProblem::ExpiresSoon { .. } => None,
                problem => Some((line, name_as_text(outline.subject), problem)),
            }
        });
        let (line, subject, problem) = untimely.next()?;
        let subject = line_up_to(&subject, SUBJECT_LEN_MAX);
        let more = match untimely.count() {
            0 => String::new(),
            more => format!(" ({more} more of this file are not valid either)"),
        };
        Some(format!(
            "{}:{line}: the authority {subject} {problem}, but certificates that it has signed are accepted{more}; \
             remove it unless that is meant",
            self.name
        ))
    }

    /// Returns the revocation lists.
    pub fn revocation_lists(&self) -> Result<String, IdentityError> {
        let lists = contents::revocation_lists(&self.text, &self.name)?;
        let mut text = String::new();
        for (_, list) in lists {
            text.push_str(&contents::encode("X509 CRL", &list));
        }
        Ok(text)
    }

    fn read_up_to(path: &Path, max: usize) -> Result<PemFile, IdentityError> {
        let opened = std::fs::File::open(path).map_err(|error| {
            IdentityProblem::Unreadable(error.to_string()).of(&path.display().to_string())
        });
        let file = opened?;
        let expected = file.metadata().map_or(0, |found| found.len());
        PemFile::read_opened(file, expected, path, max)
    }

    fn read_opened(
        mut file: impl io::Read,
        expected: u64,
        path: &Path,
        max: usize,
    ) -> Result<PemFile, IdentityError> {
        let name = path.display().to_string();
        let unreadable =
            |error: io::Error| IdentityProblem::Unreadable(error.to_string()).of(&name);
        // Allocated in full at the start, because a growing vector leaves copies behind.
        let room = match usize::try_from(expected) {
            // A pipe, as in `--cert <(command)`, has no length.
            Ok(0) | Err(_) => max + 1,
            Ok(expected) => expected.min(max) + 1,
        };
        let mut text = Zeroizing::new(vec![0; room]);
        let mut len = 0;
        loop {
            let Some(rest) = text.get_mut(len..).filter(|rest| !rest.is_empty()) else {
                // The file is too large, or it grew just now; then the next read succeeds.
                return Err(IdentityProblem::TooLarge { max }.of(&name));
            };
            match file.read(rest) {
                Ok(0) => break,
                Ok(count) => len += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(unreadable(error)),
            }
        }
        text.truncate(len);
        Ok(PemFile { name, text })
    }
}
