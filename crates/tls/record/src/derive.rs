//! The parts of the TLS 1.3 key schedule that are needed after the handshake (RFC 8446 §7.1 to §7.3).
//!
//! Every derived value fits in one block of the hash, so HKDF-Expand (RFC 5869 §2.3) is one HMAC over
//! `info || 0x01`. One HMAC key per secret serves for both key and IV.

use crate::suite::Suite;
use aws_lc_rs::hmac;

/// Longest hash output, and so the longest secret.
pub(crate) const SECRET_MAX: usize = 48;
/// Length of the AEAD nonce, and of the IV it is made from (RFC 8446 §5.3).
pub(crate) const IV_LEN: usize = 12;

/// `"tls13 "` and our longest label, with lengths, empty context and the block counter.
const INFO_MAX: usize = 2 + 1 + PREFIX.len() + TRAFFIC_UPDATE.len() + 1 + 1;
const PREFIX: &[u8] = b"tls13 ";
const KEY: &[u8] = b"key";
const IV: &[u8] = b"iv";
const TRAFFIC_UPDATE: &[u8] = b"traffic upd";

/// Writes the traffic key and IV of `secret` into `key` (its first `key_len` bytes) and `iv` (its first twelve).
/// "\[sender\]_write_key = HKDF-Expand-Label(Secret, "key", "", key_length)" (RFC 8446 §7.3).
///
/// Both buffers have the length of the longest hash, because HMAC writes a whole hash; the caller wipes them.
pub(crate) fn traffic_key(
    suite: Suite,
    secret: &[u8],
    key: &mut [u8; SECRET_MAX],
    iv: &mut [u8; SECRET_MAX],
) -> bool {
    let hmac = hmac::Key::new(suite.hmac(), secret);
    let done =
        expand_label(&hmac, KEY, suite.key_len(), key) && expand_label(&hmac, IV, IV_LEN, iv);
    drop(hmac);
    scrub_stack();
    done
}

/// Writes the next generation of `secret` into `next`: "application_traffic_secret_N+1 =
/// HKDF-Expand-Label(application_traffic_secret_N, "traffic upd", "", Hash.length)" (RFC 8446 §7.2). The caller
/// wipes `next`.
pub(crate) fn next_traffic_secret(
    suite: Suite,
    secret: &[u8],
    next: &mut [u8; SECRET_MAX],
) -> bool {
    let hmac = hmac::Key::new(suite.hmac(), secret);
    let done = expand_label(&hmac, TRAFFIC_UPDATE, suite.secret_len(), next);
    drop(hmac);
    scrub_stack();
    done
}

/// HKDF-Expand-Label with an empty context and at most one block of output (RFC 8446 §7.1).
/// Bytes of `out` after `len` are undefined afterwards.
fn expand_label(hmac: &hmac::Key, label: &[u8], len: usize, out: &mut [u8; SECRET_MAX]) -> bool {
    let mut info = [0; INFO_MAX];
    let info_len = write_info(&mut info, label, len);
    hmac::sign_to_buffer(hmac, &info[..info_len], out).is_ok()
}

/// struct { uint16 length; opaque label<7..255>; opaque context<0..255>; } HkdfLabel, then the block counter.
fn write_info(info: &mut [u8; INFO_MAX], label: &[u8], len: usize) -> usize {
    let name_len = PREFIX.len() + label.len();
    info[1] = len as u8; // at most 48: the first byte of the length stays 0
    info[2] = name_len as u8;
    info[3..3 + PREFIX.len()].copy_from_slice(PREFIX);
    info[3 + PREFIX.len()..3 + name_len].copy_from_slice(label);
    // One zero byte: the context's length. Then the counter of the only block.
    info[3 + name_len + 1] = 1;
    3 + name_len + 2
}

/// Overwrites the part of the stack that the HMAC code just used, because it leaves the padded key there.
#[inline(never)]
fn scrub_stack() {
    let mut zeros = [0_u8; 2048];
    core::hint::black_box(&mut zeros);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_hex::hex;

    fn assert_derives(suite: Suite, secret: &str, key: &str, iv: &str, next: &str) {
        let secret = hex(secret);
        let (mut own_key, mut own_iv) = ([0; SECRET_MAX], [0; SECRET_MAX]);
        assert!(traffic_key(suite, &secret, &mut own_key, &mut own_iv));
        assert_eq!(own_key[..suite.key_len()], hex(key));
        assert_eq!(own_iv[..IV_LEN], hex(iv));
        let mut found = [0; SECRET_MAX];
        assert!(next_traffic_secret(suite, &secret, &mut found));
        assert_eq!(found[..suite.secret_len()], hex(next));
    }

    /// Secret, key and IV: RFC 8448 §3, "{server} derive write traffic keys for application data" and "{client}
    /// derive write traffic keys for application data". The RFC has no key update, so the next generation was
    /// computed with Python's hmac.
    #[test]
    fn rfc_8448() {
        assert_derives(
            Suite::Aes128GcmSha256,
            "a11af9f05531f856ad47116b45a950328204b4f44bfb6b3a4b4f1f3fcb631643",
            "9f02283b6c9c07efc26bb9f2ac92e356",
            "cf782b88dd83549aadf1e984",
            "51921b8aa3001976eb401d0a4319a8516416a6c56001a357e5d162031e84f916",
        );
        assert_derives(
            Suite::Aes128GcmSha256,
            "9e40646ce79a7f9dc05af8889bce6552875afa0b06df0087f792ebb7c17504a5",
            "17422dda596ed5d9acd890e3c63f5051",
            "5b78923dee08579033e523d9",
            "fcdfcc72725aaee48bf64e4fd8b749cdbdbab39d90da0b26e2245ca6ea167207",
        );
    }

    /// The other two suites, computed independently with Python's hmac.
    #[test]
    fn longer_keys_and_hashes() {
        assert_derives(
            Suite::Aes256GcmSha384,
            "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f202122232425262728292a2b2c2d2e2f",
            "6877d022f1c61d24ebb7487c16752d9a4798e40431c75b39320e537c90e23225",
            "42822531a0fe88648fc09e9f",
            "401331b63e9d59f202e8f041042d9516f4cd7fa2e2ee14631d3b49fc340d7af37fc2c0c9f252d8036f81ec5b85cbe5db",
        );
        assert_derives(
            Suite::Chacha20Poly1305Sha256,
            "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f",
            "2ffbc449e87844051c7768f61ffd8ad070830f01ec2c520ef65f08e8296dffa0",
            "2f41c846a431a163814bcd71",
            "2cecd0a17506ef5fa73edc062d6e7b5397cf074ec1b4d8f99a120772932f0b45",
        );
    }
}
