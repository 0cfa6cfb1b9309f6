//! The check of a peer's certificate: first against the roots, then by the caller.

use dormouse_record::AlertDescription;
use rustls::{CertificateError, Error};
use rustls_pki_types::{CertificateDer, TrustAnchor, UnixTime};

use crate::call_scope::in_scope;
use crate::failure::CertificateProblem;
use crate::failure::words::NameConstraintViolation;
use crate::x509::facts::CertificateFacts;
use crate::x509::judge_certificate::{
    CertificateRefusal, Finding, JudgeCertificate, ShownCertificates,
};
use crate::x509::outline::{Outline, name_as_text};
use crate::x509::unsupported::{
    critical_extension, key_length, name_constraint, no_signer, subject_constraint,
};

/// The data that a peer presented.
pub(crate) struct Shown<'a> {
    pub(crate) end_entity: &'a CertificateDer<'a>,
    pub(crate) intermediates: &'a [CertificateDer<'a>],
    pub(crate) server_name: Option<&'a str>,
    pub(crate) ocsp_response: &'a [u8],
    pub(crate) now: UnixTime,
    /// The trusted roots, if there are any.
    pub(crate) roots: &'a [TrustAnchor<'a>],
}

/// A result, and the problem in more detail than the error has.
pub(crate) type Judgement<V> = (Result<V, Error>, Option<CertificateProblem>);

impl Shown<'_> {
    /// Returns the final result. `of_roots` is `None` if there are no roots; without roots and judge, every
    /// peer is accepted. `accepted` is returned on success.
    pub(crate) fn judge<V>(
        &self,
        of_roots: Option<Result<V, Error>>,
        judge: Option<&dyn JudgeCertificate>,
        accepted: V,
    ) -> Judgement<V> {
        let of_roots = match of_roots {
            Some(Ok(_)) if self.breaks_constraint() => Some(Err(NameConstraintViolation.into())),
            other => other,
        };
        let problem = match &of_roots {
            Some(Err(Error::InvalidCertificate(error))) => Some(self.problem(error)),
            _ => None,
        };
        let Some(judge) = judge else {
            return (of_roots.unwrap_or(Ok(accepted)), problem);
        };
        let finding = match (&of_roots, &problem) {
            (None, _) => Finding::NoRoots,
            (Some(Ok(_)), _) => Finding::Trusted,
            (Some(Err(_)), Some(problem)) => Finding::Refused(problem),
            // The error is not about the certificate, so the caller is not asked.
            (Some(Err(error)), None) => return (Err(error.clone()), None),
        };
        let by_roots = of_roots.is_some();
        match (self.ask(judge, finding), of_roots) {
            (Ok(()), _) => (Ok(accepted), None),
            // The roots' error has the more specific alert.
            (Err(_), Some(Err(error))) => (Err(error), problem),
            (Err(CertificateRefusal { reason, alert }), _) => {
                // RFC 8446 §6.2: access_denied is for valid certificates.
                let alert = alert.unwrap_or(match by_roots {
                    true => AlertDescription::AccessDenied,
                    false => AlertDescription::CertificateUnknown,
                });
                in_scope(|facts: &mut CertificateFacts| facts.alert = Some(alert));
                let error = CertificateError::ApplicationVerificationFailure;
                let problem = CertificateProblem::Other(reason);
                (Err(Error::InvalidCertificate(error)), Some(problem))
            }
        }
    }

    fn ask(
        &self,
        judge: &dyn JudgeCertificate,
        finding: Finding<'_>,
    ) -> Result<(), CertificateRefusal> {
        // The check of an offered session may have set it.
        in_scope(|facts: &mut CertificateFacts| facts.alert = None);
        judge.judge(&ShownCertificates {
            chain: &self.chain(),
            server_name: self.server_name,
            ocsp_response: self.ocsp_response,
            now: self.now,
            finding,
        })
    }

    /// Whether an authority constrains a name that webpki does not compare.
    fn breaks_constraint(&self) -> bool {
        subject_constraint(&self.chain(), self.roots).is_some()
    }

    fn chain(&self) -> Vec<&[u8]> {
        let chain = std::iter::once(self.end_entity).chain(self.intermediates);
        chain.map(AsRef::as_ref).collect()
    }

    /// Returns the problem with details from the certificates. An unknown issuer is taken from the end of the
    /// chain, where the missing certificate belongs.
    fn problem(&self, error: &CertificateError) -> CertificateProblem {
        match of_webpki(error).as_deref() {
            Some(AUTHORITY_AS_PEER) => return authority_as_server(self.end_entity, error),
            Some("UnsupportedCriticalExtension") => {
                let found = critical_extension(&self.chain());
                return found.map_or_else(|| error.into(), CertificateProblem::Unsupported);
            }
            Some("NameConstraintViolation") => {
                let found = name_constraint(&self.chain(), self.roots);
                return found.map_or_else(|| error.into(), CertificateProblem::Unsupported);
            }
            _ => {}
        }
        match error {
            CertificateError::UnknownIssuer => {}
            CertificateError::BadSignature => {
                let found = key_length(&self.chain(), self.roots);
                return found.map_or_else(|| error.into(), CertificateProblem::Unsupported);
            }
            _ => return error.into(),
        }
        if let Some(words) = no_signer(&self.chain()) {
            return CertificateProblem::Other(words);
        }
        let last = self.intermediates.last().unwrap_or(self.end_entity);
        let (Some(own), Some(last)) = (Outline::read(self.end_entity), Outline::read(last)) else {
            return CertificateProblem::from(error);
        };
        if own.is_self_issued() {
            CertificateProblem::SelfSigned {
                subject: name_as_text(own.subject),
            }
        } else {
            CertificateProblem::UnknownIssuer {
                issuer: name_as_text(last.issuer),
                sent_root: last.is_self_issued(),
            }
        }
    }
}

/// Passes the result of a check of a peer's handshake signature on, after noting the limit behind a failure.
pub(crate) fn noting_limits<V>(
    result: Result<V, Error>,
    certificate: &CertificateDer<'_>,
) -> Result<V, Error> {
    if let Err(Error::InvalidCertificate(CertificateError::BadSignature)) = &result
        && let Some(words) = key_length(&[certificate.as_ref()], &[])
    {
        let problem = Some(CertificateProblem::Unsupported(words));
        in_scope(|facts: &mut CertificateFacts| facts.problem = problem);
    }
    result
}

/// Whether a peer's own certificate was refused because it is an authority's.
pub(crate) fn is_authority_as_peer(error: &Error) -> bool {
    let Error::InvalidCertificate(error) = error else {
        return false;
    };
    of_webpki(error).as_deref() == Some(AUTHORITY_AS_PEER)
}

const AUTHORITY_AS_PEER: &str = "CaUsedAsEndEntity";

/// Returns the name of webpki's error, if rustls has no variant for it.
fn of_webpki(error: &CertificateError) -> Option<String> {
    match error {
        CertificateError::Other(other) => Some(other.to_string()),
        _ => None,
    }
}

fn authority_as_server(
    end_entity: &CertificateDer<'_>,
    error: &CertificateError,
) -> CertificateProblem {
    match Outline::read(end_entity) {
        Some(own) => CertificateProblem::AuthorityAsServer {
            subject: name_as_text(own.subject),
            self_signed: own.is_self_issued(),
        },
        None => CertificateProblem::from(error),
    }
}
