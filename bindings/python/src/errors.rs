//! Exceptions. Their classes are Python's, because they derive from those of `ssl`.

use dormouse_embed::{
    AlertDescription, CertificateProblem, End, FailureKind, SessionError, openssl_reason,
};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;

static SETTINGS: PyOnceLock<Py<PyType>> = PyOnceLock::new();
static MISUSE: PyOnceLock<Py<PyType>> = PyOnceLock::new();
static WRONG_THREAD: PyOnceLock<Py<PyType>> = PyOnceLock::new();
static ENGINE: PyOnceLock<Py<PyType>> = PyOnceLock::new();

fn exception(
    py: Python<'_>,
    class: &'static PyOnceLock<Py<PyType>>,
    name: &str,
    text: String,
) -> PyErr {
    match class.import(py, "dormouse._errors", name) {
        Ok(class) => PyErr::from_type(class.clone(), text),
        Err(error) => error,
    }
}

/// Settings that can't be used.
pub(crate) fn settings(py: Python<'_>, why: impl ToString) -> PyErr {
    exception(py, &SETTINGS, "SettingsError", why.to_string())
}

/// A call that is invalid in this state of the object.
pub(crate) fn misuse(py: Python<'_>, why: impl ToString) -> PyErr {
    exception(py, &MISUSE, "MisuseError", why.to_string())
}

/// A call by a thread that may not use the object.
pub(crate) fn wrong_thread(py: Python<'_>) -> PyErr {
    let why = "the connection belongs to the thread of its event loop; \
               from other threads use loop.call_soon_threadsafe()";
    exception(py, &WRONG_THREAD, "WrongThreadError", why.to_owned())
}

/// A call on a session that had no effect.
pub(crate) fn session(py: Python<'_>, error: SessionError) -> PyErr {
    match error {
        SessionError::Handshaking
        | SessionError::Established
        | SessionError::Exported
        | SessionError::Closed
        | SessionError::Undecided
        | SessionError::NotTls13
        | SessionError::TooLong(_) => misuse(py, error),
        _ => exception(py, &ENGINE, "SSLError", error.to_string()),
    }
}

/// The Python half's name for an end, or in upper case OpenSSL's reason for an error; and OpenSSL's number
/// (`X509_V_ERR_…`) for a certificate's problem.
pub(crate) fn kind_of(end: &End) -> (&'static str, i32) {
    let kind = match end {
        End::Closed => "closed",
        End::Truncated => "truncated",
        End::Alert(_) => "alert",
        End::Refused(refusal) => match refusal.alert {
            AlertDescription::RecordOverflow => "PACKET_LENGTH_TOO_LONG",
            AlertDescription::UnexpectedMessage => "UNEXPECTED_MESSAGE",
            AlertDescription::DecodeError => "LENGTH_MISMATCH",
            _ => "DECRYPTION_FAILED_OR_BAD_RECORD_MAC",
        },
        End::Handshake(failure) => match &failure.kind {
            FailureKind::Certificate(CertificateProblem::Missing) => {
                "PEER_DID_NOT_RETURN_A_CERTIFICATE"
            }
            FailureKind::Certificate(problem) => return ("certificate", verify_code(problem)),
            FailureKind::PeerClosed => "peer_closed",
            FailureKind::PeerAlert(_) => "alert",
            FailureKind::PlainHttp => "HTTP_REQUEST",
            FailureKind::NotTls => "WRONG_VERSION_NUMBER",
            FailureKind::NoCommonVersion => "UNSUPPORTED_PROTOCOL",
            FailureKind::NoCommonSuite => "NO_SHARED_CIPHER",
            FailureKind::NoCommonGroup => "NO_SUITABLE_KEY_SHARE",
            FailureKind::NoCommonSignature => "NO_SHARED_SIGNATURE_ALGORITHMS",
            FailureKind::Refused | FailureKind::UnknownName => "CALLBACK_FAILED",
            FailureKind::TooLarge => "EXCESSIVE_MESSAGE_SIZE",
            FailureKind::Malformed => "LENGTH_MISMATCH",
            FailureKind::Misbehaved => "UNEXPECTED_MESSAGE",
            FailureKind::Forged => "DECRYPTION_FAILED_OR_BAD_RECORD_MAC",
            _ => "handshake",
        },
    };
    (kind, 0)
}

/// An alert by OpenSSL's name, which programs find in `SSLError.reason`.
#[pyfunction]
pub(crate) fn alert_reason(alert: u8) -> String {
    openssl_reason(alert).to_uppercase().replace(' ', "_")
}

fn verify_code(problem: &CertificateProblem) -> i32 {
    match problem {
        CertificateProblem::BadSignature => 7,
        CertificateProblem::NotYetValid { .. } => 9,
        CertificateProblem::Expired { .. } => 10,
        CertificateProblem::SelfSigned { .. }
        | CertificateProblem::AuthorityAsServer {
            self_signed: true, ..
        } => 18,
        CertificateProblem::UnknownIssuer {
            sent_root: true, ..
        } => 19,
        CertificateProblem::UnknownIssuer { .. } => 20,
        CertificateProblem::Revoked => 23,
        CertificateProblem::WrongPurpose | CertificateProblem::AuthorityAsServer { .. } => 26,
        CertificateProblem::WrongName { .. } => 62,
        _ => 1,
    }
}
