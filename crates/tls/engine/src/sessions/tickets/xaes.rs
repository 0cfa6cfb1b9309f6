//! XAES-256-GCM (C2SP, "XAES-256-GCM extended-nonce AEAD"): AES-256-GCM with random nonces of 24 bytes.
//!
//! AES-GCM with random nonces of 12 bytes allows 2^32 messages per key (NIST SP 800-38D §8.3), and a fleet that
//! shares its ticket keys can issue that many tickets within hours. Here the first half of the nonce derives a key
//! and the second half is that key's nonce, so 2^80 messages per key are safe: no fleet, fork or fixed key comes
//! near it.

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::cmac::{self, AES_256};
use aws_lc_rs::error::Unspecified;
use zeroize::Zeroizing;

pub(super) const KEY_LEN: usize = 32;
pub(super) const NONCE_LEN: usize = 24;
const DERIVING_LEN: usize = 12;
const BLOCK_LEN: usize = 16;

/// A key for any number of messages.
pub(super) struct Key(cmac::Key);

impl Key {
    pub(super) fn new(key: &[u8; KEY_LEN]) -> Result<Key, Unspecified> {
        cmac::Key::new(AES_256, key).map(Key)
    }

    /// Encrypts `message`, appends the tag, and returns the random nonce.
    pub(super) fn seal(
        &self,
        aad: &[u8],
        message: &mut Vec<u8>,
    ) -> Result<[u8; NONCE_LEN], Unspecified> {
        let mut nonce = [0; NONCE_LEN];
        aws_lc_rs::rand::fill(&mut nonce)?;
        let (key, short) = self.derive(&nonce)?;
        key.seal_in_place_append_tag(short, Aad::from(aad), message)?;
        Ok(nonce)
    }

    /// Authenticates and decrypts in place, and returns the plaintext.
    pub(super) fn open<'m>(
        &self,
        nonce: &[u8; NONCE_LEN],
        aad: &[u8],
        message: &'m mut [u8],
    ) -> Result<&'m mut [u8], Unspecified> {
        let (key, short) = self.derive(nonce)?;
        key.open_in_place(short, Aad::from(aad), message)
    }

    /// Returns the AES-256-GCM key of a nonce and the nonce under that key.
    fn derive(&self, nonce: &[u8; NONCE_LEN]) -> Result<(LessSafeKey, Nonce), Unspecified> {
        let (deriving, short) = nonce
            .split_first_chunk::<DERIVING_LEN>()
            .ok_or(Unspecified)?;
        let mut derived = Zeroizing::new([0; KEY_LEN]);
        for (half, counter) in derived.chunks_exact_mut(BLOCK_LEN).zip(1..) {
            let mut block = [0; BLOCK_LEN];
            block[..4].copy_from_slice(&[0, counter, b'X', 0]);
            block[4..].copy_from_slice(deriving);
            cmac::sign_to_buffer(&self.0, &block, half)?;
        }
        let key = UnboundKey::new(&AES_256_GCM, derived.as_slice())?;
        Ok((
            LessSafeKey::new(key),
            Nonce::try_assume_unique_for_key(short)?,
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONCE: &[u8; NONCE_LEN] = b"ABCDEFGHIJKLMNOPQRSTUVWX";

    fn sealed(key: u8, aad: &[u8]) -> Vec<u8> {
        let (key, nonce) = Key::new(&[key; KEY_LEN]).unwrap().derive(NONCE).unwrap();
        let mut message = b"XAES-256-GCM".to_vec();
        key.seal_in_place_append_tag(nonce, Aad::from(aad), &mut message)
            .unwrap();
        message
    }

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The test vectors of the specification, with and without carry in the derivation's subkey.
    #[test]
    fn gives_the_ciphertexts_of_the_specification() {
        assert_eq!(
            hex(&sealed(1, b"")),
            "ce546ef63c9cc60765923609b33a9a1974e96e52daf2fcf7075e2271"
        );
        assert_eq!(
            hex(&sealed(3, b"c2sp.org/XAES-256-GCM")),
            "986ec1832593df5443a179437fd083bf3fdb41abd740a21f71eb769d"
        );
    }

    #[test]
    fn opens_what_it_sealed_and_nothing_else() {
        let key = Key::new(&[7; KEY_LEN]).unwrap();
        let mut message = b"session".to_vec();
        let nonce = key.seal(b"name", &mut message).unwrap();
        assert!(key.open(&nonce, b"other", &mut message.clone()).is_err());
        let mut changed = nonce;
        changed[0] ^= 1;
        assert!(key.open(&changed, b"name", &mut message.clone()).is_err());
        assert_eq!(key.open(&nonce, b"name", &mut message).unwrap(), b"session");
    }
}
