//! Plain descriptions of the TLS library's certificate errors.

use std::fmt;
use std::sync::Arc;

use rustls::{CertificateError, Error, OtherError};

/// Describes why a certificate cannot be used, without the library's type names.
pub(crate) fn in_words(error: &Error) -> String {
    match error {
        Error::InvalidCertificate(error) => of_certificate(error),
        other => other.to_string(),
    }
}

/// The same for the error of a verification.
pub(crate) fn of_certificate(error: &CertificateError) -> String {
    let words = match error {
        CertificateError::BadEncoding => "its DER is invalid",
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => "it has expired",
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "it is not valid yet"
        }
        CertificateError::Revoked => "it was revoked",
        CertificateError::UnhandledCriticalExtension => {
            "it has a critical extension that is not supported"
        }
        CertificateError::UnknownIssuer => "its issuer is not trusted",
        CertificateError::UnknownRevocationStatus => "no revocation list covers it",
        CertificateError::ExpiredRevocationList
        | CertificateError::ExpiredRevocationListContext { .. } => {
            "its revocation list has expired"
        }
        CertificateError::BadSignature => "its signature does not verify",
        CertificateError::UnsupportedSignatureAlgorithmContext { .. } => {
            "its signature algorithm is not supported"
        }
        CertificateError::UnsupportedSignatureAlgorithmForPublicKeyContext { .. } => {
            "its signature does not fit the key of the authority that it names as its issuer"
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "it is for another name"
        }
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            "it is for another purpose"
        }
        CertificateError::InvalidOcspResponse => "its OCSP response is invalid",
        CertificateError::Other(other)
            if other.0.is::<TooManySteps>() || other.0.is::<NoGoodResponse>() =>
        {
            return other.to_string();
        }
        CertificateError::Other(other) => return of_webpki(&other.to_string()),
        other => return other.to_string(),
    };
    words.to_owned()
}

/// Describes an error for which rustls has no variant. webpki prints the names of its variants.
fn of_webpki(name: &str) -> String {
    let words = match name {
        "UnsupportedCertVersion" => {
            "it is an X.509 certificate of version 1 or 2, and version 3 is needed: create it again \
             with extensions, as `openssl req -x509` does"
        }
        "CaUsedAsEndEntity" => "it belongs to an authority (CA:TRUE)",
        "EndEntityUsedAsCa" => {
            "a certificate of its chain does not belong to an authority (CA:FALSE)"
        }
        "NameConstraintViolation" => {
            "an authority of its chain must not issue certificates for its name"
        }
        "PathLenConstraintViolated" => "its chain is longer than an authority of the chain allows",
        "MaximumPathDepthExceeded"
        | "MaximumPathBuildCallsExceeded"
        | "MaximumSignatureChecksExceeded"
        | "MaximumNameConstraintComparisonsExceeded" => "its chain takes too many steps to verify",
        "InvalidSerialNumber" => "its serial number is invalid",
        "InvalidCertValidity" => "it ends before it begins",
        "SignatureAlgorithmMismatch" => "it names two different signature algorithms",
        "CertDistrusted" => "an authority of its chain is known to have been compromised",
        _ if name.starts_with("Unsupported") => {
            return format!("it has something that is not supported here ({name})");
        }
        _ => return format!("it breaks a rule of RFC 5280 ({name})"),
    };
    words.to_owned()
}

/// The search for a path to a root would take too much time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TooManySteps;

impl From<TooManySteps> for Error {
    fn from(error: TooManySteps) -> Error {
        let error = OtherError(Arc::new(error));
        Error::InvalidCertificate(CertificateError::Other(error))
    }
}

impl fmt::Display for TooManySteps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("its chain takes too many steps to verify")
    }
}

impl std::error::Error for TooManySteps {}

/// A server's OCSP response is not what the client requires, in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NoGoodResponse(pub(crate) String);

impl From<NoGoodResponse> for Error {
    fn from(error: NoGoodResponse) -> Error {
        let error = OtherError(Arc::new(error));
        Error::InvalidCertificate(CertificateError::Other(error))
    }
}

impl fmt::Display for NoGoodResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for NoGoodResponse {}

/// webpki's error of this name, for a name that it does not compare.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NameConstraintViolation;

impl From<NameConstraintViolation> for Error {
    fn from(error: NameConstraintViolation) -> Error {
        let error = OtherError(Arc::new(error));
        Error::InvalidCertificate(CertificateError::Other(error))
    }
}

impl fmt::Display for NameConstraintViolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NameConstraintViolation")
    }
}

impl std::error::Error for NameConstraintViolation {}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn no_type_name_of_the_library_is_shown() {
        let public_key = CertificateError::UnsupportedSignatureAlgorithmForPublicKeyContext {
            signature_algorithm_id: vec![6, 8, 42],
            public_key_algorithm_id: vec![6, 9, 42],
        };
        let webpki = rustls::OtherError(Arc::new(webpki_like("UnsupportedCertVersion")));
        for error in [
            public_key,
            CertificateError::BadEncoding,
            CertificateError::UnknownRevocationStatus,
            CertificateError::Other(webpki),
        ] {
            let words = in_words(&Error::InvalidCertificate(error));
            assert!(!words.contains(['{', '[']), "{words}");
            assert!(
                words.starts_with("it") || words.starts_with("no "),
                "{words}"
            );
        }
    }

    /// An error that prints this name, as those of webpki do.
    fn webpki_like(name: &str) -> std::io::Error {
        std::io::Error::other(name.to_owned())
    }
}
