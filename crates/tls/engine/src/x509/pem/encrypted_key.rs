//! Private keys that are encrypted with a passphrase: PKCS #8 with PBES2 (RFC 8018 §6.2), PBKDF2 and AES in CBC mode, as
//! `openssl pkcs8 -topk8` writes them.
//!
//! Other schemes are refused with the command that converts them: those of PKCS #5 version 1 and PKCS #12 are weak, and
//! scrypt is not in the cryptographic library.

use std::num::NonZeroU32;

use aws_lc_rs::cipher::{
    AES_128, AES_192, AES_256, Algorithm, DecryptionContext, PaddedBlockDecryptingKey,
    UnboundCipherKey,
};
use aws_lc_rs::pbkdf2::{
    PBKDF2_HMAC_SHA1, PBKDF2_HMAC_SHA256, PBKDF2_HMAC_SHA384, PBKDF2_HMAC_SHA512,
};
use aws_lc_rs::{iv::FixedLength, pbkdf2};
use rustls_pki_types::PrivateKeyDer;
use zeroize::Zeroizing;

use crate::x509::der::{Der, Tag};
use crate::x509::identity_error::IdentityProblem;

/// Maximum number of iterations of PBKDF2: about a second. OpenSSL writes 2,048 if nothing else is asked for.
const ITERATIONS_MAX: u32 = 2_000_000;

const PBES2: &[u8] = b"\x2a\x86\x48\x86\xf7\x0d\x01\x05\x0d";
const PBKDF2: &[u8] = b"\x2a\x86\x48\x86\xf7\x0d\x01\x05\x0c";
/// The beginning of the identifiers of HMACs; a number follows.
const HMAC: &[u8] = b"\x2a\x86\x48\x86\xf7\x0d\x02";
/// The beginning of the identifiers of AES; a number follows.
const AES: &[u8] = b"\x60\x86\x48\x01\x65\x03\x04\x01";

/// How a key is encrypted.
struct Scheme<'a> {
    salt: &'a [u8],
    iterations: NonZeroU32,
    hash: pbkdf2::Algorithm,
    cipher: &'static Algorithm,
    key_len: usize,
    initial: [u8; 16],
}

/// Decrypts a key. Returns its DER, in PKCS #8.
pub(super) fn decrypt(
    der: &[u8],
    passphrase: &[u8],
) -> Result<Zeroizing<Vec<u8>>, IdentityProblem> {
    let (scheme, encrypted) = read(der).ok_or(IdentityProblem::UnknownEncryption)?;
    if scheme.iterations.get() > ITERATIONS_MAX {
        return Err(IdentityProblem::CostlyEncryption {
            iterations: scheme.iterations.get(),
            max: ITERATIONS_MAX,
        });
    }
    let mut key = Zeroizing::new([0; 32]);
    let (key, _) = key.split_at_mut(scheme.key_len);
    pbkdf2::derive(scheme.hash, scheme.iterations, scheme.salt, passphrase, key);
    let mut text = Zeroizing::new(encrypted.to_vec());
    let opened = UnboundCipherKey::new(scheme.cipher, key)
        .and_then(PaddedBlockDecryptingKey::cbc_pkcs7)
        .and_then(|key| {
            let initial = DecryptionContext::Iv128(FixedLength::from(scheme.initial));
            key.decrypt(&mut text, initial).map(|opened| opened.len())
        });
    // With a wrong passphrase, the padding is wrong, or by chance only what is before it.
    let len = opened.map_err(|_| IdentityProblem::WrongPassphrase)?;
    text.truncate(len);
    match PrivateKeyDer::try_from(text.as_slice()) {
        Ok(_) => Ok(text),
        Err(_) => Err(IdentityProblem::WrongPassphrase),
    }
}

/// Reads an EncryptedPrivateKeyInfo (RFC 5958 §3). `None`: it is not one, or its scheme is not supported.
fn read(der: &[u8]) -> Option<(Scheme<'_>, &[u8])> {
    let mut info = Der::whole(der)?.enter(Tag::SEQUENCE)?;
    let mut algorithm = info.enter(Tag::SEQUENCE)?;
    let encrypted = info.expect(Tag::OCTETS)?;
    if algorithm.expect(Tag::OID)? != PBES2 {
        return None;
    }
    let mut parameters = algorithm.enter(Tag::SEQUENCE)?;
    let (mut derivation, mut cipher) = (
        parameters.enter(Tag::SEQUENCE)?,
        parameters.enter(Tag::SEQUENCE)?,
    );
    if derivation.expect(Tag::OID)? != PBKDF2 {
        return None;
    }
    let mut derivation = derivation.enter(Tag::SEQUENCE)?;
    let salt = derivation.expect(Tag::OCTETS)?;
    let iterations = number(derivation.expect(Tag::INTEGER)?)?;
    let given_len = derivation.expect(Tag::INTEGER).map(number);
    // Without an identifier it is HMAC with SHA-1.
    let hash = match derivation.enter(Tag::SEQUENCE) {
        None => 7,
        Some(mut hash) => *hash.expect(Tag::OID)?.strip_prefix(HMAC)?.first()?,
    };
    let hash = match hash {
        7 => PBKDF2_HMAC_SHA1,
        9 => PBKDF2_HMAC_SHA256,
        10 => PBKDF2_HMAC_SHA384,
        11 => PBKDF2_HMAC_SHA512,
        _ => return None,
    };
    let (cipher_id, initial) = (cipher.expect(Tag::OID)?, cipher.expect(Tag::OCTETS)?);
    let (cipher, key_len) = match cipher_id.strip_prefix(AES)? {
        [2] => (&AES_128, 16),
        [22] => (&AES_192, 24),
        [42] => (&AES_256, 32),
        _ => return None,
    };
    if given_len.is_some_and(|given| given != u32::try_from(key_len).ok()) {
        return None;
    }
    let scheme = Scheme {
        salt,
        iterations: NonZeroU32::new(iterations)?,
        hash,
        cipher,
        key_len,
        initial: initial.try_into().ok()?,
    };
    Some((scheme, encrypted))
}

/// Reads a number that is not negative. One that is too large for its type counts as the largest.
fn number(content: &[u8]) -> Option<u32> {
    let (first, rest) = content.split_first()?;
    match first {
        0 => Some(big_endian(rest)),
        1..0x80 => Some(big_endian(content)),
        _ => None,
    }
}

fn big_endian(bytes: &[u8]) -> u32 {
    let shift = |number: u64, byte: &u8| number << 8 | u64::from(*byte);
    match bytes.len() {
        ..=4 => u32::try_from(bytes.iter().fold(0, shift)).unwrap_or(u32::MAX),
        _ => u32::MAX,
    }
}
