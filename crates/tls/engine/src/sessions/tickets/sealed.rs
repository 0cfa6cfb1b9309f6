//! Ticket keys sealed with a secret, for a file or a store that others can read.

use aws_lc_rs::aead::{AES_256_GCM, Aad, Nonce, RandomizedNonceKey};
use zeroize::Zeroizing;

use super::keys::{TicketKeys, derive};
use crate::settings_error::SettingsError;

/// Prefix of sealed keys; the last byte is the version.
const MAGIC: &[u8; 8] = b"dm-keys\x01";
const NONCE_LEN: usize = 12;
const TAG_LEN: usize = 16;

impl TicketKeys {
    /// Length of sealed keys.
    pub const SEALED_LEN: usize = MAGIC.len() + NONCE_LEN + TicketKeys::EXPORT_LEN + TAG_LEN;

    /// Minimum length of a secret.
    pub const SECRET_MIN: usize = 32;

    /// Seals the keys with a secret (AES-256-GCM under a key derived with HKDF-SHA256).
    pub fn seal(&self, secret: &[u8]) -> Result<Vec<u8>, SettingsError> {
        let mut inner = self.export();
        let nonce = cipher(secret)?
            .seal_in_place_append_tag(Aad::from(MAGIC), &mut *inner)
            .map_err(|_| SettingsError::BadTicketKeys)?;
        let mut sealed = Vec::with_capacity(Self::SEALED_LEN);
        sealed.extend_from_slice(MAGIC);
        sealed.extend_from_slice(nonce.as_ref());
        sealed.extend_from_slice(&inner);
        Ok(sealed)
    }

    /// Whether the bytes have the prefix of sealed keys.
    pub fn looks_sealed(bytes: &[u8]) -> bool {
        bytes.starts_with(MAGIC)
    }

    /// Opens keys that were sealed with the same secret.
    pub fn unseal(sealed: &[u8], secret: &[u8]) -> Result<TicketKeys, SettingsError> {
        let bad = SettingsError::BadTicketKeys;
        let Some(rest) = sealed.strip_prefix(MAGIC) else {
            return Err(bad);
        };
        let Some((nonce, rest)) = rest.split_first_chunk::<NONCE_LEN>() else {
            return Err(bad);
        };
        let mut inner = Zeroizing::new(rest.to_vec());
        let plain = cipher(secret)?
            .open_in_place(Nonce::from(nonce), Aad::from(MAGIC), &mut inner)
            .map_err(|_| SettingsError::BadTicketKeys)?;
        TicketKeys::import(plain)
    }
}

fn cipher(secret: &[u8]) -> Result<RandomizedNonceKey, SettingsError> {
    let key = derive(b"dormouse ticket keys", secret, b"seal")?;
    RandomizedNonceKey::new(&AES_256_GCM, key.as_slice()).map_err(|_| SettingsError::BadTicketKeys)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls_pki_types::UnixTime;

    #[test]
    fn only_the_same_secret_and_unchanged_bytes_open() {
        let now = UnixTime::since_unix_epoch(std::time::Duration::from_secs(1_800_000_000));
        let keys = TicketKeys::generate(now, 60).unwrap();
        let sealed = keys.seal(b"secret").unwrap();
        assert_eq!(sealed.len(), TicketKeys::SEALED_LEN);
        let opened = TicketKeys::unseal(&sealed, b"secret").unwrap();
        assert_eq!(*opened.export(), *keys.export());
        assert!(TicketKeys::unseal(&sealed, b"Secret").is_err());
        for i in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[i] ^= 1;
            assert!(TicketKeys::unseal(&changed, b"secret").is_err(), "byte {i}");
        }
        assert_ne!(sealed, keys.seal(b"secret").unwrap(), "nonces must differ");
    }
}
