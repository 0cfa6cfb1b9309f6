//! PKCS #12 files.

use std::ffi::CString;

use dormouse_keyfiles::{Error, pkcs12};
use napi::bindgen_prelude::Buffer;
use napi_derive::napi;

use crate::errors::{self, Result};

/// The contents of a PKCS #12 file: a key as PKCS #8, and certificates, DER.
#[napi(object)]
pub struct Pkcs12 {
    /// The private key, if there is one.
    pub key: Option<Buffer>,
    /// The certificates, in the order of the file.
    pub certificates: Vec<Buffer>,
}

/// Reads a PKCS #12 file. An empty passphrase is none, too.
#[napi]
pub fn read_pkcs12(file: &[u8], passphrase: String) -> Result<Pkcs12> {
    let refused = |why: &dyn std::fmt::Display| errors::settings(format!("options.pfx: {why}"));
    let passphrase = CString::new(passphrase).map_err(|_| refused(&"the passphrase has a zero"))?;
    let read = pkcs12(file, &passphrase).map_err(|error| match error {
        Error::WrongPassword => refused(&"mac verify failure: the passphrase is wrong"),
        error => refused(&error),
    })?;
    Ok(Pkcs12 {
        key: read.key.map(|key| key.to_vec().into()),
        certificates: read.certificates.into_iter().map(Buffer::from).collect(),
    })
}
