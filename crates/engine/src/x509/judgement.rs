//! Certificates before the caller's judge.

use rustls::{CertificateError, Error};
use rustls_pki_types::{CertificateDer, UnixTime};

use crate::failure::CertificateProblem;
use crate::hooks::judge_certificate::{Finding, JudgeCertificate, ShownCertificates};

/// What a peer showed.
pub(crate) struct Shown<'a> {
    pub(crate) end_entity: &'a CertificateDer<'a>,
    pub(crate) intermediates: &'a [CertificateDer<'a>],
    pub(crate) server_name: Option<&'a str>,
    pub(crate) ocsp_response: &'a [u8],
    pub(crate) now: UnixTime,
}

/// A judgement, and what is wrong in more words than its error has.
pub(crate) type Judgement<V> = (Result<V, Error>, Option<CertificateProblem>);

impl Shown<'_> {
    /// Asks the judge behind the roots. `accepted` is what stands for a good judgement.
    pub(crate) fn judge_again<V>(
        &self,
        judge: &dyn JudgeCertificate,
        (of_roots, problem): Judgement<V>,
        accepted: V,
    ) -> Judgement<V> {
        let finding = match (&of_roots, &problem) {
            (Ok(_), _) => Finding::Trusted,
            (Err(_), Some(problem)) => Finding::Refused(problem),
            // Not the certificate's fault: nothing to judge.
            (Err(_), None) => return (of_roots, None),
        };
        match (self.ask(judge, finding), &of_roots) {
            (Ok(()), _) => (Ok(accepted), None),
            // The roots' error has the better alert.
            (Err(_), Err(_)) => (of_roots, problem),
            (Err(why), Ok(_)) => refused(why),
        }
    }

    /// Asks the judge where there are no roots.
    pub(crate) fn judge<V>(&self, judge: &dyn JudgeCertificate, accepted: V) -> Judgement<V> {
        match self.ask(judge, Finding::NoRoots) {
            Ok(()) => (Ok(accepted), None),
            Err(why) => refused(why),
        }
    }

    fn ask(&self, judge: &dyn JudgeCertificate, finding: Finding<'_>) -> Result<(), String> {
        let own = std::iter::once(self.end_entity);
        let chain: Vec<&[u8]> = own.chain(self.intermediates).map(AsRef::as_ref).collect();
        judge.judge(&ShownCertificates {
            chain: &chain,
            server_name: self.server_name,
            ocsp_response: self.ocsp_response,
            now: self.now,
            finding,
        })
    }
}

/// Its alert is access_denied (RFC 8446 §6.2).
fn refused<V>(why: String) -> Judgement<V> {
    let error = CertificateError::ApplicationVerificationFailure;
    (
        Err(Error::InvalidCertificate(error)),
        Some(CertificateProblem::Other(why)),
    )
}
