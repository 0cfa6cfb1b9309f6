//! Decryption of private keys.

use aws_lc_rs::cipher::{
    AES_128, AES_192, AES_256, DecryptionContext, PaddedBlockDecryptingKey, UnboundCipherKey,
};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use zeroize::Zeroizing;

/// Decrypts `data` by AES in CBC mode, and removes its padding. A wrong key often shows only in the padding.
#[pyfunction]
pub(crate) fn decrypt_aes_cbc<'py>(
    py: Python<'py>,
    key: &[u8],
    iv: [u8; 16],
    data: &[u8],
) -> PyResult<Bound<'py, PyBytes>> {
    let mut data = Zeroizing::new(data.to_vec());
    let plaintext = decrypted(key, iv, &mut data);
    let plaintext = plaintext.ok_or_else(|| PyValueError::new_err("the password is wrong"))?;
    Ok(PyBytes::new(py, plaintext))
}

fn decrypted<'d>(key: &[u8], iv: [u8; 16], data: &'d mut [u8]) -> Option<&'d [u8]> {
    let algorithm = match key.len() {
        16 => &AES_128,
        24 => &AES_192,
        32 => &AES_256,
        _ => return None,
    };
    let key = UnboundCipherKey::new(algorithm, key).ok()?;
    let key = PaddedBlockDecryptingKey::cbc_pkcs7(key).ok()?;
    let context = DecryptionContext::Iv128(iv.into());
    key.decrypt(data, context).ok().map(|plaintext| &*plaintext)
}
