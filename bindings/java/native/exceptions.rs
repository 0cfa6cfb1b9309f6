//! Errors as exceptions of Java.

use std::any::Any;

use dormouse_embed::SessionError;
use jni::Env;
use jni::errors::ErrorPolicy;
use jni::jni_str;
use jni::strings::JNIString;

/// Why a native method threw.
#[derive(Debug)]
pub(crate) enum Error {
    /// A call that is invalid in this state: `IllegalStateException`.
    Misuse(String),
    /// Settings that cannot be used, or a connection that cannot continue: `SSLException`.
    Ssl(String),
    /// An error of JNI; an exception may be pending.
    Jni(jni::errors::Error),
}

impl From<jni::errors::Error> for Error {
    fn from(error: jni::errors::Error) -> Self {
        Error::Jni(error)
    }
}

/// An error of contexts and identities.
pub(crate) fn settings_error(why: impl ToString) -> Error {
    Error::Ssl(why.to_string())
}

/// An error of a connection.
pub(crate) fn session_error(error: SessionError) -> Error {
    match error {
        SessionError::Handshaking
        | SessionError::Established
        | SessionError::Exported
        | SessionError::Undecided => Error::Misuse(error.to_string()),
        _ => Error::Ssl(error.to_string()),
    }
}

/// Throws errors and panics. No panic unwinds into Java.
pub(crate) struct Throw;

impl<T: Default> ErrorPolicy<T, Error> for Throw {
    type Captures<'unowned_env_local: 'native_method, 'native_method> = ();

    fn on_error<'unowned_env_local: 'native_method, 'native_method>(
        env: &mut Env<'unowned_env_local>,
        _captures: &mut (),
        error: Error,
    ) -> jni::errors::Result<T> {
        if !env.exception_check() {
            let (class, why) = match error {
                Error::Misuse(why) => (jni_str!("java/lang/IllegalStateException"), why),
                Error::Ssl(why) => (jni_str!("javax/net/ssl/SSLException"), why),
                Error::Jni(error) => (
                    jni_str!("java/lang/IllegalStateException"),
                    error.to_string(),
                ),
            };
            let _ = env.throw_new(class, JNIString::from(why));
        }
        Ok(T::default())
    }

    fn on_panic<'unowned_env_local: 'native_method, 'native_method>(
        env: &mut Env<'unowned_env_local>,
        _captures: &mut (),
        _payload: Box<dyn Any + Send + 'static>,
    ) -> jni::errors::Result<T> {
        let why = jni_str!("an internal error ended this call");
        let _ = env.throw_new(jni_str!("javax/net/ssl/SSLException"), why);
        Ok(T::default())
    }
}

/// Discards an exception that a hook may have left pending.
pub(crate) fn none_pending(env: &Env<'_>) {
    if env.exception_check() {
        env.exception_clear();
    }
}
