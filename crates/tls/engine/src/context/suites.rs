//! Cipher suites, for configurations that enable only some of them.

use std::sync::Arc;

use dormouse_record::Version;
use rustls::CipherSuite;
use rustls::crypto::CryptoProvider;

use crate::settings_error::SettingsError;

/// A cipher suite. All of them are AEAD with forward secrecy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Suite {
    /// TLS 1.3, AES-128-GCM.
    Aes128Gcm,
    /// TLS 1.3, AES-256-GCM.
    Aes256Gcm,
    /// TLS 1.3, ChaCha20-Poly1305.
    Chacha20,
    /// TLS 1.2, ECDSA certificates, AES-128-GCM.
    EcdsaAes128Gcm,
    /// TLS 1.2, ECDSA certificates, AES-256-GCM.
    EcdsaAes256Gcm,
    /// TLS 1.2, ECDSA certificates, ChaCha20-Poly1305.
    EcdsaChacha20,
    /// TLS 1.2, RSA certificates, AES-128-GCM.
    RsaAes128Gcm,
    /// TLS 1.2, RSA certificates, AES-256-GCM.
    RsaAes256Gcm,
    /// TLS 1.2, RSA certificates, ChaCha20-Poly1305.
    RsaChacha20,
}

impl Suite {
    /// All suites.
    pub const ALL: [Suite; 9] = [
        Suite::Aes128Gcm,
        Suite::Aes256Gcm,
        Suite::Chacha20,
        Suite::EcdsaAes128Gcm,
        Suite::EcdsaAes256Gcm,
        Suite::EcdsaChacha20,
        Suite::RsaAes128Gcm,
        Suite::RsaAes256Gcm,
        Suite::RsaChacha20,
    ];

    /// Returns the TLS version that uses this suite.
    pub fn version(self) -> Version {
        match self {
            Suite::Aes128Gcm | Suite::Aes256Gcm | Suite::Chacha20 => Version::Tls13,
            _ => Version::Tls12,
        }
    }

    fn id(self) -> CipherSuite {
        match self {
            Suite::Aes128Gcm => CipherSuite::TLS13_AES_128_GCM_SHA256,
            Suite::Aes256Gcm => CipherSuite::TLS13_AES_256_GCM_SHA384,
            Suite::Chacha20 => CipherSuite::TLS13_CHACHA20_POLY1305_SHA256,
            Suite::EcdsaAes128Gcm => CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
            Suite::EcdsaAes256Gcm => CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
            Suite::EcdsaChacha20 => CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
            Suite::RsaAes128Gcm => CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
            Suite::RsaAes256Gcm => CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
            Suite::RsaChacha20 => CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
        }
    }
}

/// Returns the provider with only these suites.
pub(crate) fn only(
    provider: Arc<CryptoProvider>,
    suites: &[Suite],
) -> Result<Arc<CryptoProvider>, SettingsError> {
    let mut provider = Arc::unwrap_or_clone(provider);
    let wanted = |id: CipherSuite| suites.iter().any(|suite| suite.id() == id);
    provider.cipher_suites.retain(|suite| wanted(suite.suite()));
    if provider.cipher_suites.is_empty() {
        return Err(SettingsError::NoSuites);
    }
    Ok(Arc::new(provider))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::settings::{Group, provider};

    /// A suite that the library has but this type does not name could not be disabled.
    #[test]
    fn every_suite_of_the_library_has_a_name() {
        let all = provider(&Group::ALL).unwrap();
        let kept = only(Arc::clone(&all), &Suite::ALL).unwrap();
        assert_eq!(kept.cipher_suites.len(), all.cipher_suites.len());
        assert_eq!(kept.cipher_suites.len(), Suite::ALL.len());
        let one = only(all, &[Suite::RsaChacha20]).unwrap();
        assert_eq!(one.cipher_suites.len(), 1);
        assert_eq!(only(one, &[]).unwrap_err(), SettingsError::NoSuites);
    }
}
