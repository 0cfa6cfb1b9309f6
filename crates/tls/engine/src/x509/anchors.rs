//! The certificates that the operator trusts: as the roots of chains, and each for itself.
//!
//! webpki accepts no authority's certificate (CA:TRUE) as a peer's own. But `openssl req -x509` makes such certificates,
//! and whoever trusts one by its file means exactly this certificate. So a peer's certificate that is byte for byte a
//! trusted one needs no chain.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use rustls::server::ParsedCertificate;
use rustls::{CertificateError, Error, RootCertStore};
use rustls_pki_types::{CertificateDer, UnixTime};

use crate::x509::der::{Der, Tag};
use crate::x509::outline::{KeyUsage, Outline, fingerprint, id};

/// Trusted certificates. Cloning them is cheap.
#[derive(Debug, Clone)]
pub(crate) struct Anchors {
    pub(crate) roots: Arc<RootCertStore>,
    /// SHA-256 of the same certificates.
    digests: Arc<HashSet<[u8; 32]>>,
}

/// The role that a certificate must be for (RFC 5280 §4.2.1.12).
#[derive(Debug, Clone, Copy)]
pub(crate) enum Purpose {
    Server,
    Client,
}

impl Purpose {
    /// Returns the encoded identifier, id-kp-serverAuth or id-kp-clientAuth.
    fn id(self) -> &'static [u8] {
        match self {
            Purpose::Server => &[0x2b, 6, 1, 5, 5, 7, 3, 1],
            Purpose::Client => &[0x2b, 6, 1, 5, 5, 7, 3, 2],
        }
    }
}

impl Anchors {
    /// `roots` are those of `certificates`.
    pub(crate) fn new(roots: RootCertStore, certificates: &[CertificateDer<'_>]) -> Anchors {
        Anchors {
            roots: Arc::new(roots),
            digests: Arc::new(certificates.iter().map(|one| fingerprint(one)).collect()),
        }
    }

    /// Whether a peer's own certificate is one of these.
    pub(crate) fn contain(&self, end_entity: &CertificateDer<'_>) -> bool {
        self.digests.contains(&fingerprint(end_entity))
    }
}

/// Checks what a certificate says about its own use: validity and purposes. Returns it parsed, for a check of names.
pub(crate) fn verify_alone<'a>(
    certificate: &'a CertificateDer<'a>,
    purpose: Purpose,
    time: UnixTime,
) -> Result<ParsedCertificate<'a>, Error> {
    let parsed = ParsedCertificate::try_from(certificate)?;
    let outline = Outline::read(certificate).ok_or(CertificateError::BadEncoding)?;
    let [not_before, not_after] = [outline.not_before_s, outline.not_after_s]
        .map(|s| UnixTime::since_unix_epoch(Duration::from_secs(s)));
    if time < not_before {
        return Err(CertificateError::NotValidYetContext { time, not_before }.into());
    }
    if time > not_after {
        return Err(CertificateError::ExpiredContext { time, not_after }.into());
    }
    match allows(&outline, purpose) {
        true => Ok(parsed),
        false => Err(CertificateError::InvalidPurpose.into()),
    }
}

/// Whether a certificate may be used for handshakes in this role. Without extensions it may; an authority's own key,
/// in particular, is often only for the signatures of certificates.
fn allows(outline: &Outline<'_>, purpose: Purpose) -> bool {
    let signs = outline.has_usage(KeyUsage::Signature);
    let is_for_it = outline
        .extension(id::EXTENDED_KEY_USAGE)
        .is_none_or(|usage| {
            let ids = Der::whole(usage).and_then(|mut usage| usage.enter(Tag::SEQUENCE));
            let mut ids = ids.unwrap_or_else(|| Der::contents(&[]));
            std::iter::from_fn(|| ids.expect(Tag::OID)).any(|found| found == purpose.id())
        });
    signs && is_for_it
}
