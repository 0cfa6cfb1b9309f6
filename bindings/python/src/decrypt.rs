//! Decryption of private keys.

use dormouse_keyfiles::private_key;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// Decrypts the first private key of a PEM text, and returns it as PKCS #8, DER.
#[pyfunction]
pub(crate) fn decrypt_private_key<'py>(
    py: Python<'py>,
    pem: &[u8],
    password: &[u8],
) -> PyResult<Bound<'py, PyBytes>> {
    let key = py.detach(|| private_key(pem, password)).map_err(|error| {
        PyValueError::new_err(match error.is_unsupported() {
            true => format!(
                "{error}; convert it: openssl pkcs8 -topk8 -v2 aes-256-cbc -in OLD -out NEW"
            ),
            false => error.to_string(),
        })
    })?;
    Ok(PyBytes::new(py, &key))
}
