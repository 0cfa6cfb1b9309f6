//! Valid and invalid OCSP responses made by OpenSSL (`data/ocsp/make`).

use std::time::Duration;

use dormouse_engine::{OcspProblem, UnixTime, check_ocsp, ocsp_question, pem_chain};

const DAY_S: u64 = 86_400;

macro_rules! file {
    ($name:literal) => {
        include_bytes!(concat!("../data/ocsp/", $name))
    };
}

fn chain() -> Vec<Vec<u8>> {
    pem_chain(file!("chain.pem"), "chain.pem").expect("a chain")
}

fn made_at_s() -> u64 {
    let text = std::str::from_utf8(file!("made-at")).expect("a number");
    text.trim().parse().expect("a number")
}

/// Checks a response as of `days` days after it was made.
fn check(response: &[u8], days: u64) -> Result<(), OcspProblem> {
    check_with(response, &chain(), made_at_s() + days * DAY_S)
}

fn check_with(response: &[u8], chain: &[Vec<u8>], at_s: u64) -> Result<(), OcspProblem> {
    let chain: Vec<&[u8]> = chain.iter().map(Vec::as_slice).collect();
    let now = UnixTime::since_unix_epoch(Duration::from_secs(at_s));
    check_ocsp(response, &chain, now).map(|_| ())
}

#[test]
fn only_current_responses_of_the_issuer_for_this_certificate_are_accepted() {
    assert_eq!(check(file!("good.der"), 1), Ok(()));
    assert_eq!(check(file!("delegated.der"), 1), Ok(()));
    let refused = [
        (&file!("no-responder.der")[..], OcspProblem::BadSignature),
        (file!("stranger.der"), OcspProblem::BadSignature),
        (file!("other.der"), OcspProblem::OtherCertificate),
        (file!("revoked.der"), OcspProblem::Revoked),
        (file!("unknown.der"), OcspProblem::Unknown),
        (file!("chain.pem"), OcspProblem::Malformed),
        (
            &[0x30, 3, 0x0a, 1, 6],
            OcspProblem::NoAnswer("unauthorized"),
        ),
        (&[0x30; 20_000], OcspProblem::TooLarge),
    ];
    for (response, problem) in refused {
        assert_eq!(check(response, 1), Err(problem));
    }
}

#[test]
fn responses_outside_their_validity_are_refused() {
    let short = file!("short.der");
    assert_eq!(check(short, 0), Ok(()));
    assert!(matches!(check(short, 2), Err(OcspProblem::NotNow(_))));
    let early = check_with(short, &chain(), made_at_s() - DAY_S);
    assert!(matches!(early, Err(OcspProblem::NotNow(_))));
}

/// No byte of the signed data or the signature may change, and none may be missing.
#[test]
fn changed_responses_are_refused() {
    let good = file!("good.der");
    // The authority's own certificate is included but not used.
    let issuer = &chain()[1];
    let mut windows = good.windows(issuer.len());
    let behind = windows
        .position(|window| window == issuer)
        .expect("the issuer in the chain");
    for at in 0..good.len() {
        assert!(check(&good[..at], 1).is_err(), "cut at {at}");
        let mut changed = good.to_vec();
        changed[at] ^= 1;
        assert!(at >= behind || check(&changed, 1).is_err(), "byte {at}");
    }
}

#[test]
fn without_the_issuer_the_certificate_must_match() {
    let alone = &chain()[..1];
    let at_s = made_at_s() + DAY_S;
    assert_eq!(check_with(file!("good.der"), alone, at_s), Ok(()));
    let other = check_with(file!("other.der"), alone, at_s);
    assert_eq!(other, Err(OcspProblem::OtherCertificate));
    assert!(
        ocsp_question(&[&alone[0]]).is_none(),
        "there is no responder"
    );
}

/// The request equals OpenSSL's, byte for byte.
#[test]
fn the_request_equals_that_of_openssl() {
    let chain = chain();
    let chain: Vec<&[u8]> = chain.iter().map(Vec::as_slice).collect();
    let (url, question) = ocsp_question(&chain).expect("a responder");
    assert_eq!(url, "http://ocsp.example:81/x");
    assert_eq!(question, file!("request.der"));
}
