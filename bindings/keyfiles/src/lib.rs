//! Encrypted private keys and PKCS #12 files. The engine decrypts the keys that it can; the older forms, and PKCS #12
//! files, are read by AWS-LC: the library whose cryptography the engine uses anyway.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::fmt;
use std::ptr::{self, NonNull};

use aws_lc_sys as lc;
use dormouse_embed::{IdentityProblem, PemFile};
use zeroize::Zeroizing;

/// Why a file cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Error {
    /// The password is wrong, or it is missing.
    WrongPassword,
    /// AWS-LC's name of another reason, such as `UNSUPPORTED_CIPHER`.
    Unreadable(String),
    /// The engine's reason, with the remedy.
    Refused(IdentityProblem),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::WrongPassword => f.write_str("the password is wrong"),
            Error::Unreadable(why) => f.write_str(&why.to_lowercase().replace('_', " ")),
            Error::Refused(why) => why.fmt(f),
        }
    }
}

impl std::error::Error for Error {}

/// A private key as PKCS #8, DER, which is wiped when dropped.
pub type Key = Zeroizing<Vec<u8>>;

/// Reads the one private key of a PEM text, encrypted or not: PKCS #8, or OpenSSL's older forms. Returns it as PEM.
pub fn private_key(pem: &[u8], password: &[u8]) -> Result<Zeroizing<String>, Error> {
    let read = PemFile::of(pem, "").key_with(Some(password));
    let problem = match read {
        Ok(key) => return Ok(key),
        Err(error) => error.problem,
    };
    match problem {
        IdentityProblem::WrongPassphrase => Err(Error::WrongPassword),
        IdentityProblem::UnknownEncryption => match older_key(pem, password) {
            // Of an algorithm that AWS-LC does not have.
            Err(Error::Unreadable(why)) if why.starts_with("UN") => Err(Error::Refused(problem)),
            read => read,
        },
        other => Err(Error::Refused(other)),
    }
}

/// Reads the first private key of a PEM text that AWS-LC can decrypt. Returns it as PEM.
fn older_key(pem: &[u8], password: &[u8]) -> Result<Zeroizing<String>, Error> {
    clear_failures();
    let mut password = password;
    let userdata: *mut &[u8] = &raw mut password;
    // SAFETY: the memory outlives the BIO, which only reads it. A longer text than `isize::MAX` does not exist.
    let text =
        owned_bio(unsafe { lc::BIO_new_mem_buf(pem.as_ptr().cast(), pem.len() as isize as _) })?;
    // SAFETY: the callback reads `password` during this call only.
    let key = unsafe {
        lc::PEM_read_bio_PrivateKey(
            text.0.as_ptr(),
            ptr::null_mut(),
            Some(give_password),
            userdata.cast(),
        )
    };
    let key = owned_key(key)?;
    // SAFETY: a new BIO, or null.
    let plain = owned_bio(unsafe { lc::BIO_new(lc::BIO_s_mem()) })?;
    let (mut at, mut len) = (ptr::null(), 0);
    // SAFETY: both objects are ours, and there is neither a cipher nor a password.
    let done = unsafe {
        lc::PEM_write_bio_PrivateKey(
            plain.0.as_ptr(),
            key.0.as_ptr(),
            ptr::null(),
            ptr::null(),
            0,
            None,
            ptr::null_mut(),
        ) == 1
            && lc::BIO_mem_contents(plain.0.as_ptr(), &raw mut at, &raw mut len) == 1
    };
    if !done {
        return Err(failure());
    }
    // SAFETY: the BIO has these bytes as long as it lives, and wipes them when it is freed.
    let plain = unsafe { std::slice::from_raw_parts(at, len) };
    Ok(Zeroizing::new(String::from_utf8_lossy(plain).into_owned()))
}

fn owned_bio(bio: *mut lc::BIO) -> Result<Owned<lc::BIO>, Error> {
    Owned::new(bio, |bio| {
        // SAFETY: it is ours, and is freed once.
        unsafe { lc::BIO_free(bio) };
    })
}

/// Copies the password to AWS-LC. -1 is an error: there is no room for it.
unsafe extern "C" fn give_password(
    buffer: *mut c_char,
    room: c_int,
    _is_writing: c_int,
    userdata: *mut c_void,
) -> c_int {
    // SAFETY: the address of the slice that `private_key` has passed.
    let password = unsafe { *userdata.cast::<&[u8]>() };
    match c_int::try_from(password.len()) {
        Ok(len) if len <= room => {
            // SAFETY: there is room for `len` bytes, and AWS-LC's buffer is not ours.
            unsafe { ptr::copy_nonoverlapping(password.as_ptr().cast(), buffer, password.len()) };
            len
        }
        _ => -1,
    }
}

/// The contents of a PKCS #12 file.
#[derive(Debug)]
pub struct Pkcs12 {
    /// The private key, if there is one.
    pub key: Option<Key>,
    /// The certificates, DER, in the order of the file.
    pub certificates: Vec<Vec<u8>>,
}

/// Reads a PKCS #12 file. With an empty password it may have been written without one, which is not the same.
pub fn pkcs12(file: &[u8], password: &CStr) -> Result<Pkcs12, Error> {
    clear_failures();
    // SAFETY: returns an empty stack, or null.
    let stack = unsafe { lc::OPENSSL_sk_new_null() };
    let stack = Owned::new(stack, |stack| {
        // SAFETY: the stack is ours, and owns its certificates; all are freed once.
        unsafe {
            while let Some(certificate) = NonNull::new(lc::OPENSSL_sk_pop(stack)) {
                lc::X509_free(certificate.as_ptr().cast());
            }
            lc::OPENSSL_sk_free(stack);
        }
    })?;
    let mut key = ptr::null_mut();
    // SAFETY: the reader borrows the file during the call, the password ends with a zero, and a stack of certificates
    // has the layout of any stack.
    let done = unsafe {
        let mut reader = std::mem::zeroed::<lc::CBS>();
        lc::CBS_init(&raw mut reader, file.as_ptr(), file.len());
        lc::PKCS12_get_key_and_certs(
            &raw mut key,
            stack.0.as_ptr().cast(),
            &raw mut reader,
            password.as_ptr(),
        )
    };
    if done != 1 {
        return Err(failure());
    }
    let key = match key.is_null() {
        true => None,
        false => Some(pkcs8(&owned_key(key)?)?),
    };
    // SAFETY: the stack is ours, and all of its elements are certificates.
    let certificates = unsafe {
        (0..lc::OPENSSL_sk_num(stack.0.as_ptr()))
            .map(|at| der(lc::OPENSSL_sk_value(stack.0.as_ptr(), at).cast()))
            .collect::<Result<_, _>>()?
    };
    Ok(Pkcs12 { key, certificates })
}

/// Returns the encoding of a certificate.
///
/// # Safety
/// `certificate` is one.
unsafe fn der(certificate: *mut lc::X509) -> Result<Vec<u8>, Error> {
    // SAFETY: guaranteed by the caller; null asks for the length.
    let len = unsafe { lc::i2d_X509(certificate, ptr::null_mut()) };
    let mut der = vec![0; usize::try_from(len).map_err(|_| failure())?];
    let mut at = der.as_mut_ptr();
    // SAFETY: there is room for the length that it has returned.
    unsafe { lc::i2d_X509(certificate, &raw mut at) };
    Ok(der)
}

/// A C object with the function that frees it.
struct Owned<T>(NonNull<T>, fn(*mut T));

impl<T> Owned<T> {
    fn new(object: *mut T, free: fn(*mut T)) -> Result<Owned<T>, Error> {
        let object = NonNull::new(object).ok_or_else(failure)?;
        Ok(Owned(object, free))
    }
}

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        (self.1)(self.0.as_ptr());
    }
}

fn owned_key(key: *mut lc::EVP_PKEY) -> Result<Owned<lc::EVP_PKEY>, Error> {
    Owned::new(key, |key| {
        // SAFETY: it is ours, and is freed once. AWS-LC wipes what it frees.
        unsafe { lc::EVP_PKEY_free(key) };
    })
}

fn pkcs8(key: &Owned<lc::EVP_PKEY>) -> Result<Key, Error> {
    let (mut bytes, mut len) = (ptr::null_mut(), 0);
    // SAFETY: the builder is ours and initialised; when it is finished, the bytes are ours, until they are freed, which
    // wipes them.
    unsafe {
        let mut builder = std::mem::zeroed::<lc::CBB>();
        let done = lc::CBB_init(&raw mut builder, 256) == 1
            && lc::EVP_marshal_private_key(&raw mut builder, key.0.as_ptr()) == 1
            && lc::CBB_finish(&raw mut builder, &raw mut bytes, &raw mut len) == 1;
        if !done {
            lc::CBB_cleanup(&raw mut builder);
            return Err(failure());
        }
        let key = std::slice::from_raw_parts(bytes, len).to_vec();
        lc::OPENSSL_free(bytes.cast());
        Ok(Zeroizing::new(key))
    }
}

/// Removes what another call has left in the thread's queue.
fn clear_failures() {
    // SAFETY: only the thread's queue is written.
    unsafe { lc::ERR_clear_error() };
}

/// Takes the reason of a failure from the thread's queue: the oldest, which is the innermost, unless a later one says
/// that the password is wrong.
fn failure() -> Error {
    let mut first = None;
    // SAFETY: only the thread's queue is read.
    let codes =
        std::iter::from_fn(|| Some(unsafe { lc::ERR_get_error() }).filter(|code| *code != 0));
    for code in codes {
        let (library, reason) = ((code >> 24) as i32, (code & 0xfff) as i32);
        // SAFETY: a static text, or null.
        let name = unsafe { lc::ERR_reason_error_string(code).as_ref() };
        // SAFETY: it ends with a zero.
        let name = name.map(|text| unsafe { CStr::from_ptr(text) }.to_string_lossy());
        let name = name.as_deref().unwrap_or_default();
        // With a wrong key, the padding or what is below it is wrong.
        if matches!(
            name,
            "BAD_DECRYPT" | "INCORRECT_PASSWORD" | "BAD_PASSWORD_READ"
        ) || (library, reason) == (lc::ERR_LIB_PKCS12, lc::PKCS12_R_MAC_VERIFY_FAILURE)
        {
            clear_failures();
            return Error::WrongPassword;
        }
        first.get_or_insert_with(|| name.to_owned());
    }
    Error::Unreadable(first.unwrap_or_else(|| "UNREADABLE".to_owned()))
}
