//! Client certificates, verified in every handshake, including resumed ones.
//!
//! rustls takes a resumed client's certificates from its ticket and does not verify them again. This module
//! verifies them against the *current* roots, time and revocation lists. A session whose certificate would be
//! refused is not resumed, and the full handshake that follows refuses it with the right alert.

use std::fmt;
use std::sync::Arc;

use aws_lc_rs::digest;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature,
};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};
use rustls_pki_types::{CertificateDer, UnixTime};

use crate::call_scope::in_scope;
use crate::client_hello::requested::as_sent;
use crate::failure::CertificateProblem;
use crate::settings_error::SettingsError;
use crate::x509::anchors::{Anchors, Purpose, verify_alone};
use crate::x509::authority_names::AuthorityNames;
use crate::x509::client_rules::{self, ClientRule};
use crate::x509::facts::CertificateFacts;
use crate::x509::judge_certificate::JudgeCertificate;
use crate::x509::judgement::{Shown, is_authority_as_peer, noting_limits};
use crate::x509::outline::{Outline, name_as_text};
use crate::x509::path::needed;
use crate::x509::pem::contents;
use crate::x509::revocation::{self, WithLists};
use crate::x509::standing::{self, ClientStanding, ClientStandings};

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
    /// Returns a warning for each revocation list that has expired at `now`, unless there is a newer one, and for each
    /// that begins later. Clients of an expired list's issuer are refused.
    pub fn warnings(&self, now: UnixTime) -> Vec<String> {
        revocation::warnings(&self.crls, "clients", now)
    }

    /// Parses the authorities and the revocation lists. Several contexts can share the result.
    pub fn verifier(&self) -> Result<ClientVerifier, SettingsError> {
        ClientVerifier::new(self, &Arc::new(default_provider()))
    }

    /// Returns a digest of the policy: whether certificates are required, and the authorities. Revocation lists
    /// and rules are not part of it, because they are checked whenever a session is resumed.
    fn policy(&self) -> [u8; POLICY_LEN] {
        let anchors = contents::authorities(&self.roots, "").unwrap_or_default();
        let mut anchors: Vec<_> = anchors.into_iter().map(|(_, anchor)| anchor).collect();
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

/// Parsed authorities and revocation lists. Cloning it is cheap.
#[derive(Debug, Clone)]
pub struct ClientVerifier {
    anchors: Anchors,
    with_lists: WithLists<dyn ClientCertVerifier>,
    names: Arc<AuthorityNames>,
    /// The certificates on the lists.
    revoked: Arc<[standing::Number]>,
}

impl ClientVerifier {
    fn new(
        settings: &ClientCertificates,
        provider: &Arc<CryptoProvider>,
    ) -> Result<ClientVerifier, SettingsError> {
        let (roots, certificates) = contents::roots(&settings.roots, "")
            .map_err(|refused| SettingsError::ClientRoots(contents::in_bundle(&refused)))?;
        let anchors = Anchors::new(roots, &certificates);
        let roots = &anchors.roots;
        let lists = revocation::read(&settings.crls)?;
        let with_lists = WithLists::new(&lists, |lists| {
            // `ClientAuth` knows whether a certificate is required.
            WebPkiClientVerifier::builder_with_provider(Arc::clone(roots), Arc::clone(provider))
                .with_crls(lists)
                .enforce_revocation_expiration()
                .build()
        })?;
        Ok(ClientVerifier {
            names: Arc::new(AuthorityNames::of(roots)),
            anchors,
            with_lists,
            revoked: standing::revoked(&lists),
        })
    }

    /// Returns a warning if clients are not told which authorities they may use.
    pub fn warning(&self) -> Option<String> {
        self.names.warning()
    }

    fn verify(
        &self,
        shown: &Shown<'_>,
        algorithms: WebPkiSupportedAlgorithms,
    ) -> Result<ClientCertVerified, Error> {
        let &Shown {
            end_entity, now, ..
        } = shown;
        let roots = &self.anchors.roots;
        let chain = needed(end_entity, shown.intermediates, roots, algorithms, now)?;
        let others = &chain.certificates;
        let verified = self.with_lists.verify(end_entity, others, |verifier| {
            let verified = verifier.verify_client_cert(end_entity, others, now);
            verified.map(|_| ())
        });
        match &verified {
            Err(_) if !self.with_lists.has_lists() && self.anchors.contain(end_entity) => {
                let own = verify_alone(end_entity, Purpose::Client, now);
                own.map(|_| ClientCertVerified::assertion())
            }
            // With revocation lists, the list of its issuer must cover each certificate.
            Err(error) if is_authority_as_peer(error) && self.anchors.contain(end_entity) => {
                Err(CertificateError::UnknownRevocationStatus.into())
            }
            _ => verified.map(|()| ClientCertVerified::assertion()),
        }
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
    standings: ClientStandings,
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
        let revoked = inner.as_ref().map(|inner| Arc::clone(&inner.revoked));
        Ok(ClientAuth {
            inner,
            required: settings.required,
            judge,
            algorithms: provider.signature_verification_algorithms,
            allow: settings.allow.clone(),
            standings: ClientStandings::new(revoked.unwrap_or_default(), &settings.allow),
            policy: settings.policy(),
        })
    }

    /// Returns which clients' standings are still good.
    pub(crate) fn standings(&self) -> &ClientStandings {
        &self.standings
    }

    pub(crate) fn policy(&self) -> [u8; POLICY_LEN] {
        self.policy
    }

    /// Verifies the certificates from a session. Returns whether they are still accepted.
    pub(crate) fn accepts_again(&self, chain: &[&[u8]], now: UnixTime) -> bool {
        let chain: Vec<CertificateDer<'_>> = chain.iter().map(|&der| der.into()).collect();
        match chain.split_first() {
            None => !self.required,
            Some((end_entity, intermediates)) => self.judge(end_entity, intermediates, now).is_ok(),
        }
    }

    fn judge(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let inner = self.inner.as_ref();
        let shown = Shown {
            end_entity,
            intermediates,
            server_name: None,
            ocsp_response: &[],
            now,
            roots: inner.map_or(&[], |inner| &inner.anchors.roots.roots),
        };
        let of_roots = inner.map(|inner| inner.verify(&shown, self.algorithms));
        let judge = self.judge.as_deref();
        let (mut judgement, mut found) =
            shown.judge(of_roots, judge, ClientCertVerified::assertion());
        let mut standing = None;
        if judgement.is_ok() {
            match client_rules::allow(&self.allow, end_entity) {
                Ok(rule) => standing = ClientStanding::of(end_entity, rule),
                Err(claims) => {
                    // The alert is access_denied (RFC 8446 §6.2): the certificate is valid but not allowed.
                    let refused = CertificateError::ApplicationVerificationFailure;
                    judgement = Err(Error::InvalidCertificate(refused));
                    found = Some(CertificateProblem::NotAllowed { claims });
                }
            }
        }
        in_scope(|facts: &mut CertificateFacts| {
            (facts.client, facts.client_name) = names(end_entity);
            facts.problem = found;
            facts.standing = standing;
            facts.client_judged = judgement.is_ok();
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
        self.inner.as_ref().map_or(&[], |inner| inner.names.sent())
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
        // Of all messages so far, as the client has sent them.
        let message = as_sent(message);
        let result = verify_tls12_signature(&message, cert, signed, &self.algorithms);
        noting_limits(result, cert)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let result = verify_tls13_signature(message, cert, signed, &self.algorithms);
        noting_limits(result, cert)
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
    use crate::call_scope::{CallScope, enter};

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
        let provider = Arc::new(default_provider());
        let client_auth = ClientAuth::new(&settings, None, &provider, None).unwrap();
        let (before, during, after) = (at(1_735_000_000), at(1_740_000_000), at(1_760_000_000));
        for (now, good) in [(before, false), (during, true), (after, false)] {
            let (mut scope, accepted) = enter(CallScope::new(), || {
                client_auth.accepts_again(&[leaf.der()], now)
            });
            assert_eq!(accepted, good);
            assert_eq!(scope.of::<CertificateFacts>().client_judged, good);
        }
        let accepted = enter(CallScope::new(), || client_auth.accepts_again(&[], during)).1;
        assert!(!accepted, "a required certificate is missing");
    }
}
