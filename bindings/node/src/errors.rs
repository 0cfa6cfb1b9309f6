//! Errors with a `code`, like those of Node.js.

use dormouse_embed::SessionError;

/// An error with its `code`.
pub(crate) type Error = napi::Error<&'static str>;
pub(crate) type Result<T> = std::result::Result<T, Error>;

/// Settings that cannot be used.
pub(crate) fn settings(why: impl ToString) -> Error {
    Error::new("ERR_TLS_INVALID_CONTEXT", why.to_string())
}

/// A passphrase that does not fit, with OpenSSL's code and words.
pub(crate) fn bad_decrypt(option: &str) -> Error {
    let why = format!("{option}: bad decrypt: the passphrase does not fit the key");
    Error::new("ERR_OSSL_BAD_DECRYPT", why)
}

/// An argument that cannot be used.
pub(crate) fn argument(why: impl ToString) -> Error {
    Error::new("ERR_INVALID_ARG_VALUE", why.to_string())
}

/// A connection that has ended, or that belongs to another thread.
pub(crate) fn gone() -> Error {
    Error::new("ERR_SOCKET_CLOSED", "Socket is closed".to_owned())
}

/// A call that a session has refused.
pub(crate) fn session(error: SessionError) -> Error {
    let code = match error {
        SessionError::Poisoned | SessionError::Library => "ERR_DORMOUSE_INTERNAL",
        SessionError::TooLong(_) | SessionError::BufferTooSmall { .. } => "ERR_OUT_OF_RANGE",
        SessionError::KeyExhausted => "ERR_SSL_RECORD_LIMIT",
        _ => "ERR_TLS_INVALID_STATE",
    };
    Error::new(code, error.to_string())
}

/// Node-API refused a call.
pub(crate) fn node(error: napi::Error) -> Error {
    Error::new("ERR_DORMOUSE_INTERNAL", error.reason.clone())
}
