//! Client certificates, verified in every handshake, including resumed ones.
//!
//! rustls takes a resumed client's certificates from its ticket and does not verify them again. This module
//! verifies them against the *current* roots, time and revocation lists. A session whose certificate would be
//! refused is not resumed, and the full handshake that follows refuses it with the right alert.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use aws_lc_rs::digest;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature,
};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, RootCertStore,
    SignatureScheme,
};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, CertificateRevocationListDer, UnixTime};
use x509_parser::oid_registry::OID_X509_EXT_ISSUER_DISTRIBUTION_POINT;
use x509_parser::prelude::{FromDer, X509Extension};
use x509_parser::revocation_list::CertificateRevocationList;
use x509_parser::time::ASN1Time;

use crate::context::settings::{Group, SettingsError, provider};
use crate::failure::{CertificateProblem, utc};
use crate::handshake::call_scope::in_scope;
use crate::hooks::judge_certificate::JudgeCertificate;
use crate::sessions::refusal::ResumptionRefused;
use crate::x509::client_rules::{self, ClientRule};
use crate::x509::der::{Der, Tag};
use crate::x509::judgement::Shown;
use crate::x509::outline::{Outline, name_as_text};
use crate::x509::path::needed;
use crate::x509::trust::roots_from_pem;

/// Length of the policy digest in a ticket. It is enough, because only the operator chooses what is digested.
pub(crate) const POLICY_LEN: usize = 8;

/// Client certificate settings.
#[derive(Debug, Clone, Default)]
pub struct ClientCertificates {
    /// Whether a client without a certificate is refused.
    pub required: bool,
    /// Authorities for client certificates: a PEM bundle. May be empty only if the context has a judge, which
    /// then decides alone.
    pub roots: Vec<u8>,
    /// Revocation lists in PEM, each with a name for messages. If there are any, every issuer in a client's
    /// chain must have a current one.
    pub crls: Vec<(String, Vec<u8>)>,
    /// Rules for valid certificates: each must match one rule. Empty: all are allowed.
    pub allow: Vec<ClientRule>,
}

impl ClientCertificates {
    /// Returns a warning for each revocation list that has expired at `now`, unless there is a newer one; clients of
    /// its issuer are refused.
    pub fn warnings(&self, now: UnixTime) -> Vec<String> {
        let mut ends: HashMap<Vec<u8>, (i64, Option<String>)> = HashMap::new();
        for (name, pem) in &self.crls {
            for der in CertificateRevocationListDer::pem_slice_iter(pem).flatten() {
                let Ok((_, list)) = CertificateRevocationList::from_der(&der) else {
                    continue;
                };
                let newest = ends.entry(scope(&list)).or_insert((i64::MIN, None));
                if newest.0 < list.last_update().timestamp() {
                    *newest = (list.last_update().timestamp(), expired(name, &list, now));
                }
            }
        }
        let mut warnings: Vec<String> = ends.into_values().filter_map(|(_, end)| end).collect();
        warnings.sort();
        warnings
    }

    /// Parses the authorities and the revocation lists. Several contexts can share the result.
    pub fn verifier(&self) -> Result<ClientVerifier, SettingsError> {
        ClientVerifier::new(self, &provider(&Group::ALL)?)
    }

    fn lists(&self) -> Result<Vec<CertificateRevocationListDer<'static>>, SettingsError> {
        let mut lists = Vec::new();
        for (name, pem) in &self.crls {
            let before = lists.len();
            let refuse = |why: String| SettingsError::ClientCrl(format!("{name}: {why}"));
            for list in CertificateRevocationListDer::pem_slice_iter(pem) {
                lists.push(list.map_err(|e| refuse(e.to_string()))?);
            }
            if lists.len() == before {
                return Err(refuse(
                    "it contains no PEM revocation list (openssl crl -inform DER converts one)"
                        .to_owned(),
                ));
            }
        }
        // The library uses the first list that covers a certificate. A directory may hold the lists of earlier days,
        // too, in which a certificate is not revoked yet, or which have expired.
        lists.sort_by_cached_key(|list| Reverse(made_at_s(list)));
        Ok(lists)
    }

    /// Returns a digest of the policy: whether certificates are required, and the authorities. Revocation lists
    /// and rules are not part of it, because they are checked whenever a session is resumed.
    fn policy(&self) -> [u8; POLICY_LEN] {
        let mut anchors: Vec<_> = CertificateDer::pem_slice_iter(&self.roots)
            .flatten()
            .collect();
        anchors.sort_by(|a, b| a.as_ref().cmp(b.as_ref()));
        anchors.dedup();
        let mut context = digest::Context::new(&digest::SHA256);
        context.update(&[1, u8::from(self.required)]);
        for anchor in anchors {
            context.update(&(anchor.len() as u64).to_be_bytes());
            context.update(&anchor);
        }
        let digest = context.finish();
        digest.as_ref().first_chunk().copied().unwrap_or_default()
    }
}

/// Returns when a revocation list was made, in seconds of Unix time (thisUpdate, RFC 5280 §5.1.2.4). Of the list, which
/// may be long, only its beginning is read.
fn made_at_s(list: &[u8]) -> Option<i64> {
    let mut list = Der::whole(list)?
        .enter(Tag::SEQUENCE)?
        .enter(Tag::SEQUENCE)?;
    // Version, signature algorithm, issuer.
    list.skip(Tag::INTEGER);
    list.expect(Tag::SEQUENCE)?;
    list.expect(Tag::SEQUENCE)?;
    let time = match list.element(Tag::UTC_TIME) {
        Some(time) => time,
        None => list.element(Tag::GENERALIZED_TIME)?,
    };
    let (_, time) = ASN1Time::from_der(time).ok()?;
    Some(time.timestamp())
}

/// Returns what distinguishes a list from others of its issuer: the issuing distribution point.
fn scope(list: &CertificateRevocationList<'_>) -> Vec<u8> {
    let is_scope =
        |extension: &&X509Extension<'_>| extension.oid == OID_X509_EXT_ISSUER_DISTRIBUTION_POINT;
    let scope = list.extensions().iter().find(is_scope);
    let scope = scope.map_or(&[][..], |extension| extension.value);
    [list.issuer().as_raw(), scope].concat()
}

/// Returns the warning for a list that has expired at `now`.
fn expired(name: &str, list: &CertificateRevocationList<'_>, now: UnixTime) -> Option<String> {
    let ends_s = u64::try_from(list.next_update()?.timestamp()).ok()?;
    (ends_s < now.as_secs()).then(|| {
        format!(
            "{name}: the revocation list of {} expired at {}; clients with certificates from this issuer are refused until a newer list is installed",
            list.issuer(),
            utc(ends_s)
        )
    })
}

/// Parsed authorities and revocation lists. Cloning it is cheap.
#[derive(Debug, Clone)]
pub struct ClientVerifier {
    roots: Arc<RootCertStore>,
    verifier: Arc<dyn ClientCertVerifier>,
}

impl ClientVerifier {
    fn new(
        settings: &ClientCertificates,
        provider: &Arc<CryptoProvider>,
    ) -> Result<ClientVerifier, SettingsError> {
        let roots = roots_from_pem(&settings.roots).map_err(SettingsError::ClientRoots)?;
        let roots = Arc::new(roots);
        // `ClientAuth` knows whether a certificate is required.
        let builder =
            WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(provider));
        let verifier = builder
            .with_crls(settings.lists()?)
            .enforce_revocation_expiration()
            .build()
            .map_err(|e| SettingsError::ClientCrl(e.to_string()))?;
        Ok(ClientVerifier { roots, verifier })
    }
}

/// The client verifier of one context.
pub(crate) struct ClientAuth {
    /// `None` if there are no roots, and the caller decides alone.
    inner: Option<ClientVerifier>,
    required: bool,
    judge: Option<Arc<dyn JudgeCertificate>>,
    algorithms: WebPkiSupportedAlgorithms,
    allow: Vec<ClientRule>,
    policy: [u8; POLICY_LEN],
}

impl ClientAuth {
    pub(crate) fn new(
        settings: &ClientCertificates,
        shared: Option<ClientVerifier>,
        provider: &Arc<CryptoProvider>,
        judge: Option<Arc<dyn JudgeCertificate>>,
    ) -> Result<ClientAuth, SettingsError> {
        let inner = match shared {
            Some(shared) => Some(shared),
            None if settings.roots.is_empty() && judge.is_some() => None,
            None => Some(ClientVerifier::new(settings, provider)?),
        };
        Ok(ClientAuth {
            inner,
            required: settings.required,
            judge,
            algorithms: provider.signature_verification_algorithms,
            allow: settings.allow.clone(),
            policy: settings.policy(),
        })
    }

    pub(crate) fn policy(&self) -> [u8; POLICY_LEN] {
        self.policy
    }

    /// Verifies the certificates from a session.
    pub(crate) fn judge_again(
        &self,
        chain: &[&[u8]],
        now: UnixTime,
    ) -> Result<(), ResumptionRefused> {
        let chain: Vec<CertificateDer<'_>> = chain.iter().map(|&der| der.into()).collect();
        match chain.split_first() {
            None if self.required => Err(ResumptionRefused::ClientCertificate),
            None => Ok(()),
            Some((end_entity, intermediates)) => self
                .judge(end_entity, intermediates, now)
                .map(|_| ())
                .map_err(|_| ResumptionRefused::ClientCertificate),
        }
    }

    fn judge(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let of_roots = self.inner.as_ref().map(|inner| {
            let needed = needed(
                end_entity,
                intermediates,
                &inner.roots,
                self.algorithms,
                now,
            )?;
            inner
                .verifier
                .verify_client_cert(end_entity, &needed.certificates, now)
        });
        let shown = Shown {
            end_entity,
            intermediates,
            server_name: None,
            ocsp_response: &[],
            now,
        };
        let judge = self.judge.as_deref();
        let (mut judgement, mut found) =
            shown.judge(of_roots, judge, ClientCertVerified::assertion());
        if judgement.is_ok()
            && let Err(claims) = client_rules::allow(&self.allow, end_entity)
        {
            // The alert is access_denied (RFC 8446 §6.2): the certificate is valid but not allowed.
            let refused = CertificateError::ApplicationVerificationFailure;
            judgement = Err(Error::InvalidCertificate(refused));
            found = Some(CertificateProblem::NotAllowed { claims });
        }
        in_scope(|scope| {
            (scope.client, scope.client_name) = names(end_entity);
            scope.certificate_problem = found;
            scope.resumption.client_judged = judgement.is_ok();
        });
        judgement
    }
}

/// Returns the subject of a certificate as text for the log, and the common name for the backend.
pub(crate) fn names(certificate: &CertificateDer<'_>) -> (Option<String>, Option<String>) {
    const LENGTH_MAX: usize = 200;
    let Some(outline) = Outline::read(certificate) else {
        return (None, None);
    };
    let subject = name_as_text(outline.subject);
    let shown = dormouse_printable::line_up_to(&subject, LENGTH_MAX);
    (
        Some(shown.to_string()),
        client_rules::common_name(certificate),
    )
}

impl ClientCertVerifier for ClientAuth {
    fn client_auth_mandatory(&self) -> bool {
        self.required
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.inner
            .as_ref()
            .map_or(&[], |inner| inner.verifier.root_hint_subjects())
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.judge(end_entity, intermediates, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, signed, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, signed, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

impl fmt::Debug for ClientAuth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClientAuth")
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::handshake::call_scope::{CallScope, enter};

    fn at(seconds: u64) -> UnixTime {
        UnixTime::since_unix_epoch(Duration::from_secs(seconds))
    }

    #[test]
    fn a_certificate_from_a_session_is_checked_against_the_current_time() {
        let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let key = rcgen::KeyPair::generate().unwrap();
        let issuer = rcgen::CertifiedIssuer::self_signed(params, key).unwrap();
        let mut params = rcgen::CertificateParams::new(vec!["alice".to_owned()]).unwrap();
        params.not_before = rcgen::date_time_ymd(2025, 1, 1);
        params.not_after = rcgen::date_time_ymd(2025, 7, 1);
        let leaf = params
            .signed_by(&rcgen::KeyPair::generate().unwrap(), &issuer)
            .unwrap();
        let settings = ClientCertificates {
            required: true,
            roots: issuer.pem().into_bytes(),
            crls: Vec::new(),
            allow: Vec::new(),
        };
        let client_auth =
            ClientAuth::new(&settings, None, &provider(&Group::ALL).unwrap(), None).unwrap();
        let (before, during, after) = (at(1_735_000_000), at(1_740_000_000), at(1_760_000_000));
        for (now, good) in [(before, false), (during, true), (after, false)] {
            let (scope, judged) = enter(CallScope::new(), || {
                client_auth.judge_again(&[leaf.der()], now)
            });
            assert_eq!(judged.is_ok(), good);
            assert_eq!(scope.resumption.client_judged, good);
        }
        let missing = enter(CallScope::new(), || client_auth.judge_again(&[], during)).1;
        assert!(missing.is_err(), "a required certificate is missing");
    }
}
