//! Trusted roots, and the verification of a server's certificate.

use std::fmt;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature,
};
use rustls::{DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};

use crate::context::settings::SettingsError;
use crate::handshake::call_scope::in_scope;
use crate::hooks::judge_certificate::JudgeCertificate;
use crate::x509::judgement::Shown;
use crate::x509::path::needed;
use crate::x509::pem;
use crate::x509::words::in_words;

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

/// Trusted roots, parsed once. Cloning it is cheap.
#[derive(Debug, Clone)]
pub struct TrustStore(Arc<RootCertStore>);

impl TrustStore {
    /// Reads a PEM bundle, in which every certificate must be usable.
    pub fn from_pem(bundle: &[u8]) -> Result<TrustStore, SettingsError> {
        let store = roots_from_pem(bundle).map_err(SettingsError::Roots)?;
        Ok(TrustStore(Arc::new(store)))
    }

    /// Returns the number of roots.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are no roots, which [`TrustStore::from_pem`] refuses.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Roots {
    /// Returns the operating system's roots as one PEM bundle, for processes that cannot read files themselves.
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
            Roots::System => Some(Arc::new(system_roots()?)),
            Roots::Pem(bundle) => Some(TrustStore::from_pem(bundle)?.0),
            Roots::Store(store) => Some(Arc::clone(&store.0)),
            Roots::Insecure => None,
        };
        let trusted = store.map(|roots| {
            let provider = Arc::clone(provider);
            let built =
                WebPkiServerVerifier::builder_with_provider(Arc::clone(&roots), provider).build();
            let verifier = built.map_err(|e| SettingsError::Roots(e.to_string()))?;
            Ok::<_, SettingsError>(Trusted { roots, verifier })
        });
        Ok(Arc::new(ServerVerifier {
            trusted: trusted.transpose()?,
            judge,
            algorithms: provider.signature_verification_algorithms,
        }))
    }
}

fn system_roots() -> Result<RootCertStore, SettingsError> {
    let mut store = RootCertStore::empty();
    store.add_parsable_certificates(usable_system_certificates()?);
    Ok(store)
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

/// Reads a bundle. The operator chose it, so every certificate in it must be usable.
pub(crate) fn roots_from_pem(bundle: &[u8]) -> Result<RootCertStore, String> {
    let mut store = RootCertStore::empty();
    for (index, certificate) in CertificateDer::pem_slice_iter(bundle).enumerate() {
        let added = certificate
            .map_err(|e| e.to_string())
            .and_then(|certificate| store.add(certificate).map_err(|e| in_words(&e)));
        added.map_err(|e| format!("certificate {}: {e}", index + 1))?;
    }
    if store.is_empty() {
        return Err("the bundle contains no PEM certificate".to_owned());
    }
    Ok(store)
}

/// Verifies servers: their handshake signature always, their chain if there are roots or a judge.
struct ServerVerifier {
    trusted: Option<Trusted>,
    judge: Option<Arc<dyn JudgeCertificate>>,
    algorithms: WebPkiSupportedAlgorithms,
}

struct Trusted {
    roots: Arc<RootCertStore>,
    verifier: Arc<WebPkiServerVerifier>,
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
        let of_roots = self.trusted.as_ref().map(|trusted| {
            let needed = needed(
                end_entity,
                intermediates,
                &trusted.roots,
                self.algorithms,
                now,
            )?;
            trusted.verifier.verify_server_cert(
                end_entity,
                &needed.certificates,
                server_name,
                ocsp_response,
                now,
            )
        });
        let shown = Shown {
            end_entity,
            intermediates,
            server_name: Some(&server_name.to_str()),
            ocsp_response,
            now,
        };
        let judge = self.judge.as_deref();
        let (verdict, problem) = shown.judge(of_roots, judge, ServerCertVerified::assertion());
        in_scope(|scope| scope.certificate_problem = problem);
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
        verify_tls12_signature(message, cert, signed, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        note_signature(signed);
        verify_tls13_signature(message, cert, signed, &self.algorithms)
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

/// In a loopback handshake nothing needs to be verified.
fn is_loopback() -> bool {
    in_scope(|scope| scope.is_loopback) == Some(true)
}

fn note_signature(signed: &DigitallySignedStruct) {
    in_scope(|scope| scope.signature = Some(signed.scheme));
}
