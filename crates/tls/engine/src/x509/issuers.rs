//! The issuers of certificates: for a chain that lacks them, as OpenSSL takes them from the authorities that a program
//! trusts.

use rustls_pki_types::CertificateDer;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::x509::identity_error::IdentityError;
use crate::x509::ocsp::has_signed;
use crate::x509::outline::Outline;
use crate::x509::pem::contents;

/// Certificates that are looked up by what they have issued.
#[derive(Debug, Clone, Default)]
pub struct Issuers(Vec<CertificateDer<'static>>);

impl Issuers {
    /// Reads the certificates in a PEM text. `name` is for errors.
    pub fn from_pem(text: &[u8], name: &str) -> Result<Issuers, IdentityError> {
        let found = contents::authorities(text, name)?;
        Ok(Issuers(found.into_iter().map(|(_, one)| one).collect()))
    }

    /// Returns the certificates as one PEM bundle.
    pub fn to_pem(&self) -> String {
        contents::encode_certificates(self.0.iter().map(AsRef::as_ref))
    }

    /// Returns the issuer of a certificate, all of them DER. A certificate that has issued itself has no other.
    pub fn issuer_of(&self, certificate: &[u8]) -> Option<&[u8]> {
        let outline = Outline::read(certificate)?;
        if outline.is_self_issued() {
            return None;
        }
        let is_named = |one: &&CertificateDer<'_>| {
            Outline::read(one).is_some_and(|one| one.subject == outline.issuer)
        };
        let named = || self.0.iter().filter(is_named);
        let has_signed = |one: &&CertificateDer<'_>| {
            let issuer = X509Certificate::from_der(one);
            let issued = X509Certificate::from_der(certificate);
            matches!((issuer, issued), (Ok((_, issuer)), Ok((_, issued))) if has_signed(&issuer, &issued))
        };
        // Some signature algorithms are not known here; then the name decides, as in OpenSSL.
        let found = named().find(has_signed).or_else(|| named().next());
        found.map(AsRef::as_ref)
    }

    /// Returns what a chain lacks, except for the authority at its end, which a peer that trusts it has.
    pub(crate) fn missing(
        &self,
        chain: &[CertificateDer<'static>],
    ) -> Vec<CertificateDer<'static>> {
        /// Longer chains do not occur; OpenSSL verifies up to 100.
        const CHAIN_MAX: usize = 10;
        let mut missing: Vec<CertificateDer<'static>> = Vec::new();
        while chain.len() + missing.len() < CHAIN_MAX {
            let last = missing.last().or(chain.last());
            let Some(issuer) = last.and_then(|last| self.issuer_of(last)) else {
                break;
            };
            let is_known = |one: &CertificateDer<'_>| one.as_ref() == issuer;
            let is_authority = Outline::read(issuer).is_none_or(|one| one.is_self_issued());
            if is_authority || chain.iter().chain(&missing).any(is_known) {
                break;
            }
            missing.push(CertificateDer::from(issuer.to_vec()));
        }
        missing
    }
}
