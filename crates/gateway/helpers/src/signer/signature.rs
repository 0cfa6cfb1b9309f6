//! The mechanisms of PKCS #11 for the signature schemes of TLS, and signatures as TLS has them.

use cryptoki::mechanism::rsa::{PkcsMgfType, PkcsPssParams};
use cryptoki::mechanism::{Mechanism, MechanismType};
use cryptoki::object::KeyType;
use cryptoki::types::Ulong;

/// A signature scheme (RFC 8446 §4.2.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Scheme {
    kind: Kind,
    hash: Hash,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Ecdsa,
    RsaPss,
    RsaPkcs1,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hash {
    Sha256,
    Sha384,
    Sha512,
}

impl Hash {
    fn len(self) -> usize {
        match self {
            Hash::Sha256 => 32,
            Hash::Sha384 => 48,
            Hash::Sha512 => 64,
        }
    }

    /// What precedes the digest in a signature of PKCS #1 (RFC 8017 §9.2).
    fn prefix(self) -> [u8; 19] {
        let (algorithm, len) = (self as u8 + 1, self.len() as u8);
        let header = [0x30, 17 + len, 0x30, 0x0d, 0x06, 0x09];
        let id = [0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, algorithm];
        let mut prefix = [0; 19];
        prefix[..6].copy_from_slice(&header);
        prefix[6..15].copy_from_slice(&id);
        prefix[15..].copy_from_slice(&[0x05, 0x00, 0x04, len]);
        prefix
    }
}

impl Scheme {
    /// Returns the scheme with this number, if tokens are asked for it.
    pub(super) fn of(code: u16) -> Option<Scheme> {
        let (kind, hash) = match code {
            0x0403 => (Kind::Ecdsa, Hash::Sha256),
            0x0503 => (Kind::Ecdsa, Hash::Sha384),
            0x0603 => (Kind::Ecdsa, Hash::Sha512),
            0x0804 => (Kind::RsaPss, Hash::Sha256),
            0x0805 => (Kind::RsaPss, Hash::Sha384),
            0x0806 => (Kind::RsaPss, Hash::Sha512),
            0x0401 => (Kind::RsaPkcs1, Hash::Sha256),
            0x0501 => (Kind::RsaPkcs1, Hash::Sha384),
            0x0601 => (Kind::RsaPkcs1, Hash::Sha512),
            _ => return None,
        };
        Some(Scheme { kind, hash })
    }

    /// Length of the digest that it signs.
    pub(super) fn digest_len(self) -> usize {
        self.hash.len()
    }

    /// The kind of key that signs with it, and its name.
    pub(super) fn key(self) -> (&'static str, KeyType) {
        match self.kind {
            Kind::Ecdsa => ("ECDSA", KeyType::EC),
            Kind::RsaPss | Kind::RsaPkcs1 => ("RSA", KeyType::RSA),
        }
    }

    pub(super) fn mechanism(self) -> Mechanism<'static> {
        let (hash_alg, mgf) = match self.hash {
            Hash::Sha256 => (MechanismType::SHA256, PkcsMgfType::MGF1_SHA256),
            Hash::Sha384 => (MechanismType::SHA384, PkcsMgfType::MGF1_SHA384),
            Hash::Sha512 => (MechanismType::SHA512, PkcsMgfType::MGF1_SHA512),
        };
        match self.kind {
            Kind::Ecdsa => Mechanism::Ecdsa,
            Kind::RsaPkcs1 => Mechanism::RsaPkcs,
            Kind::RsaPss => Mechanism::RsaPkcsPss(PkcsPssParams {
                hash_alg,
                mgf,
                s_len: Ulong::from(self.hash.len() as u64),
            }),
        }
    }

    /// What the token is given to sign.
    pub(super) fn input(self, digest: &[u8]) -> Vec<u8> {
        match self.kind {
            Kind::Ecdsa | Kind::RsaPss => digest.to_vec(),
            Kind::RsaPkcs1 => [&self.hash.prefix(), digest].concat(),
        }
    }

    /// The token's signature as TLS has it. `None`: it is not valid.
    pub(super) fn finish(self, signature: Vec<u8>) -> Option<Vec<u8>> {
        match self.kind {
            Kind::RsaPss | Kind::RsaPkcs1 => Some(signature),
            Kind::Ecdsa => ecdsa_der(&signature),
        }
    }
}

/// Converts the two halves of a signature (PKCS #11 §2.3.1) to DER (RFC 3279 §2.2.3).
fn ecdsa_der(signature: &[u8]) -> Option<Vec<u8>> {
    /// That of P-521.
    const HALF_MAX: usize = 66;
    let (r, s) = signature.split_at(signature.len() / 2);
    if r.is_empty() || r.len() != s.len() || r.len() > HALF_MAX {
        return None;
    }
    let content = [integer(r), integer(s)].concat();
    let len = content.len() as u8;
    let mut der = match len {
        0..128 => vec![0x30, len],
        _ => vec![0x30, 0x81, len],
    };
    der.extend(content);
    Some(der)
}

/// A positive integer in DER.
fn integer(big_endian: &[u8]) -> Vec<u8> {
    let zeros = big_endian.iter().take_while(|byte| **byte == 0).count();
    let digits = &big_endian[zeros.min(big_endian.len() - 1)..];
    let sign = if digits[0] < 0x80 { &[][..] } else { &[0] };
    let len = (sign.len() + digits.len()) as u8;
    [&[0x02, len], sign, digits].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ecdsa_signatures_become_der() {
        let der = ecdsa_der(&[0x00, 0x01, 0x80, 0x00]).expect("two halves");
        assert_eq!(der, [0x30, 8, 2, 1, 1, 2, 3, 0, 0x80, 0]);
        assert_eq!(
            ecdsa_der(&[0, 0]).expect("zeros"),
            [0x30, 6, 2, 1, 0, 2, 1, 0]
        );
        let long = ecdsa_der(&[0xff; 132]).expect("two halves");
        assert_eq!(long[..5], [0x30, 0x81, 138, 2, 67]);
        for wrong in [&[][..], &[1], &[1, 2, 3], &[1; 134]] {
            assert_eq!(ecdsa_der(wrong), None);
        }
    }

    #[test]
    fn schemes_have_digests() {
        let mut known = 0;
        for code in 0..=u16::MAX {
            if let Some(scheme) = Scheme::of(code) {
                known += 1;
                let digest = vec![7; scheme.digest_len()];
                assert!(scheme.input(&digest).ends_with(&digest));
            }
        }
        assert_eq!(known, 9);
        // The example of RFC 8017 §9.2, note 1.
        let input = Scheme::of(0x0501).expect("a scheme").input(&[0; 48]);
        let expected = [
            0x30, 0x41, 0x30, 0x0d, 0x06, 0x09, 0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02,
            0x02, 0x05, 0x00, 0x04, 0x30,
        ];
        assert_eq!(input[..19], expected);
    }
}
