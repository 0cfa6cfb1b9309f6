//! Trusted roots, and the verification of a server's certificate.

use std::fmt;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature,
};
use rustls::{CertificateError, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};

use crate::call_scope::{self, in_scope};
use crate::settings_error::SettingsError;
use crate::x509::anchors::{Anchors, Purpose, verify_alone};
use crate::x509::facts::CertificateFacts;
use crate::x509::judge_certificate::JudgeCertificate;
use crate::x509::judgement::{Shown, is_authority_as_peer, noting_limits};
use crate::x509::path::needed;
use crate::x509::pem::contents;
use crate::x509::revocation::{self, WithLists};
use crate::x509::stapled;

/// The roots that a client trusts.
#[derive(Debug, Clone)]
pub enum Roots {
    /// The operating system's roots.
    System,
    /// The certificates in this PEM bundle.
    Pem(Vec<u8>),
    /// None: server certificates are not verified. Only for measurements and trials;
    /// [`HandshakeInfo::verified`](crate::HandshakeInfo) is then false.
    Insecure,
    /// A trust store that several contexts share.
    Store(TrustStore),
}

/// What a client demands of servers' certificates.
#[derive(Debug, Clone, Default)]
pub struct ServerCertificates {
    /// Authorities for servers' certificates: a PEM bundle, in which every certificate must be usable.
    pub roots: Vec<u8>,
    /// Revocation lists in PEM, each with a name for messages. If there are any, every issuer in a server's
    /// chain must have a current one.
    pub crls: Vec<(String, Vec<u8>)>,
    /// Whether a server must staple a valid OCSP response. If not, only a response that says that the
    /// certificate was revoked counts.
    pub ocsp_required: bool,
}

impl ServerCertificates {
    /// Returns a warning for each revocation list that has expired at `now`, unless there is a newer one, and for each
    /// that begins later. Servers of an expired list's issuer are refused.
    pub fn warnings(&self, now: UnixTime) -> Vec<String> {
        revocation::warnings(&self.crls, "servers", now)
    }

    /// Parses the authorities and the revocation lists. Several contexts can share the result.
    pub fn store(&self) -> Result<TrustStore, SettingsError> {
        let (roots, certificates) = contents::roots(&self.roots, "")
            .map_err(|refused| SettingsError::Roots(contents::in_bundle(&refused)))?;
        TrustStore::new(Anchors::new(roots, &certificates), self)
    }
}

/// Trusted roots and revocation lists, parsed once. Cloning it is cheap.
#[derive(Debug, Clone)]
pub struct TrustStore {
    anchors: Anchors,
    with_lists: WithLists<WebPkiServerVerifier>,
    ocsp_required: bool,
}

impl TrustStore {
    /// Reads a PEM bundle, in which every certificate must be usable.
    pub fn from_pem(bundle: &[u8]) -> Result<TrustStore, SettingsError> {
        let demanded = ServerCertificates {
            roots: bundle.to_vec(),
            ..ServerCertificates::default()
        };
        demanded.store()
    }

    fn new(anchors: Anchors, demanded: &ServerCertificates) -> Result<TrustStore, SettingsError> {
        let provider = Arc::new(default_provider());
        let with_lists = WithLists::new(&revocation::read(&demanded.crls)?, |lists| {
            let (roots, provider) = (Arc::clone(&anchors.roots), Arc::clone(&provider));
            WebPkiServerVerifier::builder_with_provider(roots, provider)
                .with_crls(lists)
                .enforce_revocation_expiration()
                .build()
        })?;
        Ok(TrustStore {
            anchors,
            with_lists,
            ocsp_required: demanded.ocsp_required,
        })
    }

    /// Returns the number of roots.
    pub fn len(&self) -> usize {
        self.anchors.roots.len()
    }

    /// Whether there are no roots, which [`TrustStore::from_pem`] refuses.
    pub fn is_empty(&self) -> bool {
        self.anchors.roots.is_empty()
    }
}

impl Roots {
    /// Returns the operating system's roots as one PEM bundle, for processes that cannot read files themselves.
    pub fn system_pem() -> Result<String, SettingsError> {
        let all = usable_system_certificates()?;
        let certificates = all.iter().map(AsRef::as_ref);
        Ok(contents::encode_certificates(certificates))
    }

    pub(crate) fn judges(&self) -> bool {
        !matches!(self, Roots::Insecure)
    }

    pub(crate) fn verifier(
        &self,
        provider: &Arc<CryptoProvider>,
        judge: Option<Arc<dyn JudgeCertificate>>,
    ) -> Result<Arc<dyn ServerCertVerifier>, SettingsError> {
        let trusted = match self {
            Roots::System => Some(system_roots()?),
            Roots::Pem(bundle) => Some(TrustStore::from_pem(bundle)?),
            Roots::Store(store) => Some(store.clone()),
            Roots::Insecure => None,
        };
        Ok(Arc::new(ServerVerifier {
            trusted,
            judge,
            algorithms: provider.signature_verification_algorithms,
        }))
    }
}

fn system_roots() -> Result<TrustStore, SettingsError> {
    let certificates = usable_system_certificates()?;
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(certificates.iter().cloned());
    let anchors = Anchors::new(roots, &certificates);
    TrustStore::new(anchors, &ServerCertificates::default())
}

/// Systems ship some unusable certificates, which are skipped; at least one must remain.
fn usable_system_certificates() -> Result<Vec<CertificateDer<'static>>, SettingsError> {
    let found = rustls_native_certs::load_native_certs();
    let usable: Vec<_> = found
        .certs
        .into_iter()
        .filter(|certificate| RootCertStore::empty().add(certificate.clone()).is_ok())
        .collect();
    if usable.is_empty() {
        let why = found.errors.first().map_or_else(
            || "the system has no trusted certificates".to_owned(),
            ToString::to_string,
        );
        return Err(SettingsError::Roots(why));
    }
    Ok(usable)
}

/// Verifies servers: their handshake signature always, their chain if there are roots or a judge.
struct ServerVerifier {
    trusted: Option<TrustStore>,
    judge: Option<Arc<dyn JudgeCertificate>>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl TrustStore {
    fn verify(
        &self,
        shown: &Shown<'_>,
        name: &ServerName<'_>,
        algorithms: WebPkiSupportedAlgorithms,
    ) -> Result<ServerCertVerified, Error> {
        let &Shown {
            end_entity, now, ..
        } = shown;
        let roots = &self.anchors.roots;
        let others = needed(end_entity, shown.intermediates, roots, algorithms, now)?.certificates;
        let verified = self.with_lists.verify(end_entity, &others, |verifier| {
            let verified = verifier.verify_server_cert(end_entity, &others, name, &[], now);
            verified.map(|_| ())
        });
        match verified {
            Ok(()) => stapled::judge(
                shown.ocsp_response,
                end_entity,
                &others,
                roots,
                algorithms,
                self.ocsp_required,
                now,
            )?,
            // The certificate is trusted itself, so that no list is about it.
            Err(_) if self.anchors.contain(end_entity) && !self.with_lists.has_lists() => {
                let own = verify_alone(end_entity, Purpose::Server, now)?;
                verify_server_name(&own, name)?;
                if self.ocsp_required {
                    return Err(stapled::no_good_response(None));
                }
            }
            // With revocation lists, the list of its issuer must cover each certificate.
            Err(error) if is_authority_as_peer(&error) && self.anchors.contain(end_entity) => {
                return Err(CertificateError::UnknownRevocationStatus.into());
            }
            Err(error) => return Err(error),
        }
        Ok(ServerCertVerified::assertion())
    }
}

impl ServerCertVerifier for ServerVerifier {
    /// Combines the results of webpki and of the caller, and records the problem in more detail than the error
    /// has.
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if is_loopback() {
            return Ok(ServerCertVerified::assertion());
        }
        let trusted = self.trusted.as_ref();
        let shown = Shown {
            end_entity,
            intermediates,
            server_name: Some(&server_name.to_str()),
            ocsp_response,
            now,
            roots: trusted.map_or(&[], |trusted| &trusted.anchors.roots.roots),
        };
        let of_roots = trusted.map(|trusted| trusted.verify(&shown, server_name, self.algorithms));
        let judge = self.judge.as_deref();
        let of_roots = match of_roots {
            Some(Err(error))
                if is_about_the_name(&error)
                    && judge.is_some_and(JudgeCertificate::names_peers) =>
            {
                Some(Ok(ServerCertVerified::assertion()))
            }
            other => other,
        };
        let (verdict, problem) = shown.judge(of_roots, judge, ServerCertVerified::assertion());
        in_scope(|facts: &mut CertificateFacts| facts.problem = problem);
        verdict
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        if is_loopback() {
            return Ok(HandshakeSignatureValid::assertion());
        }
        note_signature(signed);
        let result = verify_tls12_signature(message, cert, signed, &self.algorithms);
        noting_limits(result, cert)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        note_signature(signed);
        let result = verify_tls13_signature(message, cert, signed, &self.algorithms);
        noting_limits(result, cert)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

impl fmt::Debug for ServerVerifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ServerVerifier")
    }
}

/// Whether nothing but the name was wrong, which is compared after everything else but a stapled OCSP response.
fn is_about_the_name(error: &Error) -> bool {
    matches!(
        error,
        Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. }
        )
    )
}

/// In a loopback handshake nothing needs to be verified.
fn is_loopback() -> bool {
    call_scope::is_loopback() == Some(true)
}

fn note_signature(signed: &DigitallySignedStruct) {
    in_scope(|facts: &mut CertificateFacts| facts.signature = Some(signed.scheme));
}
