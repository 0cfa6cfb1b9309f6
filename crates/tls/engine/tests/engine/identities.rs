//! Unusable certificates and keys, each with its own error.

use std::process::Command;
use std::time::Duration;

use dormouse_engine::{DateProblem, Identity, IdentityProblem, IdentityWarning, KeyKind, UnixTime};
use dormouse_testkit::{Authority, PemFiles, RSA_BITS, now};
use rustls_pki_types::PrivateKeyDer;
use rustls_pki_types::pem::PemObject as _;

fn problem(certificate: &str, key: &str) -> (String, IdentityProblem) {
    let error = Identity::from_pem(
        certificate.as_bytes(),
        key.as_bytes(),
        "site.pem",
        "site.key",
    )
    .unwrap_err();
    println!("{error}");
    (error.file, error.problem)
}

#[test]
fn every_mistake_has_its_own_error() {
    let authority = Authority::shared();
    let leaf = authority.ecdsa(&["a.test"]);
    let (good, key) = (leaf.certificate_pem.as_str(), leaf.key_pem.as_str());
    let other_key = authority.ecdsa(&["a.test"]).key_pem;
    let rsa_key = authority.rsa(&["a.test"]).key_pem;
    let cut = &good[..good.len() / 2];
    let nonsense = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    let bad_key = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
    let public = "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n";
    let request = "-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----\n";
    let mismatch = || IdentityProblem::KeyMismatch {
        certificate: "site.pem".to_owned(),
    };
    for (certificate, key, file, expected) in [
        ("", key, "site.pem", IdentityProblem::Empty),
        (good, " \n", "site.key", IdentityProblem::Empty),
        ("no text", key, "site.pem", IdentityProblem::NoSection),
        (good, "no key", "site.key", IdentityProblem::NoSection),
        (
            key,
            key,
            "site.pem",
            IdentityProblem::KeyInsteadOfCertificate,
        ),
        (
            good,
            good,
            "site.key",
            IdentityProblem::CertificateInsteadOfKey,
        ),
        (public, key, "site.pem", IdentityProblem::NoCertificate),
        (
            request,
            key,
            "site.pem",
            IdentityProblem::RequestInsteadOfCertificate,
        ),
        (
            good,
            public,
            "site.key",
            IdentityProblem::PublicKeyInsteadOfKey,
        ),
        (good, request, "site.key", IdentityProblem::NoKey),
        (
            good,
            &format!("{key}{other_key}"),
            "site.key",
            IdentityProblem::SeveralKeys { lines: vec![1, 6] },
        ),
        (good, &other_key, "site.key", mismatch()),
        (good, &rsa_key, "site.key", mismatch()),
        (
            &format!("{}{good}", authority.ecdsa(&["b.test"]).certificate_pem),
            key,
            "site.key",
            IdentityProblem::WrongOrder {
                certificate: "site.pem".to_owned(),
                place: 2,
            },
        ),
    ] {
        assert_eq!(problem(certificate, key), (file.to_owned(), expected));
    }
    for wrong in [cut, nonsense] {
        let problem = problem(wrong, key).1;
        assert!(matches!(problem, IdentityProblem::BadPem { line: 1, .. }));
    }
    assert!(matches!(
        problem(good, bad_key).1,
        IdentityProblem::UnusableKey(_)
    ));
}

#[test]
fn a_chain_and_its_key_in_der() {
    let authority = Authority::shared();
    let der = |pem: &str| PrivateKeyDer::from_pem_slice(pem.as_bytes()).unwrap();
    for leaf in [authority.ecdsa(&["a.test"]), authority.rsa(&["a.test"])] {
        let from_pem = leaf.identity();
        let chain = || from_pem.chain().into_iter().map(<[u8]>::to_vec).collect();
        let key = der(&leaf.key_pem);
        let identity = Identity::from_der(chain(), key.secret_der(), "an alias").unwrap();
        assert_eq!(identity.key_kind(), from_pem.key_kind());
        let other = der(&authority.ecdsa(&["a.test"]).key_pem).clone_key();
        for wrong in [other.secret_der(), b"nonsense"] {
            let error = Identity::from_der(chain(), wrong, "an alias").unwrap_err();
            assert_eq!(error.file, "an alias", "{error}");
        }
    }
}

/// Both of OpenSSL's formats for encrypted keys, and its older formats without encryption.
#[test]
fn keys_as_openssl_writes_them() {
    let leaf = Authority::shared().rsa(&["a.test"]);
    let files = PemFiles::write(Authority::shared(), &leaf).unwrap();
    let out = files.directory().join("out.key");
    for (options, encrypted) in [
        (&["pkey", "-aes256", "-passout", "pass:x"][..], true),
        (
            &["rsa", "-traditional", "-aes128", "-passout", "pass:x"],
            true,
        ),
        (&["rsa", "-traditional"], false),
        (&["pkey"], false),
    ] {
        let status = Command::new("openssl")
            .args(options)
            .arg("-in")
            .arg(files.key())
            .arg("-out")
            .arg(&out)
            .stderr(std::process::Stdio::null())
            .status()
            .unwrap();
        assert!(status.success(), "{options:?}");
        let identity = Identity::from_files(&files.certificate(), &out);
        if encrypted {
            let error = identity.unwrap_err();
            assert_eq!(error.problem, IdentityProblem::EncryptedKey);
        } else {
            assert_eq!(
                identity.unwrap().key_kind(),
                KeyKind::Rsa { bits: RSA_BITS }
            );
        }
    }
}

#[test]
fn unreadable_files_are_errors() {
    let leaf = Authority::shared().ecdsa(&["a.test"]);
    let files = PemFiles::write(Authority::shared(), &leaf).unwrap();
    let missing = files.directory().join("nothing.pem");
    let error = Identity::from_files(&missing, &files.key()).unwrap_err();
    assert_eq!(error.file, missing.display().to_string());
    assert!(matches!(error.problem, IdentityProblem::Unreadable(_)));
    let error = Identity::from_files(files.directory(), &files.key()).unwrap_err();
    assert!(matches!(error.problem, IdentityProblem::Unreadable(_)));
    let huge = files.directory().join("huge.pem");
    std::fs::write(&huge, vec![b'-'; (1 << 20) + 1]).unwrap();
    let error = Identity::from_files(&huge, &files.key()).unwrap_err();
    assert_eq!(error.problem, IdentityProblem::TooLarge { max: 1 << 20 });
}

/// As editors of other systems save it.
#[test]
fn a_byte_order_mark_hides_nothing() {
    let leaf = Authority::shared().ecdsa(&["a.test"]);
    let files = PemFiles::write(Authority::shared(), &leaf).unwrap();
    for file in [files.certificate(), files.key()] {
        let text = std::fs::read_to_string(&file).unwrap();
        std::fs::write(&file, format!("\u{feff}{text}")).unwrap();
    }
    let identity = Identity::from_files(&files.certificate(), &files.key()).unwrap();
    assert_eq!(identity.names(), ["a.test"]);
}

#[test]
fn one_file_may_hold_chain_and_key() {
    let authority = Authority::shared();
    let leaf = authority.ecdsa(&["a.test", "192.0.2.7"]);
    let both = format!(
        "{}{}{}",
        leaf.key_pem,
        leaf.certificate_pem,
        authority.certificate_pem()
    );
    let identity = Identity::from_pem(both.as_bytes(), both.as_bytes(), "f", "f").unwrap();
    assert_eq!(identity.names(), ["a.test", "192.0.2.7"]);
    assert_eq!(identity.key_kind(), KeyKind::Ecdsa { bits: 256 });
    assert!(!format!("{identity:?}").contains("PRIVATE"));
}

#[test]
fn usable_identities_with_problems_get_warnings() {
    let authority = Authority::shared();
    let good = authority.ecdsa(&["a.test"]).identity();
    assert!(good.warnings(now()).is_empty());
    let expired = authority.expired(&["a.test"]).identity();
    assert_eq!(
        expired.warnings(now()),
        [IdentityWarning::Dates(DateProblem::Expired {
            not_after_s: expired.expires_at_s()
        })]
    );
    let early = authority.not_yet_valid(&["a.test"]).identity();
    assert!(matches!(
        early.warnings(now())[..],
        [IdentityWarning::Dates(DateProblem::NotYetValid { .. })]
    ));
    let long_ago = UnixTime::since_unix_epoch(Duration::from_secs(1));
    assert!(!good.warnings(long_ago).is_empty());
    let nameless = authority.ecdsa(&[]).identity();
    assert_eq!(nameless.warnings(now()), [IdentityWarning::NoNames]);
}

#[test]
fn self_signed_for_a_name_or_an_address() {
    for name in ["localhost", "127.0.0.1", "::1"] {
        let identity = Identity::self_signed(name).unwrap();
        assert_eq!(identity.names(), [name]);
        assert!(identity.warnings(now()).is_empty());
    }
}
