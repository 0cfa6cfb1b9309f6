//! What a PEM text holds: the certificates of a chain or of authorities, a key, revocation lists.
//!
//! Each reader takes the sections that it is about. It passes over others as OpenSSL does (a key beside its chain, a
//! chain beside its key), unless they would be missed: a revocation list among authorities is refused.

use base64::prelude::*;
use rustls::RootCertStore;
use rustls_pki_types::{
    CertificateDer, CertificateRevocationListDer, PrivateKeyDer, PrivatePkcs1KeyDer,
    PrivatePkcs8KeyDer, PrivateSec1KeyDer,
};
use zeroize::Zeroizing;

use crate::failure::words::in_words;
use crate::x509::der::{Der, Tag};
use crate::x509::identity_error::{IdentityError, IdentityProblem};
use crate::x509::outline::Outline;
use crate::x509::pem::encrypted_key;
use crate::x509::pem::foreign;
use crate::x509::pem::kind::Kind;
use crate::x509::pem::sections::{self, Section};
use crate::x509::revocation_list;

/// Something in a PEM text, and the line where it begins.
pub(crate) type Located<T> = (usize, T);

/// Returns the certificates in a PEM text, DER, at least one, in order. `name` is for errors.
pub fn certificates(pem: &[u8], name: &str) -> Result<Vec<Vec<u8>>, IdentityError> {
    let chain = chain(pem, name)?;
    Ok(chain.iter().map(|one| one.to_vec()).collect())
}

/// Returns the certificates of a chain, at least one, in order.
pub(crate) fn chain(
    text: &[u8],
    name: &str,
) -> Result<Vec<CertificateDer<'static>>, IdentityError> {
    let all = certificates_of(sections(text, name)?, name)?;
    Ok(all.into_iter().map(|(_, one)| one).collect())
}

/// Returns the certificates of authorities, at least one, in order.
pub(crate) fn authorities(
    text: &[u8],
    name: &str,
) -> Result<Vec<Located<CertificateDer<'static>>>, IdentityError> {
    let sections = sections(text, name)?;
    for section in &sections {
        let why = match section.kind {
            Kind::RevocationList => {
                "a revocation list among authorities has no effect; put it into a file of its own"
            }
            // They may say that this is no authority for this purpose.
            Kind::TrustedCertificate if has_trust_settings(&section.der) => {
                "the certificate has settings of trust that only OpenSSL applies; remove them: openssl x509 -in FILE \
                 -clrtrust -clrreject -out FILE"
            }
            _ => continue,
        };
        return Err(IdentityProblem::bad_pem(section.line, why).of(name));
    }
    certificates_of(sections, name)
}

/// Reads a bundle, and returns its certificates too. The operator chose it, so each of them must be usable. `name` is
/// for errors.
pub(crate) fn roots(
    bundle: &[u8],
    name: &str,
) -> Result<(RootCertStore, Vec<CertificateDer<'static>>), IdentityError> {
    let mut store = RootCertStore::empty();
    let mut certificates = Vec::new();
    for (line, certificate) in authorities(bundle, name)? {
        store.add(certificate.clone()).map_err(|error| {
            let why = format!(
                "the certificate cannot be an authority: {}",
                in_words(&error)
            );
            IdentityProblem::bad_pem(line, why).of(name)
        })?;
        certificates.push(certificate);
    }
    Ok((store, certificates))
}

/// The error for a bundle without a name.
pub(crate) fn in_bundle(refused: &IdentityError) -> String {
    match &refused.problem {
        problem @ IdentityProblem::BadPem { .. } => problem.to_string(),
        problem => format!("the bundle {problem}"),
    }
}

fn certificates_of(
    sections: Vec<Section>,
    name: &str,
) -> Result<Vec<Located<CertificateDer<'static>>>, IdentityError> {
    let mut certificates = Vec::new();
    let mut instead = IdentityProblem::NoCertificate;
    for section in sections {
        if section.kind.is_key() {
            instead = IdentityProblem::KeyInsteadOfCertificate;
        } else if section.kind == Kind::Request {
            instead = IdentityProblem::RequestInsteadOfCertificate;
        }
        if section.kind.is_certificate() {
            let line = section.line;
            let certificate = certificate(section).ok_or_else(|| {
                let why = "the section is not a certificate: its DER is invalid";
                IdentityProblem::bad_pem(line, why).of(name)
            })?;
            certificates.push((line, certificate));
        }
    }
    match certificates.is_empty() {
        false => Ok(certificates),
        true => Err(instead.of(name)),
    }
}

/// The certificate of a section, without OpenSSL's settings of trust, which say nothing to a peer.
fn certificate(mut section: Section) -> Option<CertificateDer<'static>> {
    let mut der = std::mem::take(&mut *section.der);
    if section.kind == Kind::TrustedCertificate {
        let (certificate, _) = Der::first(&der)?;
        der.truncate(certificate.len());
    }
    Outline::read(&der)?;
    Some(CertificateDer::from(der))
}

/// Whether a certificate is followed by purposes for which it is trusted or rejected (X509_CERT_AUX of OpenSSL).
/// Otherwise at most a name and an identifier of its key follow.
fn has_trust_settings(trusted: &[u8]) -> bool {
    let rest = Der::first(trusted).map_or(trusted, |(_, rest)| rest);
    let purposes = |rest| {
        let mut settings = Der::whole(rest)?.enter(Tag::SEQUENCE)?;
        while let Some((tag, _)) = settings.any() {
            if matches!(tag, Tag::SEQUENCE | Tag::CONTEXT_0_CONSTRUCTED) {
                return Some(true);
            }
        }
        settings.is_empty().then_some(false)
    };
    // Settings that cannot be read may be such purposes.
    !rest.is_empty() && purposes(rest) != Some(false)
}

/// Returns the revocation lists, at least one, in order. Of each, only the beginning is checked.
pub(crate) fn revocation_lists(
    text: &[u8],
    name: &str,
) -> Result<Vec<Located<CertificateRevocationListDer<'static>>>, IdentityError> {
    let mut lists = Vec::new();
    for mut section in sections(text, name)? {
        if section.kind == Kind::RevocationList {
            if let Some(why) = revocation_list::problem(&section.der) {
                return Err(IdentityProblem::bad_pem(section.line, why).of(name));
            }
            let list = CertificateRevocationListDer::from(std::mem::take(&mut *section.der));
            lists.push((section.line, list));
        }
    }
    match lists.is_empty() {
        false => Ok(lists),
        true => Err(IdentityProblem::NoRevocationList.of(name)),
    }
}

/// Returns the one private key in a text. One that is encrypted needs a passphrase.
pub(crate) fn key(
    text: &[u8],
    name: &str,
    passphrase: Option<&[u8]>,
) -> Result<Zeroizing<PrivateKeyDer<'static>>, IdentityError> {
    let mut keys: Vec<Section> = Vec::new();
    let mut instead = IdentityProblem::NoKey;
    for section in sections(text, name)? {
        if section.kind.is_certificate() {
            instead = IdentityProblem::CertificateInsteadOfKey;
        } else if section.kind == Kind::PublicKey {
            instead = IdentityProblem::PublicKeyInsteadOfKey;
        }
        // Several files were joined, each with the same key: this says no less than one of them.
        let is_known = keys.iter().any(|known| known.der == section.der);
        if section.kind.is_key() && !is_known {
            keys.push(section);
        }
    }
    let lines: Vec<usize> = keys.iter().map(|key| key.line).collect();
    let Some(mut key) = keys.pop().filter(|_| lines.len() == 1) else {
        let problem = match lines.is_empty() {
            false => IdentityProblem::SeveralKeys { lines },
            true => instead,
        };
        return Err(problem.of(name));
    };
    let is_encrypted = key.kind == Kind::EncryptedKey || looks_encrypted(&key.der);
    if is_encrypted {
        let passphrase = passphrase.ok_or_else(|| IdentityProblem::EncryptedKey.of(name))?;
        let opened = encrypted_key::decrypt(&key.der, passphrase);
        key.der = opened.map_err(|problem| problem.of(name))?;
    }
    // By its content, as OpenSSL does: some programs write the label of another format.
    let kind = match PrivateKeyDer::try_from(key.der.as_slice()) {
        Ok(PrivateKeyDer::Pkcs1(_)) => Kind::RsaKey,
        Ok(PrivateKeyDer::Sec1(_)) => Kind::EcKey,
        Ok(_) => Kind::Pkcs8Key,
        Err(_) => key.kind,
    };
    unwrap_public_half(&mut key.der);
    let der = std::mem::take(&mut *key.der);
    let key: PrivateKeyDer<'static> = match kind {
        Kind::RsaKey => PrivatePkcs1KeyDer::from(der).into(),
        Kind::EcKey => PrivateSec1KeyDer::from(der).into(),
        _ => PrivatePkcs8KeyDer::from(der).into(),
    };
    Ok(Zeroizing::new(key))
}

/// Corrects an Ed25519 key (RFC 8410 §7) whose public half has a tag around its own, as older versions of *ring* write it.
fn unwrap_public_half(der: &mut Vec<u8>) {
    const BEGIN: &[u8] = &[0x30, 0x53, 2, 1, 1, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70];
    const TAGS: &[u8] = &[0xa1, 0x23, 3, 0x21, 0];
    /// Of the key before its public half.
    const LEN: usize = 48;
    let is_wrapped = der.get(LEN..).is_some_and(|half| half.starts_with(TAGS));
    if der.starts_with(BEGIN) && is_wrapped {
        der.splice(LEN..LEN + TAGS.len(), [0x81, 0x21, 0]);
        if let Some(length) = der.get_mut(1) {
            *length -= 2;
        }
    }
}

/// Whether a key begins with an algorithm (RFC 5958 §3). Others begin with a version.
fn looks_encrypted(der: &[u8]) -> bool {
    let contents = Der::whole(der).and_then(|mut der| der.enter(Tag::SEQUENCE));
    contents.is_some_and(|mut contents| contents.enter(Tag::SEQUENCE).is_some())
}

fn sections(text: &[u8], name: &str) -> Result<Vec<Section>, IdentityError> {
    if text.iter().all(u8::is_ascii_whitespace) {
        return Err(IdentityProblem::Empty.of(name));
    }
    if let Some(format) = foreign::format(text) {
        return Err(IdentityProblem::NotPem(format).of(name));
    }
    let sections = sections::sections(text)
        .map_err(|bad| IdentityProblem::bad_pem(bad.line, bad.why).of(name))?;
    match sections.is_empty() {
        false => Ok(sections),
        true => Err(IdentityProblem::NoSection.of(name)),
    }
}

/// Encodes certificates as PEM, one behind the other.
pub(crate) fn encode_certificates<'a>(certificates: impl Iterator<Item = &'a [u8]>) -> String {
    let mut text = String::new();
    certificates.for_each(|der| text.push_str(&encode("CERTIFICATE", der)));
    text
}

/// Encodes a section (RFC 7468 §3). Leaves no copy of its content behind.
pub(crate) fn encode(label: &str, der: &[u8]) -> Zeroizing<String> {
    /// They make a line of 64 characters.
    const LINE: usize = 48;
    let (begin, end) = (
        format!("-----BEGIN {label}-----\n"),
        format!("-----END {label}-----\n"),
    );
    let lines = der.chunks(LINE).map(|line| line.len().div_ceil(3) * 4 + 1);
    let len = begin.len() + lines.sum::<usize>() + end.len();
    let mut text = Zeroizing::new(String::with_capacity(len));
    text.push_str(&begin);
    let mut line = Zeroizing::new([0; LINE / 3 * 4]);
    for content in der.chunks(LINE) {
        let encoded = BASE64_STANDARD.encode_slice(content, &mut *line);
        let encoded = encoded.ok().and_then(|len| line.get(..len));
        text.push_str(std::str::from_utf8(encoded.unwrap_or_default()).unwrap_or_default());
        text.push('\n');
    }
    text.push_str(&end);
    debug_assert_eq!(text.len(), len, "the text must not grow");
    text
}
