//! Certificates, their keys, and OCSP responses.

use dormouse_engine::{ClientRule, UnixTime, check_ocsp, fuzzed, ocsp_question};

/// The certificate used in the seeds, and its issuer.
const LEAF: &[u8] = include_bytes!("../../seeds/certificate/leaf.der");
const ISSUER: &[u8] = include_bytes!("../../seeds/certificate/issuer.der");

/// An OCSP response about a certificate.
pub(crate) fn ocsp(data: &[u8]) {
    let now = UnixTime::since_unix_epoch(std::time::Duration::from_secs(1_795_279_037));
    for chain in [&[LEAF, ISSUER][..], &[LEAF], &[]] {
        if let Err(error) = check_ocsp(data, chain, now) {
            assert!(!error.to_string().is_empty());
        }
    }
}

/// A peer's certificate, in chains with itself and with other certificates.
pub(crate) fn certificate(data: &[u8]) {
    let (shown, name) = fuzzed::names(data);
    assert!(shown.is_none_or(|shown| !shown.contains(char::is_control)));
    assert!(name.is_none_or(|name| name.len() <= 200));
    let rules = [
        ClientRule::CommonName("a".into()),
        ClientRule::OrganisationalUnit("b".into()),
        ClientRule::Dns("*.example".into()),
        ClientRule::Uri("spiffe://a/*".into()),
        ClientRule::Fingerprint([7; 32]),
    ];
    if let Err(claims) = fuzzed::allow(&rules, data) {
        assert!(!claims.contains(char::is_control) && claims.len() < 64 << 10);
    }
    for chain in [&[data, data][..], &[data, ISSUER], &[LEAF, data]] {
        if let Some((url, question)) = ocsp_question(chain) {
            assert!(!url.is_empty() && !question.is_empty());
        }
    }
}
