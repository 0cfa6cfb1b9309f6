//! Certificates with their keys.

use std::ffi::{CStr, OsStr, c_char, c_void};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;

use dormouse_embed::{Identity, PemFile, UnixTime, pem_chain};

use crate::boundary::bytes;
use crate::callback::Callback;
use crate::registry::{Registry, change, free, make};
use crate::sign::{CallerKey, dormouse_sign_callback};
use crate::status::*;

pub(crate) static IDENTITIES: Registry<Identity> = Registry::new();

/// A certificate chain with its key. Any thread may use it. Free it with dormouse_identity_free() when no
/// longer needed; contexts made with it keep their own copy.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct dormouse_identity {
    /// An opaque handle; 0: none.
    pub id: u64,
}

/// A new identity, or the reason for failure.
#[repr(C)]
pub struct dormouse_made_identity {
    /// DORMOUSE_OK, or the problem with the certificate or key.
    pub result: dormouse_result,
    /// Owned by the caller, which must free it.
    pub identity: dormouse_identity,
}

fn made(identity: impl FnOnce() -> Result<Identity, Refusal>) -> dormouse_made_identity {
    let (result, id) = make(&IDENTITIES, identity);
    dormouse_made_identity {
        result,
        identity: dormouse_identity { id },
    }
}

/// Reads a certificate chain and its key, both PEM, the server's own certificate first. Both may be the same
/// buffer. The buffers are not kept; wipe the one with the key.
///
/// # Safety
/// Each pointer points to the number of bytes given by its length.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dormouse_identity_from_pem(
    certificate: *const u8,
    certificate_len: usize,
    key: *const u8,
    key_len: usize,
) -> dormouse_made_identity {
    made(|| {
        // SAFETY: guaranteed by the caller.
        let (certificate, key) =
            unsafe { (bytes(certificate, certificate_len)?, bytes(key, key_len)?) };
        Identity::from_pem(certificate, key, "certificate", "key").map_err(Refusal::settings)
    })
}

/// Does the same with a key that may be encrypted with this passphrase: PKCS #8 with PBES2, PBKDF2 and AES, as
/// `openssl pkcs8 -topk8` writes it. Wipe the passphrase.
///
/// # Safety
/// Each pointer points to the number of bytes given by its length.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dormouse_identity_from_encrypted_pem(
    certificate: *const u8,
    certificate_len: usize,
    key: *const u8,
    key_len: usize,
    passphrase: *const u8,
    passphrase_len: usize,
) -> dormouse_made_identity {
    made(|| {
        // SAFETY: guaranteed by the caller.
        let (certificate, key, passphrase) = unsafe {
            (
                bytes(certificate, certificate_len)?,
                bytes(key, key_len)?,
                bytes(passphrase, passphrase_len)?,
            )
        };
        let key = PemFile::of(key, "key").key_with(Some(passphrase));
        let key = key.map_err(Refusal::settings)?;
        Identity::from_pem(certificate, key.as_bytes(), "certificate", "key")
            .map_err(Refusal::settings)
    })
}

/// Reads a certificate chain and its key from two PEM files, or from one file that contains both. The paths are
/// terminated by a zero.
///
/// # Safety
/// `certificate` and `key` are strings terminated by a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dormouse_identity_from_files(
    certificate: *const c_char,
    key: *const c_char,
) -> dormouse_made_identity {
    made(|| {
        // SAFETY: guaranteed by the caller.
        let (certificate, key) = unsafe { (path(certificate)?, path(key)?) };
        Identity::from_files(certificate, key).map_err(Refusal::settings)
    })
}

/// # Safety
/// `text` is null or terminated by a zero.
unsafe fn path<'a>(text: *const c_char) -> Result<&'a Path, dormouse_status> {
    if text.is_null() {
        return Err(DORMOUSE_BAD_ARGUMENT);
    }
    // SAFETY: not null; terminated, as the caller guarantees.
    let bytes = unsafe { CStr::from_ptr(text) }.to_bytes();
    Ok(Path::new(OsStr::from_bytes(bytes)))
}

/// Takes a certificate chain (PEM) whose key never leaves its store: `sign` makes the signatures, during
/// handshakes and on the thread of the handshake. `context` is passed to it, and must stay valid while any
/// handshake may use this identity.
///
/// # Safety
/// `certificate` points to the number of bytes given by its length. `sign` follows its contract, on any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dormouse_identity_from_signer(
    certificate: *const u8,
    certificate_len: usize,
    sign: dormouse_sign_callback,
    context: *mut c_void,
) -> dormouse_made_identity {
    made(|| {
        // SAFETY: guaranteed by the caller.
        let certificate = unsafe { bytes(certificate, certificate_len) }?;
        let sign = sign.ok_or(DORMOUSE_BAD_ARGUMENT)?;
        let chain = pem_chain(certificate, "certificate").map_err(Refusal::settings)?;
        let key = Arc::new(CallerKey(Callback::new(sign, context)));
        Identity::from_signer(chain, key, "certificate").map_err(Refusal::settings)
    })
}

/// Generates a self-signed certificate for `name`, for trials.
///
/// # Safety
/// `name` points to `name_len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dormouse_identity_self_signed(
    name: *const u8,
    name_len: usize,
) -> dormouse_made_identity {
    made(|| {
        // SAFETY: guaranteed by the caller.
        let name = std::str::from_utf8(unsafe { bytes(name, name_len) }?)
            .map_err(|_| DORMOUSE_BAD_ARGUMENT)?;
        Identity::self_signed(name).map_err(Refusal::settings)
    })
}

/// Adds an OCSP response (DER) for the identity's certificate, which handshakes then send. It must be valid, and for
/// this certificate. Contexts that were made with the identity before are not changed.
///
/// # Safety
/// `response` points to `response_len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dormouse_identity_staple(
    identity: dormouse_identity,
    response: *const u8,
    response_len: usize,
) -> dormouse_result {
    change(&IDENTITIES, identity.id, |identity| {
        // SAFETY: guaranteed by the caller.
        let response = unsafe { bytes(response, response_len) }?;
        let stapled = identity.staple(response, UnixTime::now());
        stapled.map(drop).map_err(Refusal::settings)
    })
}

/// Frees an identity. A second call returns DORMOUSE_NO_SUCH_HANDLE and has no effect.
#[unsafe(no_mangle)]
pub extern "C" fn dormouse_identity_free(identity: dormouse_identity) -> dormouse_status {
    free(&IDENTITIES, identity.id)
}
