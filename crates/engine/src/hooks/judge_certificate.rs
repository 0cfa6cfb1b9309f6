//! The caller's judgement of the peer's certificate.

use std::fmt;

use rustls_pki_types::UnixTime;

use crate::failure::CertificateProblem;

/// Judges the certificates of peers, after the trusted roots have.
pub trait JudgeCertificate: fmt::Debug + Send + Sync {
    /// Accepts the peer, or says why not. This judgement counts, whatever the roots found: a hook
    /// that accepts what [`Finding::Refused`] names takes the responsibility.
    ///
    /// On the server's side it is asked again whenever a session is resumed. The peer's signature,
    /// which proves that it has the certificate's key, is checked in any case.
    fn judge(&self, shown: &ShownCertificates<'_>) -> Result<(), String>;
}

/// The certificates that a peer showed, and what is known of them.
#[derive(Debug, Clone, Copy)]
pub struct ShownCertificates<'a> {
    /// The chain, DER, the peer's own certificate first; at least one.
    pub chain: &'a [&'a [u8]],
    /// Client side: the server that was asked for.
    pub server_name: Option<&'a str>,
    /// Client side: the OCSP response that came with the chain (DER); empty: none.
    pub ocsp_response: &'a [u8],
    /// The time by which to judge.
    pub now: UnixTime,
    /// What the trusted roots say.
    pub finding: Finding<'a>,
}

/// What the trusted roots say of a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finding<'a> {
    /// It is good: signed by a trusted root, of now, for this name, not revoked.
    Trusted,
    /// It is not. [`CertificateProblem::WrongName`]: all else is good.
    Refused(&'a CertificateProblem),
    /// There are no roots to judge by.
    NoRoots,
}
