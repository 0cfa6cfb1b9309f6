//! Cipher suites by the names that runtimes show.

use dormouse_engine::Suite;

/// A cipher suite with its names.
#[derive(Debug)]
pub struct NamedSuite {
    /// The suite.
    pub suite: Suite,
    /// Its name in IANA's registry.
    pub iana: &'static str,
    /// Its name in OpenSSL.
    pub openssl: &'static str,
}

const fn tls13(suite: Suite, name: &'static str) -> NamedSuite {
    NamedSuite {
        suite,
        iana: name,
        openssl: name,
    }
}

const fn tls12(suite: Suite, iana: &'static str, openssl: &'static str) -> NamedSuite {
    NamedSuite {
        suite,
        iana,
        openssl,
    }
}

/// All suites. The bindings' exported connections have a suite's index in this list, so new suites go at the end.
pub const NAMED_SUITES: [NamedSuite; 9] = [
    tls13(Suite::Aes128Gcm, "TLS_AES_128_GCM_SHA256"),
    tls13(Suite::Aes256Gcm, "TLS_AES_256_GCM_SHA384"),
    tls13(Suite::Chacha20, "TLS_CHACHA20_POLY1305_SHA256"),
    tls12(
        Suite::EcdsaAes128Gcm,
        "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
        "ECDHE-ECDSA-AES128-GCM-SHA256",
    ),
    tls12(
        Suite::EcdsaAes256Gcm,
        "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
        "ECDHE-ECDSA-AES256-GCM-SHA384",
    ),
    tls12(
        Suite::EcdsaChacha20,
        "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
        "ECDHE-ECDSA-CHACHA20-POLY1305",
    ),
    tls12(
        Suite::RsaAes128Gcm,
        "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
        "ECDHE-RSA-AES128-GCM-SHA256",
    ),
    tls12(
        Suite::RsaAes256Gcm,
        "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
        "ECDHE-RSA-AES256-GCM-SHA384",
    ),
    tls12(
        Suite::RsaChacha20,
        "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
        "ECDHE-RSA-CHACHA20-POLY1305",
    ),
];

impl NamedSuite {
    /// Returns the number of the suite with this name of IANA's; 255: unknown.
    pub fn number(iana: &str) -> u8 {
        let found = NAMED_SUITES.iter().position(|suite| suite.iana == iana);
        found
            .and_then(|at| u8::try_from(at).ok())
            .unwrap_or(u8::MAX)
    }

    /// Returns the suite with this number.
    pub fn numbered(number: u8) -> Option<&'static NamedSuite> {
        NAMED_SUITES.get(usize::from(number))
    }

    /// Returns the bits of its key.
    pub fn key_bits(&self) -> u16 {
        match self.suite {
            Suite::Aes128Gcm | Suite::EcdsaAes128Gcm | Suite::RsaAes128Gcm => 128,
            _ => 256,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_suite_has_its_number() {
        assert_eq!(NAMED_SUITES.each_ref().map(|one| one.suite), Suite::ALL);
        for (at, suite) in NAMED_SUITES.iter().enumerate() {
            assert_eq!(usize::from(NamedSuite::number(suite.iana)), at);
            assert_eq!(suite.iana.contains("128"), suite.key_bits() == 128);
        }
        assert!(NamedSuite::numbered(NamedSuite::number("TLS_RSA")).is_none());
    }
}
