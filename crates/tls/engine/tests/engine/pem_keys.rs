//! Private keys in PEM, beside OpenSSL's reader.

use base64::prelude::*;
use dormouse_engine::{IdentityProblem, PemFile, pem_chain};
use dormouse_testkit::Authority;

use crate::pem::{TEXTS, Texts, openssl};

pub(crate) fn problem_of_key(text: &[u8]) -> String {
    match PemFile::of(text, "site.key").key() {
        Ok(_) => String::new(),
        Err(refused) => refused.to_string(),
    }
}

/// OpenSSL looks at what is in a key; its label may be that of another format.
#[test]
fn a_key_with_the_label_of_another_format_is_read_by_its_content() {
    let key = &*TEXTS.key;
    let expected = PemFile::of(key.as_bytes(), "site.key").key().unwrap();
    for label in ["RSA PRIVATE", "EC PRIVATE"] {
        let text = key.replace("PRIVATE", label);
        let found = PemFile::of(text.as_bytes(), "site.key").key().unwrap();
        assert_eq!(*found, *expected, "{label}");
    }
    let traditional = openssl("openssl ec", key.as_bytes());
    let traditional = String::from_utf8(traditional).unwrap();
    let expected = PemFile::of(traditional.as_bytes(), "site.key").key();
    let other = traditional.replace("EC PRIVATE", "PRIVATE");
    let found = PemFile::of(other.as_bytes(), "site.key").key();
    assert_eq!(*found.unwrap(), *expected.unwrap());
    let encrypted = openssl("openssl pkcs8 -topk8 -passout pass:x", key.as_bytes());
    let encrypted = String::from_utf8(encrypted).unwrap();
    let words = problem_of_key(encrypted.as_bytes());
    assert!(words.contains("encrypted"), "{words}");
    let hidden = encrypted.replace("ENCRYPTED ", "");
    assert_eq!(problem_of_key(hidden.as_bytes()), words);
}

#[test]
fn a_file_has_one_key_wherever_it_is() {
    let Texts { one, two, key } = &*TEXTS;
    let other = Authority::shared().ecdsa(&["b.test"]).key_pem;
    let expected = PemFile::of(key.as_bytes(), "site.key").key().unwrap();
    let parameters = openssl("openssl ecparam -name prime256v1", b"");
    let parameters = String::from_utf8(parameters).unwrap();
    for text in [
        format!("{key}{one}"),
        format!("{one}{key}{two}"),
        format!("{parameters}{key}"),
        format!("\u{feff}{key}"),
        key.replace('\n', "\r"),
        // The same key from two files.
        format!("{key}{one}{key}"),
    ] {
        let found = PemFile::of(text.as_bytes(), "site.key").key().unwrap();
        assert_eq!(*found, *expected, "{text}");
    }
    let lines = key.lines().count();
    for (text, words) in [
        (
            format!("{key}{other}"),
            format!("keys, which begin at lines 1, {}", lines + 1),
        ),
        (
            format!("{}{one}", key.trim_end()),
            format!("site.key:{lines}: -----END and other text"),
        ),
        (
            format!("{} {key}", one.trim_end()),
            "-----END and other text".to_owned(),
        ),
        (
            key.replace("PRIVATE", "OPENSSH PRIVATE"),
            "ssh-keygen -p -m PKCS8".to_owned(),
        ),
        (
            key.replace("PRIVATE", "DSA PRIVATE"),
            "is a DSA key".to_owned(),
        ),
        (one.clone(), "a certificate instead of the key".to_owned()),
        (parameters, "contains no private key".to_owned()),
    ] {
        let problem = problem_of_key(text.as_bytes());
        assert!(problem.contains(&words), "{problem}");
        let body: String = key.lines().skip(1).take(1).collect();
        assert!(
            !problem.contains(&body[..8]),
            "a key is in an error: {problem}"
        );
    }
    // Both forms of encrypted keys.
    for command in [
        "openssl pkey -aes128 -passout pass:x",
        "openssl ec -aes128 -passout pass:x",
        "openssl pkcs8 -topk8 -v1 PBE-SHA1-3DES -passout pass:x",
    ] {
        let encrypted = openssl(command, key.as_bytes());
        let problem = problem_of_key(&encrypted);
        assert!(
            problem.contains("is encrypted with a passphrase"),
            "{command}: {problem}"
        );
        // The chain in the same file can be read.
        let both = [&encrypted, one.as_bytes()].concat();
        assert_eq!(pem_chain(&both, "both").unwrap().len(), 1);
    }
}

/// RFC 5958 §2 has an implicit tag for the public half; *ring* before 0.17 writes an explicit one.
#[test]
fn an_ed25519_key_may_have_its_public_half() {
    let text = openssl("openssl genpkey -algorithm ed25519", b"");
    let text = String::from_utf8(text).unwrap();
    let expected = PemFile::of(text.as_bytes(), "site.key").key().unwrap();
    let alone = openssl("openssl pkey -outform der", text.as_bytes());
    let public = openssl("openssl pkey -pubout -outform der", text.as_bytes());
    let half = &public[public.len() - 32..];
    let with = |tags: &[u8]| {
        let contents = [&[2, 1, 1], &alone[5..], tags, half].concat();
        let der = [
            &[0x30, u8::try_from(contents.len()).unwrap()],
            &contents[..],
        ]
        .concat();
        let text = section(&der);
        PemFile::of(text.as_bytes(), "site.key").key().unwrap()
    };
    let [implicit, explicit] = [&[0x81, 0x21, 0][..], &[0xa1, 0x23, 3, 0x21, 0]].map(with);
    assert_eq!(*implicit, *explicit);
    assert_ne!(*implicit, *expected, "it has the public half");
}

/// The section of a key.
fn section(der: &[u8]) -> String {
    let text = BASE64_STANDARD.encode(der);
    format!("-----BEGIN PRIVATE KEY-----\n{text}\n-----END PRIVATE KEY-----\n")
}

/// Keys that OpenSSL has encrypted, with each hash and cipher, and a key in its traditional form.
#[test]
fn a_passphrase_decrypts_a_key() {
    let key = openssl(
        "openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256",
        b"",
    );
    let expected = PemFile::of(&key, "site.key").key().unwrap();
    for options in [
        "-v2 aes-256-cbc",
        "-v2 aes-128-cbc -v2prf hmacWithSHA1",
        "-v2 aes-192-cbc -v2prf hmacWithSHA384 -iter 100000",
        "-v2 aes-256-cbc -v2prf hmacWithSHA512 -iter 1",
    ] {
        let command = format!("openssl pkcs8 -topk8 -passout pass:open {options}");
        let encrypted = PemFile::of(&openssl(&command, &key), "site.key");
        assert_eq!(
            *encrypted.key_with(Some(b"open")).unwrap(),
            *expected,
            "{options}"
        );
        for wrong in [&b"Open"[..], b"", b"open\n", &[b'x'; 2000]] {
            let error = encrypted.key_with(Some(wrong)).unwrap_err();
            assert_eq!(error.problem, IdentityProblem::WrongPassphrase, "{options}");
        }
        assert_eq!(
            encrypted.key().unwrap_err().problem,
            IdentityProblem::EncryptedKey
        );
    }
    // A key without a passphrase needs none.
    let plain = PemFile::of(&key, "site.key")
        .key_with(Some(b"open"))
        .unwrap();
    assert_eq!(*plain, *expected);
    for command in [
        "openssl ec -aes128 -passout pass:open",
        "openssl pkcs8 -topk8 -v1 PBE-SHA1-3DES -passout pass:open",
        "openssl pkcs8 -topk8 -v2 des3 -passout pass:open",
        "openssl pkcs8 -topk8 -scrypt -passout pass:open",
    ] {
        let other = PemFile::of(&openssl(command, &key), "site.key");
        let error = other.key_with(Some(b"open")).unwrap_err();
        assert_eq!(
            error.problem,
            IdentityProblem::UnknownEncryption,
            "{command}"
        );
    }
}

/// The file says how often the passphrase is hashed. Nothing is hashed if that is too often.
#[test]
fn a_costly_key_is_refused_at_once() {
    let key = openssl("openssl genpkey -algorithm ED25519", b"");
    let encrypted = openssl(
        "openssl pkcs8 -topk8 -v2 aes-256-cbc -iter 65537 -passout pass:x",
        &key,
    );
    let text = String::from_utf8(encrypted).unwrap();
    let body: String = text.lines().filter(|line| !line.starts_with('-')).collect();
    let mut der = BASE64_STANDARD.decode(body).unwrap();
    let iterations = [0x02, 0x03, 0x01, 0x00, 0x01];
    let at = der
        .windows(5)
        .position(|bytes| bytes == iterations)
        .unwrap();
    der[at + 2] = 0x7f;
    let body = BASE64_STANDARD.encode(der);
    let text = format!(
        "-----BEGIN ENCRYPTED PRIVATE KEY-----\n{body}\n-----END ENCRYPTED PRIVATE KEY-----\n"
    );
    let error = PemFile::of(text.as_bytes(), "site.key")
        .key_with(Some(b"x"))
        .unwrap_err();
    let refused = IdentityProblem::CostlyEncryption {
        iterations: 0x7f_0001,
        max: 2_000_000,
    };
    assert_eq!(error.problem, refused);
}
