//! Results of verifying peers' certificates, by OpenSSL's names.

use std::cell::RefCell;
use std::sync::Arc;

use dormouse_embed::{
    CertificateProblem, CertificateRefusal, Finding, Issuers, JudgeCertificate, ShownCertificates,
};

/// OpenSSL's names, which Node.js shows in `authorizationError`. A problem is an index in this list.
const NAMES: [&str; 13] = [
    "",
    "UNABLE_TO_VERIFY_LEAF_SIGNATURE",
    "UNABLE_TO_GET_ISSUER_CERT_LOCALLY",
    "DEPTH_ZERO_SELF_SIGNED_CERT",
    "SELF_SIGNED_CERT_IN_CHAIN",
    "CERT_HAS_EXPIRED",
    "CERT_NOT_YET_VALID",
    "CERT_SIGNATURE_FAILURE",
    "CERT_REVOKED",
    "INVALID_PURPOSE",
    "CERT_REJECTED",
    "ERR_TLS_CERT_ALTNAME_INVALID",
    "UNSPECIFIED",
];

/// The certificate is valid, but for other names.
pub(crate) const WRONG_NAME: u8 = 11;

/// Returns the name of a problem; `None`: there is no problem.
pub(crate) fn name(problem: u8) -> Option<&'static str> {
    match problem {
        0 => None,
        problem => Some(
            NAMES
                .get(usize::from(problem))
                .copied()
                .unwrap_or("UNSPECIFIED"),
        ),
    }
}

/// The problem whose name this is.
fn numbered(name: &str) -> u8 {
    let found = NAMES.iter().position(|one| *one == name);
    found.and_then(|at| u8::try_from(at).ok()).unwrap_or(12)
}

/// What was found about a peer's certificate.
pub(crate) struct Found {
    /// The number of the problem; 0: none.
    pub(crate) problem: u8,
    /// The certificates against which it was verified.
    pub(crate) issuers: Option<Arc<Issuers>>,
}

thread_local! {
    /// What was found during the current call.
    static FOUND: RefCell<Option<Found>> = const { RefCell::new(None) };
}

/// Takes what was found since the last call, on this thread.
pub(crate) fn take_found() -> Option<Found> {
    FOUND.take()
}

/// Records the problem, and accepts or refuses the peer as configured.
#[derive(Debug)]
pub(crate) struct Judge {
    /// Whether a peer with an invalid certificate is refused. JavaScript checks the names, where programs have
    /// `checkServerIdentity`.
    pub(crate) rejects: bool,
    /// The trusted certificates.
    pub(crate) issuers: Option<Arc<Issuers>>,
}

impl JudgeCertificate for Judge {
    fn judge(&self, shown: &ShownCertificates<'_>) -> Result<(), CertificateRefusal> {
        let problem = match shown.finding {
            Finding::Trusted => 0,
            Finding::Refused(problem) => problem_of(problem, shown.chain),
            Finding::NoRoots => numbered("UNABLE_TO_GET_ISSUER_CERT_LOCALLY"),
        };
        let issuers = self.issuers.clone();
        FOUND.set(Some(Found { problem, issuers }));
        match name(problem) {
            Some(name) if self.rejects && problem != WRONG_NAME => Err(name.into()),
            _ => Ok(()),
        }
    }
}

/// The problem of a certificate chain.
fn problem_of(problem: &CertificateProblem, chain: &[&[u8]]) -> u8 {
    numbered(match problem {
        CertificateProblem::Expired { .. } => "CERT_HAS_EXPIRED",
        CertificateProblem::NotYetValid { .. } => "CERT_NOT_YET_VALID",
        CertificateProblem::WrongName { .. } => "ERR_TLS_CERT_ALTNAME_INVALID",
        CertificateProblem::SelfSigned { .. }
        | CertificateProblem::AuthorityAsServer {
            self_signed: true, ..
        } => "DEPTH_ZERO_SELF_SIGNED_CERT",
        CertificateProblem::UnknownIssuer {
            sent_root: true, ..
        } => "SELF_SIGNED_CERT_IN_CHAIN",
        CertificateProblem::UnknownIssuer { .. } => match chain {
            [_] => "UNABLE_TO_VERIFY_LEAF_SIGNATURE",
            _ => "UNABLE_TO_GET_ISSUER_CERT_LOCALLY",
        },
        CertificateProblem::AuthorityAsServer { .. } | CertificateProblem::WrongPurpose => {
            "INVALID_PURPOSE"
        }
        CertificateProblem::Revoked => "CERT_REVOKED",
        CertificateProblem::BadSignature => "CERT_SIGNATURE_FAILURE",
        CertificateProblem::NotAllowed { .. } => "CERT_REJECTED",
        _ => "UNSPECIFIED",
    })
}
