//! Alerts and their names (RFC 8446 §6, RFC 5246 §7.2).

use core::fmt;

/// An alert to send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Alert {
    /// Warning or fatal.
    pub level: AlertLevel,
    /// Meaning of the alert.
    pub description: AlertDescription,
}

impl Alert {
    /// "This alert notifies the recipient that the sender will not send any more messages" (RFC 8446 §6.1).
    pub const CLOSE_NOTIFY: Self = Self::warning(AlertDescription::CloseNotify);
    /// Reply to a renegotiation request in TLS 1.2 (RFC 5246 §7.2.2).
    pub const NO_RENEGOTIATION: Self = Self::warning(AlertDescription::NoRenegotiation);

    /// An error alert, which ends the connection.
    pub const fn fatal(description: AlertDescription) -> Self {
        Self {
            level: AlertLevel::Fatal,
            description,
        }
    }

    /// A warning: the connection continues (close_notify ends one direction cleanly).
    pub const fn warning(description: AlertDescription) -> Self {
        Self {
            level: AlertLevel::Warning,
            description,
        }
    }
}

/// The first byte of an alert.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum AlertLevel {
    /// The connection may continue.
    Warning = 1,
    /// The connection is over.
    Fatal = 2,
}

macro_rules! descriptions {
    ($($(#[$doc:meta])* $variant:ident = $code:literal $name:literal)*) => {
        /// The second byte of an alert (RFC 8446 §6, with no_renegotiation from RFC 5246 §7.2).
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(u8)]
        pub enum AlertDescription {
            $($(#[$doc])* $variant = $code,)*
        }

        impl AlertDescription {
            /// Returns the alert with this number if RFC 8446 §6 lists it, or if it is no_renegotiation.
            pub const fn from_code(code: u8) -> Option<Self> {
                match code {
                    $($code => Some(Self::$variant),)*
                    _ => None,
                }
            }

            /// Returns the alert's name in the RFC.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }
        }
    };
}

descriptions! {
    /// The sender will not send any more messages.
    CloseNotify = 0 "close_notify"
    /// An inappropriate message was received.
    UnexpectedMessage = 10 "unexpected_message"
    /// A record could not be deprotected.
    BadRecordMac = 20 "bad_record_mac"
    /// A record was too long.
    RecordOverflow = 22 "record_overflow"
    /// No acceptable set of parameters.
    HandshakeFailure = 40 "handshake_failure"
    /// A certificate was corrupt.
    BadCertificate = 42 "bad_certificate"
    /// A certificate was of an unsupported type.
    UnsupportedCertificate = 43 "unsupported_certificate"
    /// A certificate was revoked.
    CertificateRevoked = 44 "certificate_revoked"
    /// A certificate has expired.
    CertificateExpired = 45 "certificate_expired"
    /// Some other issue with a certificate.
    CertificateUnknown = 46 "certificate_unknown"
    /// A field was incorrect, though well formed.
    IllegalParameter = 47 "illegal_parameter"
    /// No known certificate authority.
    UnknownCa = 48 "unknown_ca"
    /// A valid certificate, but no access.
    AccessDenied = 49 "access_denied"
    /// A message could not be decoded.
    DecodeError = 50 "decode_error"
    /// A cryptographic operation of the handshake failed.
    DecryptError = 51 "decrypt_error"
    /// The version is recognised but not supported.
    ProtocolVersion = 70 "protocol_version"
    /// The server requires parameters more secure than the client's.
    InsufficientSecurity = 71 "insufficient_security"
    /// An error unrelated to the peer.
    InternalError = 80 "internal_error"
    /// An invalid retry with a lower version.
    InappropriateFallback = 86 "inappropriate_fallback"
    /// The handshake is cancelled for a reason other than a protocol failure.
    UserCanceled = 90 "user_canceled"
    /// Renegotiation is refused (TLS 1.2).
    NoRenegotiation = 100 "no_renegotiation"
    /// A mandatory extension is missing.
    MissingExtension = 109 "missing_extension"
    /// An extension that is not allowed here.
    UnsupportedExtension = 110 "unsupported_extension"
    /// No server of that name.
    UnrecognizedName = 112 "unrecognized_name"
    /// An invalid OCSP response.
    BadCertificateStatusResponse = 113 "bad_certificate_status_response"
    /// No acceptable PSK identity.
    UnknownPskIdentity = 115 "unknown_psk_identity"
    /// A client certificate is required.
    CertificateRequired = 116 "certificate_required"
    /// No application protocol in common.
    NoApplicationProtocol = 120 "no_application_protocol"
}

impl AlertDescription {
    /// Returns the alert with this number if it ends a connection with an error. close_notify and user_canceled are no
    /// errors (RFC 8446 §6.1), and no_renegotiation is always a warning (RFC 5246 §7.2.2).
    pub const fn error_from_code(code: u8) -> Option<Self> {
        match Self::from_code(code) {
            Some(Self::CloseNotify | Self::UserCanceled | Self::NoRenegotiation) => None,
            alert => alert,
        }
    }

    /// Returns the alert's number in the protocol.
    pub const fn code(self) -> u8 {
        self as u8
    }
}

impl fmt::Display for AlertDescription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
