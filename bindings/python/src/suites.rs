//! Cipher suites by OpenSSL's names, which `ssl` shows.

use pyo3::prelude::*;

/// A suite: IANA's name, OpenSSL's name, the bits of its key.
pub(crate) struct Suite {
    iana: &'static str,
    pub(crate) openssl: &'static str,
    pub(crate) bits: u16,
}

const fn suite(iana: &'static str, openssl: &'static str, bits: u16) -> Suite {
    Suite {
        iana,
        openssl,
        bits,
    }
}

/// All suites of the engine. An exported session refers to its suite by its index here, so new suites go at the end.
const SUITES: [Suite; 9] = [
    suite("TLS_AES_128_GCM_SHA256", "TLS_AES_128_GCM_SHA256", 128),
    suite("TLS_AES_256_GCM_SHA384", "TLS_AES_256_GCM_SHA384", 256),
    suite(
        "TLS_CHACHA20_POLY1305_SHA256",
        "TLS_CHACHA20_POLY1305_SHA256",
        256,
    ),
    suite(
        "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
        "ECDHE-ECDSA-AES128-GCM-SHA256",
        128,
    ),
    suite(
        "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
        "ECDHE-ECDSA-AES256-GCM-SHA384",
        256,
    ),
    suite(
        "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
        "ECDHE-ECDSA-CHACHA20-POLY1305",
        256,
    ),
    suite(
        "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
        "ECDHE-RSA-AES128-GCM-SHA256",
        128,
    ),
    suite(
        "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
        "ECDHE-RSA-AES256-GCM-SHA384",
        256,
    ),
    suite(
        "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
        "ECDHE-RSA-CHACHA20-POLY1305",
        256,
    ),
];

/// Returns the number of the suite of this name.
pub(crate) fn number(iana: &str) -> u8 {
    let found = SUITES.iter().position(|suite| suite.iana == iana);
    found
        .and_then(|at| u8::try_from(at).ok())
        .unwrap_or(u8::MAX)
}

/// Returns the suite of this number.
pub(crate) fn by_number(number: u8) -> Option<&'static Suite> {
    SUITES.get(usize::from(number))
}

/// All suites: name, oldest protocol, bits.
#[pyfunction]
pub(crate) fn suites() -> Vec<(&'static str, &'static str, u16)> {
    let of = |suite: &Suite| match suite.openssl.starts_with("TLS_") {
        true => (suite.openssl, "TLSv1.3", suite.bits),
        false => (suite.openssl, "TLSv1.2", suite.bits),
    };
    SUITES.iter().map(of).collect()
}
