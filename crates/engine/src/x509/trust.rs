//! Verifies the server's certificate by trusted roots, or not at all. Each problem has a name of
//! its own.

use std::fmt;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature,
};
use rustls::{CertificateError, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::context::settings::SettingsError;
use crate::failure::CertificateProblem;
use crate::handshake::call_scope::in_scope;
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
        let store = roots_from_pem(bundle).map_err(SettingsError::Roots)?;
        Ok(TrustStore(Arc::new(store)))
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
    ) -> Result<Arc<dyn ServerCertVerifier>, SettingsError> {
        let store = match self {
            Roots::System => Some(Arc::new(system_roots()?)),
            Roots::Pem(bundle) => Some(TrustStore::from_pem(bundle)?.0),
            Roots::Store(store) => Some(Arc::clone(&store.0)),
            Roots::Insecure => None,
        };
        let chain = store.map(|store| {
            let builder = WebPkiServerVerifier::builder_with_provider(store, Arc::clone(provider));
            let built = builder.build();
            built.map_err(|e| SettingsError::Roots(e.to_string()))
        });
        Ok(Arc::new(ServerVerifier {
            chain: chain.transpose()?,
            algorithms: provider.signature_verification_algorithms,
        }))
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

/// Reads a bundle. It is somebody's choice, so every certificate in it must be usable.
pub(crate) fn roots_from_pem(bundle: &[u8]) -> Result<RootCertStore, String> {
    let mut store = RootCertStore::empty();
    for (index, certificate) in CertificateDer::pem_slice_iter(bundle).enumerate() {
        let added = certificate
            .map_err(|e| e.to_string())
            .and_then(|certificate| store.add(certificate).map_err(|e| e.to_string()));
        added.map_err(|e| format!("certificate {}: {e}", index + 1))?;
    }
    if store.is_empty() {
        return Err("there is no PEM certificate in the bundle".to_owned());
    }
    Ok(store)
}

/// Verifies servers: their key always, their chain where there are roots.
struct ServerVerifier {
    chain: Option<Arc<WebPkiServerVerifier>>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ServerCertVerifier for ServerVerifier {
    /// webpki's verdict, with the problem noted in more words than its error has.
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some(chain) = self.chain.as_ref().filter(|_| !is_loopback()) else {
            return Ok(ServerCertVerified::assertion());
        };
        let verdict =
            chain.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        if let Err(Error::InvalidCertificate(error)) = &verdict {
            let problem = problem(error, end_entity, intermediates);
            in_scope(|scope| scope.certificate_problem = Some(problem));
        }
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
