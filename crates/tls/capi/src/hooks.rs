//! C callbacks for hooks during a handshake.

use std::ffi::{c_char, c_void};
use std::ptr;

use dormouse_embed::{
    CertificateRefusal, ChooseIdentity, ClientHello, Finding, Identity, JudgeCertificate,
    SecretLog, ShownCertificates, secret_log_line,
};

use crate::callback::Callback;
use crate::identity::{IDENTITIES, dormouse_identity};

/// Bytes that are valid during one callback.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct dormouse_bytes {
    /// Null if there are none.
    pub at: *const u8,
    /// Length in bytes.
    pub len: usize,
}

impl From<&[u8]> for dormouse_bytes {
    fn from(bytes: &[u8]) -> Self {
        dormouse_bytes {
            // An empty slice's own pointer is an address below 4,096, for which Go's runtime ends the program.
            at: match bytes {
                [] => ptr::null(),
                bytes => bytes.as_ptr(),
            },
            len: bytes.len(),
        }
    }
}

/// Chooses the certificate for a client that requests `server_name` (in lower case; empty if it sent none).
/// Returns an identity, which the caller still owns, or an identity with id 0 to choose among the context's own
/// certificates.
pub type dormouse_choose_callback = Option<
    unsafe extern "C" fn(context: *mut c_void, server_name: dormouse_bytes) -> dormouse_identity,
>;

/// Result of the check against the trusted roots.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum dormouse_finding {
    /// Valid.
    DORMOUSE_TRUSTED = 0,
    /// Valid except for its name.
    DORMOUSE_WRONG_NAME = 1,
    /// Invalid, for the given reason.
    DORMOUSE_REFUSED = 2,
    /// No roots are configured.
    DORMOUSE_NO_ROOTS = 3,
}

/// The certificates that a peer sent, valid during the callback.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct dormouse_shown {
    /// The chain, DER, the peer's own certificate first.
    pub chain: *const dormouse_bytes,
    /// Number of certificates in the chain, at least 1.
    pub chain_len: usize,
    /// Client side: the requested server name. Not terminated by a zero.
    pub server_name: dormouse_bytes,
    /// Client side: the OCSP response that came with the chain.
    pub ocsp_response: dormouse_bytes,
    /// Result of the check against the roots.
    pub finding: dormouse_finding,
    /// For DORMOUSE_REFUSED and DORMOUSE_WRONG_NAME: the reason in words, one line, in which unprintable characters of
    /// the peer's names are escaped. Not terminated by a zero.
    pub reason: dormouse_bytes,
}

/// Checks a peer's certificate. Returns 1 to accept it and anything else to refuse it, whatever the roots
/// found. The peer's possession of the certificate's key is verified in any case.
pub type dormouse_judge_callback =
    Option<unsafe extern "C" fn(context: *mut c_void, shown: *const dormouse_shown) -> i32>;

/// Receives a line of a key log (NSS format), terminated by a zero. Anyone with the line can decrypt the
/// connection: only for debugging, and only at the operator's request.
pub type dormouse_secret_log_callback =
    Option<unsafe extern "C" fn(context: *mut c_void, line: *const c_char)>;

/// The caller's choice of a certificate.
#[derive(Debug)]
pub(crate) struct CallerChoice(
    pub(crate) Callback<unsafe extern "C" fn(*mut c_void, dormouse_bytes) -> dormouse_identity>,
);

impl ChooseIdentity for CallerChoice {
    fn choose_identity(&self, hello: &ClientHello) -> Option<Identity> {
        let name = hello.server_name.as_deref().unwrap_or_default();
        // SAFETY: the callback's contract; the name is valid until it returns.
        let chosen = unsafe { (self.0.function)(self.0.context, name.as_bytes().into()) };
        IDENTITIES.get(chosen.id).ok()
    }
}

/// The caller's check of a certificate.
#[derive(Debug)]
pub(crate) struct CallerJudge(
    pub(crate) Callback<unsafe extern "C" fn(*mut c_void, *const dormouse_shown) -> i32>,
);

impl JudgeCertificate for CallerJudge {
    fn judge(&self, shown: &ShownCertificates<'_>) -> Result<(), CertificateRefusal> {
        use dormouse_embed::CertificateProblem::WrongName;
        let chain: Vec<dormouse_bytes> = shown.chain.iter().map(|one| (*one).into()).collect();
        let (finding, reason) = match shown.finding {
            Finding::Trusted => (dormouse_finding::DORMOUSE_TRUSTED, String::new()),
            Finding::NoRoots => (dormouse_finding::DORMOUSE_NO_ROOTS, String::new()),
            Finding::Refused(problem @ WrongName { .. }) => {
                (dormouse_finding::DORMOUSE_WRONG_NAME, problem.to_string())
            }
            Finding::Refused(problem) => (dormouse_finding::DORMOUSE_REFUSED, problem.to_string()),
        };
        let for_c = dormouse_shown {
            chain: chain.as_ptr(),
            chain_len: chain.len(),
            server_name: shown.server_name.unwrap_or_default().as_bytes().into(),
            ocsp_response: shown.ocsp_response.into(),
            finding,
            reason: reason.as_bytes().into(),
        };
        // SAFETY: the callback's contract; everything passed to it is valid until it returns.
        match unsafe { (self.0.function)(self.0.context, &raw const for_c) } {
            1 => Ok(()),
            _ => Err("refused by the application's callback".into()),
        }
    }
}

/// The caller's key log.
#[derive(Debug)]
pub(crate) struct CallerLog(pub(crate) Callback<unsafe extern "C" fn(*mut c_void, *const c_char)>);

impl SecretLog for CallerLog {
    fn log_secret(&self, label: &str, client_random: &[u8], secret: &[u8]) {
        let line = secret_log_line(label, client_random, secret) + "\0";
        // SAFETY: the callback's contract; the line is valid until it returns, and ends with a zero.
        unsafe { (self.0.function)(self.0.context, line.as_ptr().cast()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dormouse_embed::{CertificateProblem, UnixTime};

    #[test]
    fn no_bytes_are_a_null_pointer() {
        assert!(dormouse_bytes::from(&[][..]).at.is_null());
        let name = b"name";
        let bytes = dormouse_bytes::from(&name[..]);
        assert_eq!((bytes.at, bytes.len), (name.as_ptr(), 4));
    }

    /// Copies the reason into the string that `context` points to, and refuses.
    unsafe extern "C" fn copy_reason(context: *mut c_void, shown: *const dormouse_shown) -> i32 {
        // SAFETY: `context` is the test's string; what is shown is valid during the callback.
        let (copy, reason) = unsafe { (&mut *context.cast::<String>(), (*shown).reason) };
        // SAFETY: as above; there is a reason, so the pointer is not null.
        let reason = unsafe { std::slice::from_raw_parts(reason.at, reason.len) };
        copy.push_str(std::str::from_utf8(reason).expect("UTF-8"));
        0
    }

    /// Programs log the reason or show it on a terminal.
    #[test]
    fn a_judge_gets_the_peers_names_escaped() {
        let subject = "CN=a\n2026-11-26 login ok\x1b[2J".to_owned();
        let problem = CertificateProblem::SelfSigned { subject };
        let mut reason = String::new();
        let context = (&raw mut reason).cast();
        let judge = CallerJudge(Callback::new(copy_reason, context));
        let refused = judge.judge(&ShownCertificates {
            chain: &[&[1]],
            server_name: None,
            ocsp_response: &[],
            now: UnixTime::now(),
            finding: Finding::Refused(&problem),
        });
        assert!(refused.is_err());
        assert_eq!(
            reason,
            r"is self-signed (CN=a\n2026-11-26 login ok\u{1b}[2J) and not trusted"
        );
    }
}
