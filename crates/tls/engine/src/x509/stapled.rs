//! The OCSP response that a server staples to its certificate (RFC 6066 §8), as its client judges it.
//!
//! The holder of a revoked certificate's key chooses the other certificates of the message, so the response must be
//! signed for the issuer in the *verified* chain: a certificate of the message that only has the issuer's name, and a
//! key of the server's choice, does not count.

use dormouse_record::AlertDescription;
use rustls::crypto::WebPkiSupportedAlgorithms;
use rustls::{CertificateError, Error, RootCertStore};
use rustls_pki_types::{CertificateDer, UnixTime};
use webpki::{EndEntityCert, KeyUsage};

use crate::call_scope::in_scope;
use crate::failure::words::NoGoodResponse;
use crate::x509::der::{Der, Tag};
use crate::x509::facts::CertificateFacts;
use crate::x509::ocsp::{OcspProblem, check_stapled};
use crate::x509::outline::Outline;

/// Judges the response to a certificate whose chain, over `others`, was verified. Without `required`, only a valid
/// response refuses it, one that says that it was revoked.
pub(crate) fn judge(
    response: &[u8],
    end_entity: &CertificateDer<'_>,
    others: &[CertificateDer<'_>],
    roots: &RootCertStore,
    algorithms: WebPkiSupportedAlgorithms,
    required: bool,
    now: UnixTime,
) -> Result<(), Error> {
    let problem = match response.is_empty() {
        true => Some(None),
        false => issuer_key(end_entity, others, roots, algorithms, now)
            .ok_or(OcspProblem::BadSignature)
            .and_then(|key| check_stapled(response, end_entity, &key, now))
            .err()
            .map(Some),
    };
    match problem {
        None => Ok(()),
        Some(Some(OcspProblem::Revoked)) => Err(CertificateError::Revoked.into()),
        Some(_) if !required => Ok(()),
        Some(problem) => Err(no_good_response(problem.as_ref())),
    }
}

/// Returns the key of the certificate's issuer in the verified chain.
fn issuer_key(
    end_entity: &CertificateDer<'_>,
    others: &[CertificateDer<'_>],
    roots: &RootCertStore,
    algorithms: WebPkiSupportedAlgorithms,
    now: UnixTime,
) -> Option<Vec<u8>> {
    let own = EndEntityCert::try_from(end_entity).ok()?;
    let (usage, roots) = (KeyUsage::server_auth(), &roots.roots);
    let path = own.verify_for_usage(algorithms.all, roots, others, now, usage, None, None);
    let path = path.ok()?;
    let of_other = path
        .intermediate_certificates()
        .next()
        .map(|issuer| issuer.der());
    match of_other {
        Some(issuer) => bits(Outline::read(&issuer)?.key),
        None => bits(path.anchor().subject_public_key_info.as_ref()),
    }
}

/// Returns the key in the content of a SubjectPublicKeyInfo (RFC 5280 §4.1).
fn bits(key: &[u8]) -> Option<Vec<u8>> {
    let mut key = Der::contents(key);
    key.expect(Tag::SEQUENCE)?;
    key.expect(Tag::BITS)?
        .strip_prefix(&[0])
        .map(<[u8]>::to_vec)
}

/// The error if a valid response is required, and the server stapled none (`None`), or another one.
pub(crate) fn no_good_response(problem: Option<&OcspProblem>) -> Error {
    // RFC 6066 §8.
    let alert = Some(AlertDescription::BadCertificateStatusResponse);
    in_scope(|facts: &mut CertificateFacts| facts.alert = alert);
    let words = match problem {
        None => "the server stapled no OCSP response, and one is required".to_owned(),
        Some(problem) => format!("the OCSP response that the server stapled {problem}"),
    };
    NoGoodResponse(words).into()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rustls::crypto::aws_lc_rs::default_provider;

    use super::*;
    use crate::x509::pem::contents;

    macro_rules! file {
        ($name:literal) => {
            include_bytes!(concat!("../../tests/data/ocsp/", $name))
        };
    }

    /// An authority's certificate with the name of the issuer and another key, as a server would make one for itself.
    fn namesake() -> CertificateDer<'static> {
        let mut params = rcgen::CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        params.distinguished_name = rcgen::DistinguishedName::new();
        params
            .distinguished_name
            .push(rcgen::DnType::CommonName, "ca");
        let key = rcgen::KeyPair::generate().expect("a key");
        let certificate = params.self_signed(&key).expect("a certificate");
        certificate.der().clone()
    }

    #[test]
    fn a_response_counts_if_it_is_signed_for_the_issuer_in_the_verified_chain() {
        let (_, chain) = contents::roots(file!("chain.pem"), "").expect("certificates");
        let mut roots = RootCertStore::empty();
        roots.add(chain[1].clone()).expect("an authority");
        let algorithms = default_provider().signature_verification_algorithms;
        let made_at = std::str::from_utf8(file!("made-at")).expect("a number");
        let made_at: u64 = made_at.trim().parse().expect("a number");
        let now = UnixTime::since_unix_epoch(Duration::from_secs(made_at + 86_400));
        let judged = |response: &[u8], others: &[CertificateDer<'_>], required| {
            let judged = judge(
                response, &chain[0], others, &roots, algorithms, required, now,
            );
            judged.map_err(|error| crate::failure::words::in_words(&error))
        };
        for others in [
            &[][..],
            &chain[1..],
            &[namesake()],
            &[namesake(), chain[1].clone()],
        ] {
            for required in [false, true] {
                for good in [&file!("good.der")[..], file!("delegated.der")] {
                    assert_eq!(judged(good, others, required), Ok(()));
                }
                let revoked = judged(file!("revoked.der"), others, required);
                assert_eq!(revoked, Err("it was revoked".to_owned()));
            }
            for (bad, why) in [
                (&[][..], "the server stapled no OCSP response"),
                (file!("stranger.der"), "is not signed by"),
                (file!("no-responder.der"), "is not signed by"),
                (file!("other.der"), "is about another certificate"),
                (file!("unknown.der"), "does not know the certificate"),
                (file!("short.der"), "is valid only from"),
                (file!("made-at"), "is not an OCSP response"),
            ] {
                assert_eq!(judged(bad, others, false), Ok(()));
                let refused = judged(bad, others, true).expect_err(why);
                assert!(refused.contains(why), "{why}: {refused}");
            }
        }
    }
}
