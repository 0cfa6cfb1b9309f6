//! Trusted roots, and the verification of a server's certificate.

use std::fmt;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature,
};
use rustls::{DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};

use crate::call_scope::{self, in_scope};
use crate::settings_error::SettingsError;
use crate::x509::anchors::{Anchors, Purpose, verify_alone};
use crate::x509::facts::CertificateFacts;
use crate::x509::judge_certificate::JudgeCertificate;
use crate::x509::judgement::{Shown, noting_limits};
use crate::x509::path::needed;
use crate::x509::pem::contents;

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
pub struct TrustStore(Anchors);

impl TrustStore {
    /// Reads a PEM bundle, in which every certificate must be usable.
    pub fn from_pem(bundle: &[u8]) -> Result<TrustStore, SettingsError> {
        let (roots, certificates) = contents::roots(bundle, "")
            .map_err(|refused| SettingsError::Roots(contents::in_bundle(&refused)))?;
        Ok(TrustStore(Anchors::new(roots, &certificates)))
    }

    /// Returns the number of roots.
    pub fn len(&self) -> usize {
        self.0.roots.len()
    }

    /// Whether there are no roots, which [`TrustStore::from_pem`] refuses.
    pub fn is_empty(&self) -> bool {
        self.0.roots.is_empty()
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
        let anchors = match self {
            Roots::System => Some(system_roots()?),
            Roots::Pem(bundle) => Some(TrustStore::from_pem(bundle)?.0),
            Roots::Store(store) => Some(store.0.clone()),
            Roots::Insecure => None,
        };
        let trusted = anchors.map(|anchors| {
            let (roots, provider) = (Arc::clone(&anchors.roots), Arc::clone(provider));
            let built = WebPkiServerVerifier::builder_with_provider(roots, provider).build();
            let verifier = built.map_err(|e| SettingsError::Roots(e.to_string()))?;
            Ok::<_, SettingsError>(Trusted { anchors, verifier })
        });
        Ok(Arc::new(ServerVerifier {
            trusted: trusted.transpose()?,
            judge,
            algorithms: provider.signature_verification_algorithms,
        }))
    }
}

fn system_roots() -> Result<Anchors, SettingsError> {
    let certificates = usable_system_certificates()?;
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(certificates.iter().cloned());
    Ok(Anchors::new(roots, &certificates))
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
    trusted: Option<Trusted>,
    judge: Option<Arc<dyn JudgeCertificate>>,
    algorithms: WebPkiSupportedAlgorithms,
}

struct Trusted {
    anchors: Anchors,
    verifier: Arc<WebPkiServerVerifier>,
}

impl Trusted {
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
        let chain = needed(end_entity, shown.intermediates, roots, algorithms, now)?;
        let (chain, ocsp) = (chain.certificates, shown.ocsp_response);
        let verified = self
            .verifier
            .verify_server_cert(end_entity, &chain, name, ocsp, now);
        if verified.is_err() && self.anchors.contain(end_entity) {
            let own = verify_alone(end_entity, Purpose::Server, now)?;
            return verify_server_name(&own, name).map(|()| ServerCertVerified::assertion());
        }
        verified
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

/// In a loopback handshake nothing needs to be verified.
fn is_loopback() -> bool {
    call_scope::is_loopback() == Some(true)
}

fn note_signature(signed: &DigitallySignedStruct) {
    in_scope(|facts: &mut CertificateFacts| facts.signature = Some(signed.scheme));
}
