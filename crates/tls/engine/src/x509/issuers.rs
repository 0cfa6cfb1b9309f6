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

    /// Returns the issuer of a certificate, that one's issuer, and so on, up to one that has issued itself.
    pub fn issuers_of<'a>(&'a self, certificate: &'a [u8]) -> Vec<&'a [u8]> {
        /// Longer chains do not occur.
        const LENGTH_MAX: usize = 10;
        let mut found: Vec<&[u8]> = Vec::new();
        while found.len() < LENGTH_MAX {
            let last = found.last().copied().unwrap_or(certificate);
            match self.issuer_of(last) {
                Some(issuer) if !found.contains(&issuer) => found.push(issuer),
                _ => break,
            }
        }
        found
    }

    /// Returns what a chain lacks, except for the authority at its end, which a peer that trusts it has.
    pub(crate) fn missing(&self, chain: &[CertificateDer<'_>]) -> Vec<CertificateDer<'static>> {
        let last = chain.last().map(AsRef::as_ref).unwrap_or_default();
        let is_missing = |one: &&[u8]| {
            let is_authority = Outline::read(one).is_none_or(|one| one.is_self_issued());
            !is_authority && !chain.iter().any(|known| known.as_ref() == *one)
        };
        let found = self.issuers_of(last).into_iter().take_while(is_missing);
        found
            .map(|one| CertificateDer::from(one.to_vec()))
            .collect()
    }
}
