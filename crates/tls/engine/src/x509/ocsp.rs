//! OCSP (RFC 6960): responses that say a certificate is not revoked, which are sent with the certificate (RFC
//! 6066 §8), and requests for them.
//!
//! A response is used only if it is about this certificate, says "good", is valid now, and is signed by the
//! issuer or a responder that the issuer authorised. If the chain lacks the issuer, the signature cannot be
//! checked here; clients check it.

use std::fmt;

use aws_lc_rs::digest;
use aws_lc_rs::signature::{self, UnparsedPublicKey, VerificationAlgorithm};
use rustls_pki_types::UnixTime;
use x509_parser::prelude::{FromDer, GeneralName, ParsedExtension, X509Certificate};

use crate::failure::utc;
use crate::x509::der::{Der, Tag, octets, seconds, sequence, tagged};

/// Maximum clock difference.
const SKEW_S: i64 = 300;
/// Validity of a response without an end.
const UNLIMITED_S: i64 = 7 * 86_400;
/// Maximum length of a response. They have 300 bytes to 3 kB; longer ones are not sent with every handshake.
const RESPONSE_MAX: usize = 16 * 1024;

const SHA1: &[u8] = &[0x2b, 0x0e, 0x03, 0x02, 0x1a];
const SHA256: &[u8] = &[0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 0x01];
const BASIC_RESPONSE: &[u8] = &[0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x30, 0x01, 0x01];
const OCSP: &str = "1.3.6.1.5.5.7.48.1";

/// Validity of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OcspTimes {
    /// Start, in seconds of Unix time.
    pub from_s: u64,
    /// End, in seconds of Unix time.
    pub until_s: u64,
}

/// Why a response is not used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OcspProblem {
    /// It cannot be parsed.
    Malformed,
    /// It exceeds the maximum length.
    TooLarge,
    /// The responder returned this error.
    NoAnswer(&'static str),
    /// It is about another certificate.
    OtherCertificate,
    /// It says that the certificate is revoked.
    Revoked,
    /// The responder does not know the certificate.
    Unknown,
    /// It is not valid now.
    NotNow(OcspTimes),
    /// It is signed neither by the issuer nor by a responder of the issuer.
    BadSignature,
}

impl fmt::Display for OcspProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed => {
                f.write_str("is not an OCSP response in DER (openssl ocsp -respout writes one)")
            }
            Self::TooLarge => write!(
                f,
                "is larger than {RESPONSE_MAX} bytes, the limit for an OCSP response"
            ),
            Self::NoAnswer(why) => write!(f, "is an error of the responder: {why}"),
            Self::OtherCertificate => f.write_str("is about another certificate"),
            Self::Revoked => f.write_str("says that the certificate is REVOKED"),
            Self::Unknown => f.write_str("says that the responder does not know the certificate"),
            Self::NotNow(times) => write!(
                f,
                "is valid only from {} to {}",
                utc(times.from_s),
                utc(times.until_s)
            ),
            Self::BadSignature => f.write_str(
                "is not signed by the certificate's issuer, nor by a responder of the issuer",
            ),
        }
    }
}

impl std::error::Error for OcspProblem {}

/// Checks that this response is about the first certificate of the chain (DER) and can be stapled.
pub fn check_ocsp(
    response: &[u8],
    chain: &[&[u8]],
    now: UnixTime,
) -> Result<OcspTimes, OcspProblem> {
    let leaf = chain.first().ok_or(OcspProblem::OtherCertificate)?;
    let (_, leaf) = X509Certificate::from_der(leaf).map_err(|_| OcspProblem::Malformed)?;
    let issuer = issuer(&leaf, chain);
    check(response, &leaf, issuer.as_ref().map(key_of), now)
}

/// Checks a response that a server stapled to this certificate (DER), whose issuer has this key.
pub(crate) fn check_stapled(
    response: &[u8],
    leaf: &[u8],
    issuer_key: &[u8],
    now: UnixTime,
) -> Result<OcspTimes, OcspProblem> {
    let (_, leaf) = X509Certificate::from_der(leaf).map_err(|_| OcspProblem::Malformed)?;
    check(response, &leaf, Some(issuer_key), now)
}

/// `issuer_key` is the key of the certificate's issuer, if it is known.
fn check(
    response: &[u8],
    leaf: &X509Certificate<'_>,
    issuer_key: Option<&[u8]>,
    now: UnixTime,
) -> Result<OcspTimes, OcspProblem> {
    if response.len() > RESPONSE_MAX {
        return Err(OcspProblem::TooLarge);
    }
    let (basic, status) = outer(response).ok_or(OcspProblem::Malformed)?;
    if status != 0 {
        return Err(OcspProblem::NoAnswer(reason(status)));
    }
    let basic = basic.and_then(Basic::read).ok_or(OcspProblem::Malformed)?;
    let single = basic.about(leaf, issuer_key)?;
    let now_s = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    if issuer_key.is_some_and(|key| !basic.is_signed_by(leaf, key, now_s)) {
        return Err(OcspProblem::BadSignature);
    }
    match single.status {
        Tag::CONTEXT_0 => {}
        Tag::CONTEXT_1_CONSTRUCTED => return Err(OcspProblem::Revoked),
        _ => return Err(OcspProblem::Unknown),
    }
    let times = single.times();
    if single.from_s > now_s + SKEW_S || single.until_s <= now_s {
        return Err(OcspProblem::NotNow(times));
    }
    Ok(times)
}

/// Returns the URL of the responder and a request about the first certificate of the chain (DER). `None` if the
/// certificate names no responder, or its issuer is not in the chain.
pub fn ocsp_question(chain: &[&[u8]]) -> Option<(String, Vec<u8>)> {
    let (_, leaf) = X509Certificate::from_der(chain.first()?).ok()?;
    let issuer = issuer(&leaf, chain)?;
    let url = responder(&leaf)?;
    let algorithm = sequence(&[&tagged(Tag::OID, SHA1), &tagged(Tag::NULL, &[])]);
    let (name, key) = (
        hash_of(SHA1, leaf.issuer().as_raw())?,
        hash_of(SHA1, key_of(&issuer))?,
    );
    let serial = tagged(Tag::INTEGER, leaf.raw_serial());
    let id = sequence(&[&algorithm, &octets(&name), &octets(&key), &serial]);
    // OCSPRequest { TBSRequest { requestList { Request { CertID } } } }
    let question = (0..4).fold(id, |inner, _| sequence(&[&inner]));
    Some((url, question))
}

/// Returns the first responder with an HTTP URL (responses are signed; TLS would need a response of its own).
fn responder(leaf: &X509Certificate<'_>) -> Option<String> {
    let access =
        leaf.extensions()
            .iter()
            .find_map(|extension| match extension.parsed_extension() {
                ParsedExtension::AuthorityInfoAccess(access) => Some(access),
                _ => None,
            })?;
    access
        .accessdescs
        .iter()
        .find_map(|one| match &one.access_location {
            GeneralName::URI(uri) if one.access_method.to_id_string() == OCSP => {
                uri.starts_with("http://").then(|| (*uri).to_owned())
            }
            _ => None,
        })
}

fn issuer<'a>(leaf: &X509Certificate<'_>, chain: &[&'a [u8]]) -> Option<X509Certificate<'a>> {
    let mut others = chain.iter().skip(1);
    others.find_map(|der| {
        let (_, other) = X509Certificate::from_der(der).ok()?;
        (other.subject().as_raw() == leaf.issuer().as_raw()).then_some(other)
    })
}

fn key_of<'a>(certificate: &'a X509Certificate<'_>) -> &'a [u8] {
    &certificate.public_key().subject_public_key.data
}

fn hash_of(algorithm: &[u8], bytes: &[u8]) -> Option<Vec<u8>> {
    let algorithm = match algorithm {
        SHA1 => &digest::SHA1_FOR_LEGACY_USE_ONLY,
        SHA256 => &digest::SHA256,
        _ => return None,
    };
    Some(digest::digest(algorithm, bytes).as_ref().to_vec())
}

/// Returns the signed response, if there is one, and the responder's status (RFC 6960 §4.2.1).
fn outer(response: &[u8]) -> Option<(Option<&[u8]>, u8)> {
    let mut response = Der::whole(response)?.enter(Tag::SEQUENCE)?;
    let &[status] = response.expect(Tag::ENUMERATED)? else {
        return None;
    };
    if response.is_empty() {
        return Some((None, status));
    }
    let mut bytes = response
        .enter(Tag::CONTEXT_0_CONSTRUCTED)?
        .enter(Tag::SEQUENCE)?;
    let kind = bytes.expect(Tag::OID)?;
    let answer = bytes.expect(Tag::OCTETS)?;
    Some(((kind == BASIC_RESPONSE).then_some(answer), status))
}

fn reason(status: u8) -> &'static str {
    match status {
        1 => "malformedRequest",
        2 => "internalError",
        3 => "tryLater",
        5 => "sigRequired",
        6 => "unauthorized",
        _ => "an unknown status",
    }
}

/// A BasicOCSPResponse (RFC 6960 §4.2.1).
struct Basic<'a> {
    signed: &'a [u8],
    algorithm: &'a [u8],
    signature: &'a [u8],
    responses: Der<'a>,
    certificates: Vec<&'a [u8]>,
}

/// The response about one certificate.
struct Single {
    status: Tag,
    from_s: i64,
    until_s: i64,
}

impl<'a> Basic<'a> {
    fn read(bytes: &'a [u8]) -> Option<Basic<'a>> {
        let mut basic = Der::whole(bytes)?.enter(Tag::SEQUENCE)?;
        let signed = basic.element(Tag::SEQUENCE)?;
        let algorithm = basic.enter(Tag::SEQUENCE)?.expect(Tag::OID)?;
        let signature = match basic.expect(Tag::BITS)? {
            [0, signature @ ..] => signature,
            _ => return None,
        };
        let mut certificates = Vec::new();
        if !basic.is_empty() {
            let mut list = basic
                .enter(Tag::CONTEXT_0_CONSTRUCTED)?
                .enter(Tag::SEQUENCE)?;
            while !list.is_empty() {
                certificates.push(list.element(Tag::SEQUENCE)?);
            }
        }
        let mut data = Der::whole(signed)?.enter(Tag::SEQUENCE)?;
        // Version and responder id.
        data.skip(Tag::CONTEXT_0_CONSTRUCTED);
        data.any()?;
        data.expect(Tag::GENERALIZED_TIME)?;
        Some(Basic {
            signed,
            algorithm,
            signature,
            responses: data.enter(Tag::SEQUENCE)?,
            certificates,
        })
    }

    fn about(
        &self,
        leaf: &X509Certificate<'_>,
        issuer_key: Option<&[u8]>,
    ) -> Result<Single, OcspProblem> {
        let mut responses = self.responses;
        while !responses.is_empty() {
            let single = responses
                .enter(Tag::SEQUENCE)
                .ok_or(OcspProblem::Malformed)?;
            let read = one(single, leaf, issuer_key).ok_or(OcspProblem::Malformed)?;
            if let Some(single) = read {
                return Ok(single);
            }
        }
        Err(OcspProblem::OtherCertificate)
    }

    /// Whether the issuer of `leaf`, which has this key, or its responder has signed it.
    fn is_signed_by(&self, leaf: &X509Certificate<'_>, issuer_key: &[u8], now_s: i64) -> bool {
        let by = |key: &[u8]| is_signature(self.algorithm, key, self.signed, self.signature);
        if by(issuer_key) {
            return true;
        }
        self.certificates.iter().any(|der| {
            X509Certificate::from_der(der).is_ok_and(|(_, one)| {
                is_responder(&one, leaf, issuer_key, now_s) && by(key_of(&one))
            })
        })
    }
}

/// Returns `Some(None)` if it is about another certificate, `None` if it cannot be parsed.
fn one(
    mut single: Der<'_>,
    leaf: &X509Certificate<'_>,
    issuer_key: Option<&[u8]>,
) -> Option<Option<Single>> {
    let mut id = single.enter(Tag::SEQUENCE)?;
    let algorithm = id.enter(Tag::SEQUENCE)?.expect(Tag::OID)?;
    let (name, key) = (id.expect(Tag::OCTETS)?, id.expect(Tag::OCTETS)?);
    let serial = id.expect(Tag::INTEGER)?;
    let is_hash = |of: &[u8], hash: &[u8]| hash_of(algorithm, of).is_some_and(|own| own == hash);
    let is_ours = serial == leaf.raw_serial()
        && is_hash(leaf.issuer().as_raw(), name)
        && issuer_key.is_none_or(|issuer_key| is_hash(issuer_key, key));
    let (status, _) = single.any()?;
    let from_s = seconds(single.element(Tag::GENERALIZED_TIME)?)?;
    let until_s = match single.enter(Tag::CONTEXT_0_CONSTRUCTED) {
        Some(mut until) => seconds(until.element(Tag::GENERALIZED_TIME)?)?,
        None => from_s.saturating_add(UNLIMITED_S),
    };
    Some(is_ours.then_some(Single {
        status,
        from_s,
        until_s,
    }))
}

impl Single {
    fn times(&self) -> OcspTimes {
        let positive = |s: i64| u64::try_from(s).unwrap_or(0);
        OcspTimes {
            from_s: positive(self.from_s),
            until_s: positive(self.until_s),
        }
    }
}

/// Whether the issuer of `leaf`, which has this key, has authorised a certificate as its OCSP responder (RFC 6960
/// §4.2.2.2).
fn is_responder(
    one: &X509Certificate<'_>,
    leaf: &X509Certificate<'_>,
    issuer_key: &[u8],
    now_s: i64,
) -> bool {
    let may = matches!(one.extended_key_usage(), Ok(Some(usage)) if usage.value.ocsp_signing);
    let validity = one.validity();
    let is_now =
        validity.not_before.timestamp() <= now_s && now_s <= validity.not_after.timestamp();
    may && is_now && one.issuer().as_raw() == leaf.issuer().as_raw() && is_of_key(issuer_key, one)
}

/// Whether a certificate's signature is of this issuer's key.
pub(crate) fn has_signed(issuer: &X509Certificate<'_>, issued: &X509Certificate<'_>) -> bool {
    is_of_key(key_of(issuer), issued)
}

fn is_of_key(key: &[u8], issued: &X509Certificate<'_>) -> bool {
    is_signature(
        issued.signature_algorithm.algorithm.as_bytes(),
        key,
        issued.tbs_certificate.as_ref(),
        &issued.signature_value.data,
    )
}

fn is_signature(algorithm: &[u8], key: &[u8], signed: &[u8], signature: &[u8]) -> bool {
    /// An uncompressed point of P-256.
    const P256_LEN: usize = 65;
    let is_p256 = key.len() == P256_LEN;
    let algorithm: &'static dyn VerificationAlgorithm = match algorithm {
        // sha256WithRSAEncryption and the two after it (RFC 4055 §5).
        [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x0b] => {
            &signature::RSA_PKCS1_2048_8192_SHA256
        }
        [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x0c] => {
            &signature::RSA_PKCS1_2048_8192_SHA384
        }
        [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x0d] => {
            &signature::RSA_PKCS1_2048_8192_SHA512
        }
        // ecdsa-with-SHA256 and -SHA384 (RFC 5758 §3.2).
        [0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02] if is_p256 => {
            &signature::ECDSA_P256_SHA256_ASN1
        }
        [0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02] => &signature::ECDSA_P384_SHA256_ASN1,
        [0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x03] if is_p256 => {
            &signature::ECDSA_P256_SHA384_ASN1
        }
        [0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x03] => &signature::ECDSA_P384_SHA384_ASN1,
        // RFC 8410 §3.
        [0x2b, 0x65, 0x70] => &signature::ED25519,
        _ => return false,
    };
    UnparsedPublicKey::new(algorithm, key)
        .verify(signed, signature)
        .is_ok()
}
