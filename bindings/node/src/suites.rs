//! Cipher suites by OpenSSL's names, which Node.js shows.

use dormouse_embed::Suite;

/// IANA's name, OpenSSL's name, the suite.
///
/// An exported connection refers to its suite by its index here, so new suites go at the end.
const SUITES: [(&str, &str, Suite); 9] = [
    (
        "TLS_AES_128_GCM_SHA256",
        "TLS_AES_128_GCM_SHA256",
        Suite::Aes128Gcm,
    ),
    (
        "TLS_AES_256_GCM_SHA384",
        "TLS_AES_256_GCM_SHA384",
        Suite::Aes256Gcm,
    ),
    (
        "TLS_CHACHA20_POLY1305_SHA256",
        "TLS_CHACHA20_POLY1305_SHA256",
        Suite::Chacha20,
    ),
    (
        "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
        "ECDHE-ECDSA-AES128-GCM-SHA256",
        Suite::EcdsaAes128Gcm,
    ),
    (
        "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
        "ECDHE-ECDSA-AES256-GCM-SHA384",
        Suite::EcdsaAes256Gcm,
    ),
    (
        "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
        "ECDHE-ECDSA-CHACHA20-POLY1305",
        Suite::EcdsaChacha20,
    ),
    (
        "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
        "ECDHE-RSA-AES128-GCM-SHA256",
        Suite::RsaAes128Gcm,
    ),
    (
        "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
        "ECDHE-RSA-AES256-GCM-SHA384",
        Suite::RsaAes256Gcm,
    ),
    (
        "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
        "ECDHE-RSA-CHACHA20-POLY1305",
        Suite::RsaChacha20,
    ),
];

/// Returns the number of the suite with this name.
pub(crate) fn number(iana: &str) -> u8 {
    let found = SUITES.iter().position(|(name, ..)| *name == iana);
    found
        .and_then(|at| u8::try_from(at).ok())
        .unwrap_or(u8::MAX)
}

/// Returns the names of the suite with this number: IANA's, OpenSSL's.
pub(crate) fn names(number: u8) -> Option<(&'static str, &'static str)> {
    let found = SUITES.get(usize::from(number));
    found.map(|(iana, openssl, _)| (*iana, *openssl))
}

/// Returns the suites with these OpenSSL names.
pub(crate) fn by_openssl_names(names: &[String]) -> Vec<Suite> {
    let named = SUITES
        .iter()
        .filter(|(_, openssl, _)| names.iter().any(|name| name == openssl));
    named.map(|(.., suite)| *suite).collect()
}
