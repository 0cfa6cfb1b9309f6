//! Reads certificates and keys from PEM, with errors that name what was found instead.

use std::io::{self, Read as _};
use std::path::Path;

use base64::prelude::*;
use rustls_pki_types::pem::SectionKind;
use rustls_pki_types::{
    CertificateDer, PrivateKeyDer, PrivatePkcs1KeyDer, PrivatePkcs8KeyDer, PrivateSec1KeyDer,
};

use zeroize::Zeroizing;

use crate::x509::identity_error::{IdentityError, IdentityProblem};

/// Maximum size of a file with certificates or a key.
const FILE_MAX: usize = 1 << 20;
/// Maximum size of a file with authorities or revocation lists. Public authorities have lists of 20 MiB; base64 adds a
/// third.
const TRUST_FILE_MAX: usize = 32 << 20;

/// Reads a PEM file for [`crate::Identity`]: up to 1 MiB. The text is wiped when dropped, because it may be a key.
pub fn read_file(path: &Path) -> Result<Zeroizing<String>, IdentityError> {
    read_up_to(path, FILE_MAX)
}

/// Reads a PEM file for [`crate::TrustStore`] and [`crate::ClientCertificates`]: up to 32 MiB.
pub fn read_trust_file(path: &Path) -> Result<String, IdentityError> {
    read_up_to(path, TRUST_FILE_MAX).map(|mut text| std::mem::take(&mut *text))
}

fn read_up_to(path: &Path, max: usize) -> Result<Zeroizing<String>, IdentityError> {
    let refuse = |problem| IdentityError {
        file: path.display().to_string(),
        problem,
    };
    let unreadable = |error: io::Error| refuse(IdentityProblem::Unreadable(error.to_string()));
    let mut file = std::fs::File::open(path).map_err(unreadable)?;
    // Allocated in full at the start, because a growing vector leaves copies behind.
    let expected = file.metadata().map_or(0, |found| found.len());
    let room = match usize::try_from(expected) {
        // A pipe, as in `--cert <(command)`, has no length.
        Ok(0) | Err(_) => max + 1,
        Ok(expected) => expected.min(max) + 1,
    };
    let mut bytes = Zeroizing::new(vec![0; room]);
    let mut len = 0;
    loop {
        let Some(rest) = bytes.get_mut(len..).filter(|rest| !rest.is_empty()) else {
            // The file is too large, or it grew just now; then the next read succeeds.
            return Err(refuse(IdentityProblem::TooLarge { max }));
        };
        match file.read(rest) {
            Ok(0) => break,
            Ok(count) => len += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(unreadable(error)),
        }
    }
    let text = std::str::from_utf8(bytes.get(..len).unwrap_or_default());
    let text = text.map_err(|_| refuse(IdentityProblem::NotPem))?;
    // A byte order mark would hide the file's first line.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    Ok(Zeroizing::new(text.to_owned()))
}

/// Returns the certificates in a PEM text, DER, in order; `None` if there are none that can be read.
pub fn certificates(pem: &[u8]) -> Option<Vec<Vec<u8>>> {
    let chain = chain(pem, "").ok()?;
    Some(chain.iter().map(|one| one.to_vec()).collect())
}

/// Returns the certificates in `bytes`, at least one, in order.
pub(crate) fn chain(
    bytes: &[u8],
    name: &str,
) -> Result<Vec<CertificateDer<'static>>, IdentityError> {
    let mut chain = Vec::new();
    let mut keys = 0;
    for (kind, mut der) in sections(bytes, name)? {
        match kind {
            SectionKind::Certificate => chain.push(CertificateDer::from(std::mem::take(&mut *der))),
            kind if is_key(kind) => keys += 1,
            _ => {}
        }
    }
    if !chain.is_empty() {
        return Ok(chain);
    }
    let problem = if keys > 0 || is_encrypted(bytes) {
        IdentityProblem::KeyInsteadOfCertificate
    } else {
        IdentityProblem::NoCertificate
    };
    Err(IdentityError {
        file: name.to_owned(),
        problem,
    })
}

/// Returns the one private key in `bytes`.
pub(crate) fn key(
    bytes: &[u8],
    name: &str,
) -> Result<Zeroizing<PrivateKeyDer<'static>>, IdentityError> {
    let refuse = |problem| {
        Err(IdentityError {
            file: name.to_owned(),
            problem,
        })
    };
    // Checked first: an old-style encrypted key would look like a broken one.
    if is_encrypted(bytes) {
        return refuse(IdentityProblem::EncryptedKey);
    }
    let mut keys: Vec<Zeroizing<PrivateKeyDer<'static>>> = Vec::new();
    let mut certificates = 0;
    for (kind, mut der) in sections(bytes, name)? {
        let mut moved = || std::mem::take(&mut *der);
        let key: PrivateKeyDer<'static> = match kind {
            SectionKind::PrivateKey => PrivatePkcs8KeyDer::from(moved()).into(),
            SectionKind::RsaPrivateKey => PrivatePkcs1KeyDer::from(moved()).into(),
            SectionKind::EcPrivateKey => PrivateSec1KeyDer::from(moved()).into(),
            other => {
                certificates += usize::from(other == SectionKind::Certificate);
                continue;
            }
        };
        keys.push(Zeroizing::new(key));
    }
    let count = keys.len();
    match (keys.pop(), count) {
        (Some(key), 1) => Ok(key),
        (Some(_), _) => refuse(IdentityProblem::SeveralKeys(count)),
        (None, _) if certificates > 0 => refuse(IdentityProblem::CertificateInsteadOfKey),
        (None, _) => refuse(IdentityProblem::NoKey),
    }
}

/// A section's kind, and its bytes.
type Section = (SectionKind, Zeroizing<Vec<u8>>);

fn sections(bytes: &[u8], name: &str) -> Result<Vec<Section>, IdentityError> {
    let problem = |problem| IdentityError {
        file: name.to_owned(),
        problem,
    };
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Err(problem(IdentityProblem::Empty));
    }
    if !contains(bytes, b"-----BEGIN ") {
        return Err(problem(IdentityProblem::NotPem));
    }
    decode_all(bytes).map_err(|why| problem(IdentityProblem::BadPem(why)))
}

/// Decodes all sections of known kinds (RFC 7468). Unlike rustls_pki_types, this leaves no copy of a key behind.
fn decode_all(bytes: &[u8]) -> Result<Vec<Section>, String> {
    let mut sections = Vec::new();
    let mut label: Option<&[u8]> = None;
    // With room for all: a growing vector leaves copies behind.
    let mut encoded = Zeroizing::new(Vec::with_capacity(bytes.len()));
    let lines = bytes.split(|byte| matches!(byte, b'\n' | b'\r'));
    for line in lines {
        if let Some(begun) = line.strip_prefix(b"-----BEGIN ") {
            if let Some(label) = label {
                return Err(without_end(label));
            }
            let begun = begun
                .trim_ascii_end()
                .strip_suffix(b"-----")
                .ok_or_else(|| format!("this line begins no section: {}", shown(line)))?;
            label = Some(begun);
            encoded.clear();
        } else if let Some(begun) = label {
            let end = line.strip_prefix(b"-----END ");
            let rest = end.and_then(|end| end.strip_prefix(begun));
            if rest.is_some_and(|rest| rest.starts_with(b"-----")) {
                label = None;
                if let Ok(kind) = SectionKind::try_from(begun) {
                    sections.push((kind, decode(&encoded)?));
                }
            } else {
                encoded.extend(line.iter().filter(|byte| !byte.is_ascii_whitespace()));
            }
        }
    }
    match label {
        None => Ok(sections),
        Some(label) => Err(without_end(label)),
    }
}

/// Decodes base64 (RFC 4648 §4). Some programs leave out the padding.
fn decode(encoded: &[u8]) -> Result<Zeroizing<Vec<u8>>, String> {
    let len = encoded.iter().rposition(|&byte| byte != b'=');
    let encoded = encoded.get(..=len.unwrap_or_default()).unwrap_or_default();
    let room = base64::decoded_len_estimate(encoded.len());
    let mut der = Zeroizing::new(Vec::with_capacity(room));
    match BASE64_STANDARD_NO_PAD.decode_vec(encoded, &mut der) {
        Ok(()) => Ok(der),
        Err(error) => Err(format!("base64: {error}")),
    }
}

fn without_end(label: &[u8]) -> String {
    format!("no line ends the section {}", shown(label))
}

/// The beginning of a line: a damaged file may be one long line.
fn shown(line: &[u8]) -> std::slice::EscapeAscii<'_> {
    line.get(..64).unwrap_or(line).escape_ascii()
}

fn is_key(kind: SectionKind) -> bool {
    matches!(
        kind,
        SectionKind::PrivateKey | SectionKind::RsaPrivateKey | SectionKind::EcPrivateKey
    )
}

/// PKCS #8 marks encryption in its label, the older forms in a header (RFC 1421).
fn is_encrypted(bytes: &[u8]) -> bool {
    contains(bytes, b"BEGIN ENCRYPTED PRIVATE KEY") || contains(bytes, b"Proc-Type: 4,ENCRYPTED")
}

fn contains(bytes: &[u8], needle: &[u8]) -> bool {
    bytes.windows(needle.len()).any(|window| window == needle)
}

/// Encodes a certificate as PEM (RFC 7468 §5.1).
pub(crate) fn encode(certificate: &[u8]) -> String {
    let mut text = "-----BEGIN CERTIFICATE-----\n".to_owned();
    // 48 bytes make a line of 64 characters.
    for line in certificate.chunks(48) {
        BASE64_STANDARD.encode_string(line, &mut text);
        text.push('\n');
    }
    text.push_str("-----END CERTIFICATE-----\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encoded_certificates_are_read_back() {
        for len in [1, 2, 3, 47, 48, 49, 1_000] {
            let der: Vec<u8> = (0..len).map(|n| (n * 7) as u8).collect();
            let again = chain(encode(&der).as_bytes(), "test").unwrap();
            assert_eq!(again, [CertificateDer::from(der)]);
        }
    }

    /// Texts as other programs write them, and damaged ones.
    #[test]
    fn sections_are_read_as_rustls_pki_types_reads_them() {
        use rustls_pki_types::pem::{Error, PemObject as _};
        let (certificate, key) = crate::Identity::self_signed_pem("localhost").unwrap();
        let whole = format!("a comment\n{certificate}\nanother\n{}", *key);
        let unknown = "-----BEGIN DH PARAMETERS-----\nMA==\n-----END DH PARAMETERS-----\n";
        let mut texts = vec![
            whole.clone(),
            whole.replace('\n', "\r\n"),
            whole.replace('\n', " \n"),
            whole.replace('\n', "\n\n"),
            whole.replace("\nM", "\n  M"),
            whole.replace("-----\n", "-----   \n"),
            whole.replace("-----END PRIVATE KEY-----", ""),
            whole.replace("-----BEGIN PRIVATE KEY-----", "-----BEGIN PRIVATE KEY"),
            whole.replace("=", ""),
            unknown.to_owned() + &whole,
            whole.replace("PRIVATE KEY", "EC PRIVATE KEY"),
            "no section".to_owned(),
        ];
        for at in (0..whole.len()).step_by(7) {
            texts.push(whole[..at].to_owned());
            let mut changed = whole.clone().into_bytes();
            changed[at] = b'-';
            texts.push(String::from_utf8(changed).unwrap());
        }
        for text in texts {
            let ours = decode_all(text.as_bytes()).ok().map(|sections| {
                let plain = |(kind, der): (SectionKind, Zeroizing<Vec<u8>>)| (kind, der.to_vec());
                sections.into_iter().map(plain).collect::<Vec<_>>()
            });
            let theirs = <(SectionKind, Vec<u8>)>::pem_slice_iter(text.as_bytes());
            let theirs = theirs.collect::<Result<Vec<_>, Error>>().ok();
            assert!(
                ours == theirs,
                "{text}\n{:?}",
                decode_all(text.as_bytes()).err()
            );
        }
    }

    #[test]
    fn a_pipe_is_read_to_its_end() {
        use std::io::Write as _;
        use std::os::fd::AsRawFd as _;
        let (reader, mut writer) = std::io::pipe().unwrap();
        writer.write_all(b"some text").unwrap();
        drop(writer);
        let path = format!("/proc/self/fd/{}", reader.as_raw_fd());
        assert_eq!(read_file(Path::new(&path)).unwrap().as_str(), "some text");
    }

    #[test]
    fn each_kind_of_file_has_a_limit_that_its_error_names() {
        let path = std::env::temp_dir().join(format!("dormouse-pem-{}", std::process::id()));
        let read = |len: usize| {
            std::fs::write(&path, vec![b'x'; len]).unwrap();
            (read_file(&path), read_trust_file(&path))
        };
        let (pair, trust) = read((1 << 20) + 1);
        assert!(pair.unwrap_err().to_string().contains("larger than 1 MiB"));
        assert_eq!(trust.unwrap().len(), (1 << 20) + 1);
        let (_, trust) = read((32 << 20) + 1);
        assert!(
            trust
                .unwrap_err()
                .to_string()
                .contains("larger than 32 MiB")
        );
        std::fs::remove_file(path).unwrap();
    }
}
