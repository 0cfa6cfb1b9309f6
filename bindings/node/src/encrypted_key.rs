//! Encrypted private keys.

use dormouse_keyfiles::{Error, private_key};
use napi::bindgen_prelude::Buffer;
use napi_derive::napi;

use crate::errors::{self, Result};

/// Decrypts the private key of a PEM text, and returns it as PEM.
#[napi]
pub fn decrypt_private_key(pem: &[u8], passphrase: &[u8]) -> Result<Buffer> {
    match private_key(pem, passphrase) {
        Ok(key) => Ok(key.as_bytes().into()),
        Err(Error::WrongPassword) => Err(errors::bad_decrypt("options.key")),
        Err(error) => Err(errors::settings(format!("options.key: {error}"))),
    }
}
