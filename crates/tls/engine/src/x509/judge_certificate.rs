//! The caller's check of the peer's certificate.

use std::fmt;

use dormouse_record::AlertDescription;
use rustls_pki_types::UnixTime;

use crate::failure::CertificateProblem;

/// Checks the certificates of peers, after they were checked against the trusted roots.
pub trait JudgeCertificate: fmt::Debug + Send + Sync {
    /// Accepts the peer, or returns the reason for refusing it. This result is final, whatever the roots found:
    /// a hook that accepts [`Finding::Refused`] takes the responsibility.
    ///
    /// On the server side it is called again whenever a session is resumed. The peer's signature, which proves
    /// possession of the certificate's key, is checked in any case.
    fn judge(&self, shown: &ShownCertificates<'_>) -> Result<(), CertificateRefusal>;

    /// Whether it identifies servers by something else than their names. Then a certificate for another name is
    /// [`Finding::Trusted`] if everything else is valid.
    fn names_peers(&self) -> bool {
        false
    }
}

/// Why the caller refuses a peer's certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateRefusal {
    /// The reason, for the log.
    pub reason: String,
    /// The alert for the peer (RFC 8446 §6.2). `None`: access_denied if the roots trust the certificate,
    /// certificate_unknown without roots. If the roots refuse the certificate, they choose the alert.
    pub alert: Option<AlertDescription>,
}

impl<T: Into<String>> From<T> for CertificateRefusal {
    fn from(reason: T) -> Self {
        CertificateRefusal {
            reason: reason.into(),
            alert: None,
        }
    }
}

/// The certificates that a peer sent, and facts about them.
#[derive(Debug, Clone, Copy)]
pub struct ShownCertificates<'a> {
    /// The chain, DER, the peer's own certificate first; at least one certificate.
    pub chain: &'a [&'a [u8]],
    /// Client side: the requested server name.
    pub server_name: Option<&'a str>,
    /// Client side: the OCSP response that came with the chain (DER); empty if there was none.
    pub ocsp_response: &'a [u8],
    /// The time of the check.
    pub now: UnixTime,
    /// The result of the check against the trusted roots.
    pub finding: Finding<'a>,
}

/// The result of checking a certificate against the trusted roots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finding<'a> {
    /// Valid: signed by a trusted root, valid now, for this name, not revoked.
    Trusted,
    /// Invalid. For [`CertificateProblem::WrongName`] everything else is valid.
    Refused(&'a CertificateProblem),
    /// No roots are configured.
    NoRoots,
}
