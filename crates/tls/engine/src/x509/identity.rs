//! A certificate chain with its key, parsed once and checked against each other.

use std::fmt;
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::Arc;

use rustls::crypto::aws_lc_rs;
use rustls::crypto::aws_lc_rs::sign::{any_ecdsa_type, any_supported_type};
use rustls::sign::{CertifiedKey, SigningKey};
use rustls::{Error, InconsistentKeys};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, SignatureVerificationAlgorithm, UnixTime};
use webpki::EndEntityCert;
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};
use zeroize::Zeroizing;

use crate::deferred::SignatureRequest;
use crate::failure::utc;
use crate::failure::words::in_words;
use crate::signing_scheme::SigningScheme;
use crate::x509::chain::{self, DateProblem, IssuerProblem};
use crate::x509::identity_error::{IdentityError, IdentityProblem};
use crate::x509::issuers::Issuers;
use crate::x509::key_kind::KeyKind;
use crate::x509::ocsp::{OcspProblem, OcspTimes, check_ocsp, ocsp_question};
use crate::x509::outline::{self, Outline, id};
use crate::x509::pem::contents;
use crate::x509::pem::file::PemFile;
use crate::x509::sign::{ForeignKey, Hand, Sign, schemes};
use crate::x509::unsupported::critical_extension;

/// Lengths of RSA keys that can sign.
const RSA_BITS: RangeInclusive<usize> = 2_048..=8_192;

/// What a key signs that is tried. TLS never signs it.
const TRIAL: &[u8] = b"dormouse tries a private key";

/// A certificate chain with its key.
#[derive(Clone)]
pub struct Identity {
    certified: Arc<CertifiedKey>,
    stapled: Option<Stapled>,
    names: Vec<String>,
    key_kind: KeyKind,
    algorithms: Arc<Algorithms>,
    fingerprint: [u8; 32],
    not_before_s: u64,
    not_after_s: u64,
    /// The name of its key, if that is elsewhere.
    deferred_key: Option<Arc<str>>,
}

/// The algorithms of a certificate by their OpenSSL names, which programs that read them expect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Algorithms {
    /// The signature algorithm of its issuer: `ecdsa-with-SHA256`.
    pub signature: &'static str,
    /// The key's algorithm: `EC256`.
    pub key: String,
}

/// A certificate chain with an OCSP response that says it is not revoked.
#[derive(Clone)]
pub(crate) struct Stapled {
    pub(crate) certified: Arc<CertifiedKey>,
    pub(crate) until_s: u64,
}

/// A problem with an identity that can still be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IdentityWarning {
    /// The dates of the server's own certificate.
    Dates(DateProblem),
    /// A later certificate of the chain.
    Issuer {
        /// Its place in the chain, from 1.
        place: usize,
        /// Its subject.
        subject: String,
        /// What is wrong with it.
        problem: IssuerProblem,
    },
    /// The certificate contains no names; clients will refuse it. (Clients ignore the common name, RFC 9525.)
    NoNames,
    /// It is signed with SHA-1 or MD5, which clients refuse.
    OldSignature,
    /// It demands a stapled OCSP response (RFC 7633), and names no responder to fetch one from.
    NothingToStaple,
}

impl Identity {
    /// Reads an identity from PEM: the chain, the server's own certificate first, and its key. Both may be in
    /// one file. The names of the files are used only in errors.
    pub fn from_pem(
        certificate: &[u8],
        key: &[u8],
        certificate_name: &str,
        key_name: &str,
    ) -> Result<Identity, IdentityError> {
        let chain = contents::chain(certificate, certificate_name)?;
        let key = contents::key(key, key_name, None)?;
        let identity = Identity::new(chain, &key, certificate_name, key_name)?;
        identity.check_key(certificate_name, key_name)?;
        Ok(identity)
    }

    /// Reads an identity for an ACME challenge, made by [`Identity::acme_challenge_pem`]. Does not check that
    /// the key matches: the certificate's extension is critical (RFC 8737 §3), so that neither rustls nor any
    /// client accepts it as an ordinary certificate.
    pub fn from_acme_challenge_pem(pem: &str, name: &str) -> Result<Identity, IdentityError> {
        let chain = contents::chain(pem.as_bytes(), name)?;
        Identity::new(
            chain,
            &*contents::key(pem.as_bytes(), name, None)?,
            name,
            name,
        )
    }

    /// Makes an identity from a chain, DER, the server's own certificate first, and its key, PKCS #8. `name` is
    /// for errors.
    pub fn from_der(
        chain: Vec<Vec<u8>>,
        key: &[u8],
        name: &str,
    ) -> Result<Identity, IdentityError> {
        let chain = chain.into_iter().map(CertificateDer::from).collect();
        let key = PrivateKeyDer::Pkcs8(key.into());
        let identity = Identity::new(chain, &key, name, name)?;
        identity.check_key(name, name)?;
        Ok(identity)
    }

    /// Makes an identity from a chain, DER, the server's own certificate first, and a key that only `sign` can
    /// use. `name` is for errors.
    ///
    /// Does not check that the key belongs to the certificate; a mismatch fails in the handshake.
    pub fn from_signer(
        chain: Vec<Vec<u8>>,
        sign: Arc<dyn Sign>,
        name: &str,
    ) -> Result<Identity, IdentityError> {
        let chain = chain.into_iter().map(CertificateDer::from).collect();
        Identity::describe(chain, name, |key_kind| match unusable_length(key_kind) {
            Some(why) => Err(IdentityProblem::UnusableKey(why).of(name)),
            None => Ok(Arc::new(ForeignKey::new(key_kind, Hand::Calling(sign)))),
        })
    }

    /// Reads an identity from a chain, PEM, whose key is elsewhere. Handshakes wait for its signatures
    /// ([`Handshake::signature_request`](crate::Handshake::signature_request)), which name the key as `key`.
    /// `certificate_name` is for errors. Does not check that the key belongs to the certificate.
    pub fn with_deferred_key(
        certificate: &[u8],
        key: &str,
        certificate_name: &str,
    ) -> Result<Identity, IdentityError> {
        let chain = contents::chain(certificate, certificate_name)?;
        let mut identity = Identity::describe(chain, certificate_name, |key_kind| {
            if key_kind == KeyKind::Ed25519 {
                let why = "it is for Ed25519; keys that are no files are for ECDSA or RSA";
                return Err(IdentityProblem::UnusableKey(why.to_owned()).of(key));
            }
            if let Some(why) = unusable_length(key_kind) {
                return Err(IdentityProblem::UnusableKey(why).of(key));
            }
            let hand = Hand::Elsewhere(key.into());
            Ok(Arc::new(ForeignKey::new(key_kind, hand)))
        })?;
        identity.deferred_key = Some(key.into());
        Ok(identity)
    }

    /// Whether its key is elsewhere.
    pub fn has_deferred_key(&self) -> bool {
        self.deferred_key.is_some()
    }

    /// Returns a signature to try the key with, if it is elsewhere.
    pub fn trial_request(&self) -> Option<SignatureRequest> {
        let scheme = SigningScheme(*schemes(self.key_kind).first()?);
        Some(SignatureRequest {
            key: Arc::clone(self.deferred_key.as_ref()?),
            scheme,
            digest: scheme.digest(TRIAL)?,
        })
    }

    /// Whether a signature for [`Identity::trial_request`] is of the key that the certificate has.
    pub fn accepts_trial(&self, signature: &[u8]) -> bool {
        let scheme = schemes(self.key_kind).first();
        let known = aws_lc_rs::default_provider().signature_verification_algorithms;
        let algorithms = (known.mapping.iter()).find(|(known, _)| Some(known) == scheme);
        let leaf = self.certified.cert.first();
        let leaf = leaf.and_then(|leaf| EndEntityCert::try_from(leaf).ok());
        leaf.zip(algorithms).is_some_and(|(leaf, (_, algorithms))| {
            let is_valid = |algorithm: &&dyn SignatureVerificationAlgorithm| {
                leaf.verify_signature(*algorithm, TRIAL, signature).is_ok()
            };
            algorithms.iter().any(is_valid)
        })
    }

    /// Returns the identity with what its chain lacks, of these certificates: OpenSSL completes a chain from the
    /// authorities that a program trusts, and many programs name their intermediate certificates only there.
    pub fn completed(self, issuers: &Issuers) -> Identity {
        let missing = issuers.missing(&self.certified.cert);
        if missing.is_empty() {
            return self;
        }
        let chain = [&self.certified.cert[..], &missing].concat();
        let key = Arc::clone(&self.certified.key);
        Identity {
            certified: Arc::new(CertifiedKey::new(chain, key)),
            // A response is stapled to a chain.
            stapled: None,
            ..self
        }
    }

    /// Reads an identity from files.
    pub fn from_files(certificate: &Path, key: &Path) -> Result<Identity, IdentityError> {
        let (certificate, key) = (PemFile::read(certificate)?, PemFile::read(key)?);
        Identity::from_pem(
            certificate.text(),
            key.text(),
            certificate.name(),
            key.name(),
        )
    }

    /// Generates a self-signed certificate for `name`, a host name or an IP address, for tests and trials.
    /// ECDSA P-256.
    pub fn self_signed(name: &str) -> Result<Identity, IdentityError> {
        let (certificate, key) = Identity::self_signed_pem(name)?;
        Identity::from_pem(certificate.as_bytes(), key.as_bytes(), name, name)
    }

    /// Generates a self-signed certificate and key as PEM, for several processes that present the same one.
    pub fn self_signed_pem(name: &str) -> Result<(String, Zeroizing<String>), IdentityError> {
        let refused = |error: rcgen::Error| bad_name(name, error);
        let mut params = rcgen::CertificateParams::new(vec![name.to_owned()]).map_err(refused)?;
        params
            .distinguished_name
            .push(rcgen::DnType::CommonName, name);
        params.not_before = rcgen::date_time_ymd(2020, 1, 1);
        params.not_after = rcgen::date_time_ymd(2049, 12, 31);
        let key = rcgen::KeyPair::generate().map_err(refused)?;
        let certificate = params.self_signed(&key).map_err(refused)?;
        Ok((certificate.pem(), Zeroizing::new(key.serialize_pem())))
    }

    /// Generates the certificate that proves control of `name` to an ACME server (RFC 8737 §3), and its key, as
    /// PEM. `digest` is the SHA-256 of the key authorization.
    pub fn acme_challenge_pem(
        name: &str,
        digest: &[u8],
    ) -> Result<(String, Zeroizing<String>), IdentityError> {
        if digest.len() != SHA256_LEN {
            return Err(bad_name(name, "the digest is not of SHA-256"));
        }
        let (mut params, key) = for_one_name(name)?;
        params.custom_extensions = vec![rcgen::CustomExtension::new_acme_identifier(digest)];
        let certificate = params.self_signed(&key).map_err(|e| bad_name(name, e))?;
        Ok((certificate.pem(), Zeroizing::new(key.serialize_pem())))
    }

    /// Generates a certificate request for `name` (RFC 2986), DER, and its new key, ECDSA P-256, as PEM.
    pub fn request(name: &str) -> Result<(Vec<u8>, Zeroizing<String>), IdentityError> {
        let (params, key) = for_one_name(name)?;
        let request = params.serialize_request(&key);
        let request = request.map_err(|e| bad_name(name, e))?;
        Ok((request.der().to_vec(), Zeroizing::new(key.serialize_pem())))
    }

    /// As [`Identity::request`], with a key from there.
    pub fn request_with(name: &str, key_pem: &str) -> Result<Vec<u8>, IdentityError> {
        let (params, _) = for_one_name(name)?;
        let key = rcgen::KeyPair::from_pem(key_pem).map_err(|e| bad_name(name, e))?;
        let request = params.serialize_request(&key);
        Ok(request.map_err(|e| bad_name(name, e))?.der().to_vec())
    }

    fn new(
        chain: Vec<CertificateDer<'static>>,
        key: &PrivateKeyDer<'_>,
        certificate_name: &str,
        key_name: &str,
    ) -> Result<Identity, IdentityError> {
        Identity::describe(chain, certificate_name, |kind| {
            // It would try RSA first, which parses any other key in vain.
            let of_kind = match (kind, key) {
                (KeyKind::Ecdsa { .. }, PrivateKeyDer::Pkcs8(_) | PrivateKeyDer::Sec1(_)) => {
                    any_ecdsa_type(key).ok()
                }
                _ => None,
            };
            let signing_key = of_kind.map_or_else(|| any_supported_type(key), Ok);
            signing_key.map_err(|error| {
                let why = unusable_length(kind).unwrap_or_else(|| error.to_string());
                IdentityProblem::UnusableKey(why).of(key_name)
            })
        })
    }

    /// Parses the certificate, then gets the key for it.
    fn describe(
        chain: Vec<CertificateDer<'static>>,
        certificate_name: &str,
        signing_key: impl FnOnce(KeyKind) -> Result<Arc<dyn SigningKey>, IdentityError>,
    ) -> Result<Identity, IdentityError> {
        let about_certificate = |problem| IdentityError {
            file: certificate_name.to_owned(),
            problem,
        };
        let leaf = chain
            .first()
            .ok_or_else(|| about_certificate(IdentityProblem::NoCertificate))?;
        let bad = chain.iter().position(|one| Outline::read(one).is_none());
        if let Some(at) = bad.filter(|&at| at > 0) {
            let words = format!("certificate {} of its chain is invalid DER", at + 1);
            return Err(about_certificate(IdentityProblem::BadCertificate(words)));
        }
        let (_, parsed) = X509Certificate::from_der(leaf)
            .map_err(|e| about_certificate(IdentityProblem::BadCertificate(e.to_string())))?;
        let names = names(&parsed);
        let key_kind = KeyKind::of(&parsed).ok_or_else(|| {
            let algorithm = parsed.public_key().algorithm.algorithm.to_id_string();
            about_certificate(IdentityProblem::UnsupportedKey(algorithm))
        })?;
        let algorithms = Arc::new(Algorithms {
            signature: signature_algorithm(&parsed),
            key: match key_kind {
                KeyKind::Rsa { bits } => format!("RSA{bits}"),
                KeyKind::Ecdsa { bits } => format!("EC{bits}"),
                KeyKind::Ed25519 => "ED25519".to_owned(),
            },
        });
        let fingerprint = outline::fingerprint(leaf);
        let validity = parsed.validity();
        let seconds = |time: x509_parser::time::ASN1Time| time.timestamp().max(0).unsigned_abs();
        let (not_before_s, not_after_s) =
            (seconds(validity.not_before), seconds(validity.not_after));

        let certified = CertifiedKey::new(chain, signing_key(key_kind)?);
        Ok(Identity {
            certified: Arc::new(certified),
            stapled: None,
            names,
            key_kind,
            algorithms,
            fingerprint,
            not_before_s,
            not_after_s,
            deferred_key: None,
        })
    }

    /// Checks that the key belongs to the certificate.
    fn check_key(&self, certificate_name: &str, key_name: &str) -> Result<(), IdentityError> {
        let about = |file: &str, problem| IdentityError {
            file: file.to_owned(),
            problem,
        };
        match self.certified.keys_match() {
            Ok(()) | Err(Error::InconsistentKeys(InconsistentKeys::Unknown)) => Ok(()),
            Err(Error::InconsistentKeys(InconsistentKeys::KeyMismatch)) => {
                let certificate = certificate_name.to_owned();
                let problem = match self.place_of_key() {
                    Some(place) => IdentityProblem::WrongOrder { certificate, place },
                    None => IdentityProblem::KeyMismatch { certificate },
                };
                Err(about(key_name, problem))
            }
            Err(e) => {
                let own = self.chain().into_iter().take(1).collect::<Vec<_>>();
                let words = critical_extension(&own).unwrap_or_else(|| in_words(&e));
                let problem = IdentityProblem::BadCertificate(words);
                Err(about(certificate_name, problem))
            }
        }
    }

    /// The place in the chain, from 1, of the certificate that the key belongs to.
    fn place_of_key(&self) -> Option<usize> {
        let mut chain = self.certified.cert.iter();
        let place = chain.position(|certificate| {
            let key = Arc::clone(&self.certified.key);
            let alone = CertifiedKey::new(vec![certificate.clone()], key);
            alone.keys_match().is_ok()
        });
        place.map(|place| place + 1)
    }

    /// Returns the names and addresses in the certificate.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Returns the kind of its key.
    pub fn key_kind(&self) -> KeyKind {
        self.key_kind
    }

    /// Returns its first second of validity, in Unix time.
    pub fn begins_at_s(&self) -> u64 {
        self.not_before_s
    }

    /// Returns the SHA-256 digest of the certificate.
    pub fn fingerprint(&self) -> [u8; 32] {
        self.fingerprint
    }

    /// Returns its algorithms.
    pub(crate) fn algorithms(&self) -> Arc<Algorithms> {
        Arc::clone(&self.algorithms)
    }

    /// Returns its last second of validity, in Unix time.
    pub fn expires_at_s(&self) -> u64 {
        self.not_after_s
    }

    /// Returns the last second in which it and all other certificates of its chain are valid.
    pub fn chain_expires_at_s(&self) -> u64 {
        chain::not_after_s(&self.certified.cert)
    }

    /// Returns the problems at `now`.
    pub fn warnings(&self, now: UnixTime) -> Vec<IdentityWarning> {
        let now_s = now.as_secs();
        let mut warnings = Vec::new();
        let dates = DateProblem::of(self.not_before_s, self.not_after_s, now_s);
        warnings.extend(dates.map(IdentityWarning::Dates));
        if self.names.is_empty() {
            warnings.push(IdentityWarning::NoNames);
        }
        let own = self.certified.cert.first();
        if let Some(own) = own.and_then(|own| Outline::read(own)) {
            if own.has_old_signature() {
                warnings.push(IdentityWarning::OldSignature);
            }
            // Parses the chain, and few certificates demand one.
            let has_response = || self.stapled.is_some() || ocsp_question(&self.chain()).is_some();
            if own.extension(id::TLS_FEATURE).is_some() && !has_response() {
                warnings.push(IdentityWarning::NothingToStaple);
            }
        }
        warnings.extend(of_issuers(&self.certified.cert, now_s));
        warnings
    }

    /// Returns the chain, DER, the server's own certificate first.
    pub fn chain(&self) -> Vec<&[u8]> {
        self.certified.cert.iter().map(AsRef::as_ref).collect()
    }

    /// Staples this OCSP response (DER) to the certificate while the response is valid. Refuses a response for
    /// another certificate or another time.
    pub fn staple(&mut self, response: &[u8], now: UnixTime) -> Result<OcspTimes, OcspProblem> {
        let times = check_ocsp(response, &self.chain(), now)?;
        let mut certified =
            CertifiedKey::new(self.certified.cert.clone(), Arc::clone(&self.certified.key));
        certified.ocsp = Some(response.to_vec());
        self.stapled = Some(Stapled {
            certified: Arc::new(certified),
            until_s: times.until_s,
        });
        Ok(times)
    }

    /// Whether an OCSP response is stapled.
    pub fn is_stapled(&self) -> bool {
        self.stapled.is_some()
    }

    pub(crate) fn stapled(&self) -> Option<Stapled> {
        self.stapled.clone()
    }

    pub(crate) fn certified_key(&self) -> Arc<CertifiedKey> {
        Arc::clone(&self.certified)
    }
}

impl IdentityWarning {
    /// Returns the warnings about dates at `now` for a chain in PEM. Its key is not needed.
    pub fn of_dates(chain: &[u8], now: UnixTime) -> Vec<IdentityWarning> {
        let chain = contents::chain(chain, "").unwrap_or_default();
        let own = chain.first().and_then(|own| Outline::read(own));
        let own =
            own.and_then(|own| DateProblem::of(own.not_before_s, own.not_after_s, now.as_secs()));
        let is_date = |warning: &IdentityWarning| {
            let IdentityWarning::Issuer { problem, .. } = warning else {
                return false;
            };
            matches!(problem, IssuerProblem::Dates(_))
        };
        let of_issuers = of_issuers(&chain, now.as_secs()).filter(is_date);
        own.map(IdentityWarning::Dates)
            .into_iter()
            .chain(of_issuers)
            .collect()
    }
}

fn of_issuers(chain: &[CertificateDer<'_>], now_s: u64) -> impl Iterator<Item = IdentityWarning> {
    let problems = chain::problems(chain, now_s).into_iter();
    problems.map(|(place, subject, problem)| IdentityWarning::Issuer {
        place,
        subject,
        problem,
    })
}

const SHA256_LEN: usize = 32;

/// The name is only an alternative name, as authorities require.
fn for_one_name(name: &str) -> Result<(rcgen::CertificateParams, rcgen::KeyPair), IdentityError> {
    let params = rcgen::CertificateParams::new(vec![name.to_owned()]);
    let mut params = params.map_err(|e| bad_name(name, e))?;
    params.distinguished_name = rcgen::DistinguishedName::new();
    let key = rcgen::KeyPair::generate().map_err(|e| bad_name(name, e))?;
    Ok((params, key))
}

/// Why an RSA key is too short or too long.
fn unusable_length(kind: KeyKind) -> Option<String> {
    match kind {
        KeyKind::Rsa { bits } if !RSA_BITS.contains(&bits) => Some(format!(
            "RSA keys of {} to {} bits are supported, and the certificate's has {bits}",
            RSA_BITS.start(),
            RSA_BITS.end()
        )),
        _ => None,
    }
}

fn bad_name(name: &str, why: impl ToString) -> IdentityError {
    IdentityError {
        file: name.to_owned(),
        problem: IdentityProblem::BadName(why.to_string()),
    }
}

/// Returns the subject alternative names; the common name does not count (RFC 9525 §2).
fn names(certificate: &X509Certificate<'_>) -> Vec<String> {
    let Ok(Some(alternative)) = certificate.subject_alternative_name() else {
        return Vec::new();
    };
    alternative
        .value
        .general_names
        .iter()
        .filter_map(|name| match name {
            GeneralName::DNSName(name) => Some((*name).to_owned()),
            GeneralName::IPAddress(bytes) => address(bytes),
            _ => None,
        })
        .collect()
}

fn address(bytes: &[u8]) -> Option<String> {
    if let Ok(v4) = <[u8; 4]>::try_from(bytes) {
        return Some(std::net::Ipv4Addr::from(v4).to_string());
    }
    let v6 = <[u8; 16]>::try_from(bytes).ok()?;
    Some(std::net::Ipv6Addr::from(v6).to_string())
}

/// Returns OpenSSL's short name of the certificate's signature algorithm; empty for one that is not in use.
fn signature_algorithm(certificate: &X509Certificate<'_>) -> &'static str {
    let oid = certificate.signature_algorithm.algorithm.to_id_string();
    match oid.as_str() {
        "1.2.840.113549.1.1.5" => "RSA-SHA1",
        "1.2.840.113549.1.1.11" => "RSA-SHA256",
        "1.2.840.113549.1.1.12" => "RSA-SHA384",
        "1.2.840.113549.1.1.13" => "RSA-SHA512",
        "1.2.840.113549.1.1.10" => "RSASSA-PSS",
        "1.2.840.10045.4.3.2" => "ecdsa-with-SHA256",
        "1.2.840.10045.4.3.3" => "ecdsa-with-SHA384",
        "1.2.840.10045.4.3.4" => "ecdsa-with-SHA512",
        "1.3.101.112" => "ED25519",
        _ => "",
    }
}

impl fmt::Display for IdentityWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dates(dates @ DateProblem::ExpiresSoon { .. }) => write!(f, "{dates}; renew it"),
            Self::Dates(dates) => write!(f, "the certificate {dates}"),
            Self::Issuer {
                place,
                subject,
                problem,
            } => {
                write!(f, "certificate {place} of the chain ({subject}) ")?;
                match problem {
                    IssuerProblem::Dates(dates) => write!(
                        f,
                        "{dates}; get the current one from the authority, or leave it out if clients know another"
                    ),
                    IssuerProblem::Duplicate { of } => {
                        write!(f, "is the same as certificate {of}; remove it")
                    }
                    IssuerProblem::Unrelated => {
                        write!(f, "has issued no certificate before it; remove it")
                    }
                }
            }
            Self::OldSignature => write!(
                f,
                "the certificate is signed with SHA-1 or MD5, so clients refuse it; have it issued again"
            ),
            Self::NothingToStaple => write!(
                f,
                "the certificate demands a stapled OCSP response (must-staple) and there is none to fetch: it names no \
                 responder, or its issuer is not in the chain; clients may refuse it"
            ),
            Self::NoNames => write!(
                f,
                "the certificate has no subject alternative name; clients will refuse it"
            ),
        }
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity")
            .field("names", &self.names)
            .field("key_kind", &self.key_kind)
            .field("expires_at", &utc(self.not_after_s))
            .finish_non_exhaustive()
    }
}
