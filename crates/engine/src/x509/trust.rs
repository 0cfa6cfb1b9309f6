//! Judging the server's certificate: by trusted roots, with every problem told apart, or not
//! at all, which is then said aloud.

use std::fmt;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::{CertificateError, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::context::settings::SettingsError;
use crate::failure::CertificateProblem;
use crate::handshake::call_scope::in_scope;
use crate::hooks::judge_certificate::JudgeCertificate;
use crate::x509::judgement::Shown;
use crate::x509::pem;

/// Whom a client trusts to vouch for servers.
#[derive(Debug, Clone)]
pub enum Roots {
    /// Those the operating system trusts.
    System,
    /// Those in this PEM bundle.
    Pem(Vec<u8>),
    /// Anybody: the server's certificate is not judged. Only for measuring and trying out;
    /// [`HandshakeInfo::verified`](crate::HandshakeInfo) is false then.
    Insecure,
    /// Those in a store that was made before: several contexts share it.
    Store(TrustStore),
}

/// Trusted roots, parsed once. Cloning it is cheap.
#[derive(Debug, Clone)]
pub struct TrustStore(Arc<RootCertStore>);

impl TrustStore {
    /// From a PEM bundle, in which every certificate must be usable.
    pub fn from_pem(bundle: &[u8]) -> Result<TrustStore, SettingsError> {
        pem_roots(bundle).map(|store| TrustStore(Arc::new(store)))
    }

    /// How many roots there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none, which [`TrustStore::from_pem`] refuses.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Roots {
    /// What the operating system trusts, as one PEM bundle: for processes which may not read
    /// files themselves.
    pub fn system_pem() -> Result<String, SettingsError> {
        let mut bundle = String::new();
        for certificate in usable_system_certificates()? {
            bundle.push_str(&pem::encode(&certificate));
        }
        Ok(bundle)
    }

    pub(crate) fn judges(&self) -> bool {
        !matches!(self, Roots::Insecure)
    }

    pub(crate) fn verifier(
        &self,
        provider: &Arc<CryptoProvider>,
        judge: Option<Arc<dyn JudgeCertificate>>,
    ) -> Result<Arc<dyn ServerCertVerifier>, SettingsError> {
        let store = match self {
            Roots::System => Arc::new(system_roots()?),
            Roots::Pem(bundle) => Arc::new(pem_roots(bundle)?),
            Roots::Store(store) => Arc::clone(&store.0),
            Roots::Insecure => {
                let provider = Arc::clone(provider);
                return Ok(Arc::new(NoRoots { provider, judge }));
            }
        };
        let inner = WebPkiServerVerifier::builder_with_provider(store, Arc::clone(provider))
            .build()
            .map_err(|e| SettingsError::Roots(e.to_string()))?;
        Ok(Arc::new(WithRoots { inner, judge }))
    }
}

fn system_roots() -> Result<RootCertStore, SettingsError> {
    let mut store = RootCertStore::empty();
    store.add_parsable_certificates(usable_system_certificates()?);
    Ok(store)
}

/// Systems ship certificates that nothing can use; what is left must not be empty.
fn usable_system_certificates() -> Result<Vec<CertificateDer<'static>>, SettingsError> {
    let found = rustls_native_certs::load_native_certs();
    let usable: Vec<_> = found
        .certs
        .into_iter()
        .filter(|certificate| RootCertStore::empty().add(certificate.clone()).is_ok())
        .collect();
    if usable.is_empty() {
        let why = found
            .errors
            .first()
            .map_or_else(|| "the system has none".to_owned(), ToString::to_string);
        return Err(SettingsError::Roots(why));
    }
    Ok(usable)
}

/// A bundle is somebody's choice, so every certificate in it must be usable.
fn pem_roots(bundle: &[u8]) -> Result<RootCertStore, SettingsError> {
    let mut store = RootCertStore::empty();
    for (index, certificate) in CertificateDer::pem_slice_iter(bundle).enumerate() {
        let added = certificate
            .map_err(|e| e.to_string())
            .and_then(|certificate| store.add(certificate).map_err(|e| e.to_string()));
        added.map_err(|e| SettingsError::Roots(format!("certificate {}: {e}", index + 1)))?;
    }
    if store.is_empty() {
        return Err(SettingsError::Roots(
            "there is no PEM certificate in the bundle".to_owned(),
        ));
    }
    Ok(store)
}

/// webpki's judgement, with the problem noted in more words than its error has.
struct WithRoots {
    inner: Arc<WebPkiServerVerifier>,
    judge: Option<Arc<dyn JudgeCertificate>>,
}

impl ServerCertVerifier for WithRoots {
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
        let judgement = self.inner.verify_server_cert(
            end_entity,
            intermediates,
            server_name,
            ocsp_response,
            now,
        );
        let found = match &judgement {
            Err(Error::InvalidCertificate(error)) => {
                Some(problem(error, end_entity, intermediates))
            }
            _ => None,
        };
        let (judgement, found) = match &self.judge {
            Some(judge) => {
                let shown = Shown {
                    end_entity,
                    intermediates,
                    server_name: Some(&server_name.to_str()),
                    ocsp_response,
                    now,
                };
                let accepted = ServerCertVerified::assertion();
                shown.judge_again(&**judge, (judgement, found), accepted)
            }
            None => (judgement, found),
        };
        in_scope(|scope| scope.certificate_problem = found);
        judgement
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
        self.inner.verify_tls12_signature(message, cert, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        note_signature(signed);
        self.inner.verify_tls13_signature(message, cert, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}

impl fmt::Debug for WithRoots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WithRoots")
    }
}

/// Takes every certificate that the caller does not refuse. The server must own its key.
struct NoRoots {
    provider: Arc<CryptoProvider>,
    judge: Option<Arc<dyn JudgeCertificate>>,
}

impl ServerCertVerifier for NoRoots {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some(judge) = self.judge.as_deref().filter(|_| !is_loopback()) else {
            return Ok(ServerCertVerified::assertion());
        };
        let shown = Shown {
            end_entity,
            intermediates,
            server_name: Some(&server_name.to_str()),
            ocsp_response,
            now,
        };
        let (judgement, found) = shown.judge(judge, ServerCertVerified::assertion());
        in_scope(|scope| scope.certificate_problem = found);
        judgement
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
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, cert, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        note_signature(signed);
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, cert, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let algorithms = &self.provider.signature_verification_algorithms;
        algorithms.supported_schemes()
    }
}

impl fmt::Debug for NoRoots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NoRoots")
    }
}

/// In a handshake with ourselves nobody has anything to prove.
fn is_loopback() -> bool {
    in_scope(|scope| scope.is_loopback) == Some(true)
}

fn note_signature(signed: &DigitallySignedStruct) {
    in_scope(|scope| scope.signature = Some(signed.scheme));
}

/// What is wrong, with what only the certificate itself can tell. An unknown issuer is
/// looked for at the end of the chain, where somebody has to add it.
pub(crate) fn problem(
    error: &CertificateError,
    end_entity: &CertificateDer<'_>,
    intermediates: &[CertificateDer<'_>],
) -> CertificateProblem {
    if is_authority_as_server(error) {
        return authority_as_server(end_entity, error);
    }
    if *error != CertificateError::UnknownIssuer {
        return CertificateProblem::from(error);
    }
    let last = intermediates.last().unwrap_or(end_entity);
    let (Ok((_, leaf)), Ok((_, last))) = (
        X509Certificate::from_der(end_entity),
        X509Certificate::from_der(last),
    ) else {
        return CertificateProblem::from(error);
    };
    if leaf.issuer().as_raw() == leaf.subject().as_raw() {
        CertificateProblem::SelfSigned {
            subject: leaf.subject().to_string(),
        }
    } else {
        CertificateProblem::UnknownIssuer {
            issuer: last.issuer().to_string(),
        }
    }
}

/// webpki's own error for a leaf with CA:TRUE comes without a variant of rustls'.
fn is_authority_as_server(error: &CertificateError) -> bool {
    matches!(error, CertificateError::Other(other) if other.to_string() == "CaUsedAsEndEntity")
}

fn authority_as_server(
    end_entity: &CertificateDer<'_>,
    error: &CertificateError,
) -> CertificateProblem {
    match X509Certificate::from_der(end_entity) {
        Ok((_, leaf)) => CertificateProblem::AuthorityAsServer {
            subject: leaf.subject().to_string(),
            self_signed: leaf.issuer().as_raw() == leaf.subject().as_raw(),
        },
        Err(_) => CertificateProblem::from(error),
    }
}
