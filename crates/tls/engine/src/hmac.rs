//! HMAC (RFC 2104), for protocols of helper processes that authenticate their messages with it.

use aws_lc_rs::hmac::{self, HMAC_SHA256, HMAC_SHA384, HMAC_SHA512, Key};

/// The hash function of an HMAC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HmacHash {
    /// SHA-256.
    Sha256,
    /// SHA-384.
    Sha384,
    /// SHA-512.
    Sha512,
}

/// A key of HMAC, with its hash function.
#[derive(Clone)]
pub struct HmacKey(Key);

impl HmacKey {
    /// Creates a key from its bytes, of any length.
    pub fn new(hash: HmacHash, key: &[u8]) -> HmacKey {
        let algorithm = match hash {
            HmacHash::Sha256 => HMAC_SHA256,
            HmacHash::Sha384 => HMAC_SHA384,
            HmacHash::Sha512 => HMAC_SHA512,
        };
        HmacKey(Key::new(algorithm, key))
    }

    /// Returns the code of a message, which is given in parts.
    pub fn sign(&self, parts: &[&[u8]]) -> Vec<u8> {
        let mut context = hmac::Context::with_key(&self.0);
        parts.iter().for_each(|part| context.update(part));
        context.sign().as_ref().to_vec()
    }

    /// Whether this is the code of a message, in full length. Takes the same time for every wrong code.
    pub fn verify(&self, parts: &[&[u8]], code: &[u8]) -> bool {
        hmac::verify(&self.0, &parts.concat(), code).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 4231 §4.3.
    #[test]
    fn known_answers() {
        for (hash, begins) in [
            (HmacHash::Sha256, [0x5b, 0xdc, 0xc1, 0x46]),
            (HmacHash::Sha384, [0xaf, 0x45, 0xd2, 0xe3]),
            (HmacHash::Sha512, [0x16, 0x4b, 0x7a, 0x7b]),
        ] {
            let key = HmacKey::new(hash, b"Jefe");
            let parts: [&[u8]; 2] = [b"what do ya want ", b"for nothing?"];
            let code = key.sign(&parts);
            assert_eq!(code[..4], begins);
            assert!(key.verify(&parts, &code));
            assert!(!key.verify(&parts, &code[1..]) && !key.verify(&parts[1..], &code));
        }
    }
}
