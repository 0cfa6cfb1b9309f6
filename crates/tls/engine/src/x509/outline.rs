//! A certificate's parts, without a look into its extensions: a hostile peer sends thousands of those, and reading all
//! that they contain takes a hundred times as long.

use aws_lc_rs::digest;
use x509_parser::prelude::FromDer as _;
use x509_parser::x509::X509Name;

use crate::x509::der::{Der, Tag, sequence};

/// Maximum length of a name that is read. Names that people give are not a tenth as long.
const NAME_LEN_MAX: usize = 4_096;

/// The parts of a certificate (RFC 5280 §4.1). Names, keys and algorithms are the contents of their elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Outline<'a> {
    pub(crate) der: &'a [u8],
    /// The part that is signed.
    pub(crate) signed: &'a [u8],
    /// The algorithm of the signature.
    pub(crate) algorithm: &'a [u8],
    pub(crate) signature: &'a [u8],
    pub(crate) serial: &'a [u8],
    pub(crate) issuer: &'a [u8],
    pub(crate) subject: &'a [u8],
    /// The subject's public key with its algorithm.
    pub(crate) key: &'a [u8],
    /// Its first second, in Unix time.
    pub(crate) not_before_s: u64,
    /// Its last second.
    pub(crate) not_after_s: u64,
    /// The elements after the key.
    rest: Der<'a>,
}

/// Returns the SHA-256 digest of a certificate, DER.
pub fn fingerprint(certificate: &[u8]) -> [u8; 32] {
    let digest = digest::digest(&digest::SHA256, certificate);
    let bytes = digest.as_ref().first_chunk();
    *bytes.expect("SHA-256 has 32 bytes")
}

/// A use of a key: its bit in the extension (RFC 5280 §4.2.1.3).
#[derive(Debug, Clone, Copy)]
pub(crate) enum KeyUsage {
    /// digitalSignature.
    Signature = 0x80,
    /// keyCertSign.
    CertSign = 0x04,
}

/// An extension of a certificate (RFC 5280 §4.2), or of a revocation list.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Extension<'a> {
    /// Its identifier, encoded.
    pub(crate) id: &'a [u8],
    pub(crate) is_critical: bool,
    pub(crate) value: &'a [u8],
}

/// The identifiers of extensions that are read here.
pub(crate) mod id {
    pub(crate) const KEY_USAGE: &[u8] = &[0x55, 0x1d, 15];
    pub(crate) const ALTERNATIVE_NAME: &[u8] = &[0x55, 0x1d, 17];
    pub(crate) const BASIC_CONSTRAINTS: &[u8] = &[0x55, 0x1d, 19];
    pub(crate) const NAME_CONSTRAINTS: &[u8] = &[0x55, 0x1d, 30];
    pub(crate) const REVOCATION_LISTS: &[u8] = &[0x55, 0x1d, 31];
    pub(crate) const EXTENDED_KEY_USAGE: &[u8] = &[0x55, 0x1d, 37];
    pub(crate) const TLS_FEATURE: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 1, 24];
    // Of revocation lists.
    pub(crate) const AUTHORITY_KEY: &[u8] = &[0x55, 0x1d, 35];
    pub(crate) const LIST_NUMBER: &[u8] = &[0x55, 0x1d, 20];
    pub(crate) const ISSUING_POINT: &[u8] = &[0x55, 0x1d, 28];
}

impl<'a> Outline<'a> {
    /// Reads a certificate, DER. `None`: it is none.
    pub(crate) fn read(der: &'a [u8]) -> Option<Outline<'a>> {
        let mut certificate = Der::whole(der)?.enter(Tag::SEQUENCE)?;
        let signed = certificate.element(Tag::SEQUENCE)?;
        let algorithm = certificate.expect(Tag::SEQUENCE)?;
        let signature = certificate.expect(Tag::BITS)?.strip_prefix(&[0])?;
        let mut contents = Der::whole(signed)?.enter(Tag::SEQUENCE)?;
        contents.skip(Tag::CONTEXT_0_CONSTRUCTED); // its version
        let serial = contents.expect(Tag::INTEGER)?;
        contents.expect(Tag::SEQUENCE)?; // the algorithm again
        let issuer = contents.expect(Tag::SEQUENCE)?;
        let mut validity = contents.enter(Tag::SEQUENCE)?;
        let positive = |s: i64| u64::try_from(s).unwrap_or(0);
        let (not_before_s, not_after_s) = (validity.time()?, validity.time()?);
        let subject = contents.expect(Tag::SEQUENCE)?;
        let key = contents.expect(Tag::SEQUENCE)?;
        Some(Outline {
            der,
            signed,
            algorithm,
            signature,
            serial,
            issuer,
            subject,
            key,
            not_before_s: positive(not_before_s),
            not_after_s: positive(not_after_s),
            rest: contents,
        })
    }

    /// Returns its extensions up to the first that is invalid.
    pub(crate) fn extensions(&self) -> impl Iterator<Item = Extension<'a>> + use<'a> {
        let mut rest = self.rest;
        extensions_in(rest.enter(Tag::CONTEXT_3_CONSTRUCTED))
    }

    /// Returns the value of one extension.
    pub(crate) fn extension(&self, id: &[u8]) -> Option<&'a [u8]> {
        let found = self.extensions().find(|extension| extension.id == id);
        found.map(|extension| extension.value)
    }

    /// Whether it is signed with SHA-1 or MD5.
    pub(crate) fn has_old_signature(&self) -> bool {
        /// md5WithRSAEncryption, sha1WithRSAEncryption (RFC 8017), ecdsa-with-SHA1 (RFC 3279).
        const OLD: [&[u8]; 3] = [
            &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 4],
            &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 5],
            &[0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 1],
        ];
        let algorithm = Der::contents(self.algorithm).expect(Tag::OID);
        algorithm.is_some_and(|algorithm| OLD.contains(&algorithm))
    }

    /// Whether its key may sign certificates: its key usage has keyCertSign, or there is none (RFC 5280 §4.2.1.3).
    pub(crate) fn may_sign(&self) -> bool {
        self.has_usage(KeyUsage::CertSign)
    }

    /// Whether its key may be used for this. Without the extension, it may be used for everything.
    pub(crate) fn has_usage(&self, wanted: KeyUsage) -> bool {
        self.extension(id::KEY_USAGE).is_none_or(|usage| {
            // The first byte counts the unused bits.
            let bits = Der::whole(usage).and_then(|mut usage| usage.expect(Tag::BITS));
            matches!(bits, Some([_, first, ..]) if first & wanted as u8 != 0)
        })
    }

    /// Whether it names its subject as its issuer.
    pub(crate) fn is_self_issued(&self) -> bool {
        self.issuer == self.subject
    }
}

/// Returns the extensions in this element up to the first that is invalid.
pub(crate) fn extensions_in<'a>(element: Option<Der<'a>>) -> impl Iterator<Item = Extension<'a>> {
    let mut list = element.and_then(|mut element| element.enter(Tag::SEQUENCE));
    std::iter::from_fn(move || {
        let mut parts = list.as_mut()?.enter(Tag::SEQUENCE)?;
        Some(Extension {
            id: parts.expect(Tag::OID)?,
            is_critical: parts.expect(Tag::BOOLEAN).is_some_and(|value| value != [0]),
            value: parts.expect(Tag::OCTETS)?,
        })
    })
}

/// Reads a name of an outline. Returns `None` if it is invalid or too long.
pub(crate) fn read_name<T>(name: &[u8], read: impl FnOnce(&X509Name<'_>) -> T) -> Option<T> {
    if name.len() > NAME_LEN_MAX {
        return None;
    }
    let element = sequence(&[name]);
    let (_, name) = X509Name::from_der(&element).ok()?;
    Some(read(&name))
}

/// Returns a name of an outline as text for messages. The peer chose its characters.
pub(crate) fn name_as_text(name: &[u8]) -> String {
    let text = read_name(name, |name| name.to_string());
    text.unwrap_or_else(|| format!("a name of {} bytes", name.len()))
}
