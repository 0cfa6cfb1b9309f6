//! Decryption of private keys.

use dormouse_keyfiles::private_key;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// Decrypts the private key of a PEM text, and returns it as PEM.
#[pyfunction]
pub(crate) fn decrypt_private_key<'py>(
    py: Python<'py>,
    pem: &[u8],
    password: &[u8],
) -> PyResult<Bound<'py, PyBytes>> {
    let key = py.detach(|| private_key(pem, password));
    match key {
        Ok(key) => Ok(PyBytes::new(py, key.as_bytes())),
        Err(error) => Err(PyValueError::new_err(error.to_string())),
    }
}
