//! Why a handshake failed: the side at fault, what happened, and the alert that was sent or received.

pub(crate) mod words;

use std::fmt;

use dormouse_record as record;
use rustls::{
    AlertDescription, CertificateError, Error, InvalidMessage, PeerIncompatible, PeerMisbehaved,
};

use crate::alert_name::alert_name;
use crate::messages::content_type;
use words::of_certificate;

/// A failed handshake. [`Handshake::output`](crate::Handshake::output) still holds what should be sent to the
/// peer, usually an alert.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HandshakeFailure {
    /// The side that must change something.
    pub blame: Blame,
    /// The kind of failure, for counters and decisions.
    pub kind: FailureKind,
    /// What happened, in words.
    pub reason: String,
    /// The alert in the output, if known (RFC 8446 §6.2).
    pub alert_sent: Option<u8>,
}

/// The side that must change something to make the handshake succeed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blame {
    /// The peer, or the network between.
    Peer,
    /// Our configuration, or its combination with the peer's.
    Configuration,
    /// One of our limits, or what we do not support.
    Limit,
    /// The caller, which called this crate's functions in the wrong order.
    Misuse,
    /// This program: an internal check failed.
    Internal,
}

/// The kind of handshake failure.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum FailureKind {
    /// A plain HTTP request arrived at a TLS port.
    PlainHttp,
    /// The first bytes are not TLS.
    NotTls,
    /// No protocol version is enabled on both sides.
    NoCommonVersion,
    /// No cipher suite is enabled on both sides.
    NoCommonSuite,
    /// No key exchange group is enabled on both sides.
    NoCommonGroup,
    /// The server has no certificate with a signature that the client accepts.
    NoCommonSignature,
    /// No application protocol (ALPN) is enabled on both sides.
    NoCommonAlpn,
    /// The client requested an unknown server name, or none.
    UnknownName,
    /// The program around the engine refused the client because of its ClientHello.
    Refused,
    /// The peer lacks another required feature.
    PeerIncompatible,
    /// The peer sent a fatal alert, with this description.
    PeerAlert(u8),
    /// The peer closed before the handshake completed.
    PeerClosed,
    /// The peer sent more bytes than the limit for handshakes.
    TooLarge,
    /// A message that cannot be decoded, or that is out of place.
    Malformed,
    /// A well-formed message that violates the protocol.
    Misbehaved,
    /// A record or a Finished message that failed authentication.
    Forged,
    /// The server's certificate was refused.
    Certificate(CertificateProblem),
    /// The caller called functions in the wrong order.
    Misuse,
    /// An internal check or the cryptographic library failed.
    Internal,
}

/// The problem with the peer's certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum CertificateProblem {
    /// It has expired.
    Expired {
        /// Its last second of validity, in Unix time.
        not_after_s: u64,
        /// The time at which it was checked.
        now_s: u64,
    },
    /// It is not valid yet, or our clock is behind.
    NotYetValid {
        /// Its first second of validity, in Unix time.
        not_before_s: u64,
        /// The time at which it was checked.
        now_s: u64,
    },
    /// It is for other names.
    WrongName {
        /// The requested name.
        expected: String,
        /// The names in the certificate.
        presented: Vec<String>,
    },
    /// Its issuer is not trusted.
    UnknownIssuer {
        /// The issuer that it names.
        issuer: String,
        /// Whether the peer has sent a certificate that has issued itself, above its own.
        sent_root: bool,
    },
    /// It is self-signed and not trusted.
    SelfSigned {
        /// The subject that it names.
        subject: String,
    },
    /// It belongs to an authority (CA:TRUE), and is not itself a trusted certificate.
    AuthorityAsServer {
        /// The subject that it names.
        subject: String,
        /// Whether it is self-signed.
        self_signed: bool,
    },
    /// The peer sent no certificate.
    Missing,
    /// It was revoked.
    Revoked,
    /// It is valid, but no rule allows it.
    NotAllowed {
        /// The names in the certificate that the rules were compared with.
        claims: String,
    },
    /// It is not valid for a server.
    WrongPurpose,
    /// Its signature, or a signature made with its key, does not verify.
    BadSignature,
    /// It, or an authority of its chain, demands something of a verifier that is not supported here.
    Unsupported(String),
    /// Another problem, in rustls' words.
    Other(String),
}

/// Why the server presents no certificate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NoCertificate {
    /// No certificate covers the name.
    UnknownName,
    /// The certificate for the name has not been issued yet.
    Awaited,
    /// The client wants to validate an ACME challenge (RFC 8737), and none is pending.
    Challenge,
}

impl HandshakeFailure {
    pub(crate) fn new(blame: Blame, kind: FailureKind, reason: impl Into<String>) -> Self {
        HandshakeFailure {
            blame,
            kind,
            reason: in_one_line(&reason.into()),
            alert_sent: None,
        }
    }

    /// The client supports no version that is enabled here.
    pub(crate) fn too_old() -> Self {
        let reason = "no common protocol version: the client supports only TLS 1.1 or older";
        HandshakeFailure::new(Blame::Peer, FailureKind::NoCommonVersion, reason)
    }

    /// The failure for a client that requests an unknown name, or none, and the alert to send. The alert is
    /// unprotected, as before every ServerHello: unrecognized_name (RFC 6066 §3), or missing_extension without
    /// a name (RFC 8446 §9.2).
    pub fn unknown_name(name: Option<&str>) -> (HandshakeFailure, [u8; 7]) {
        let (alert, reason) = match name {
            Some(name) => {
                let shown = dormouse_printable::line(name);
                (
                    record::AlertDescription::UnrecognizedName,
                    format!("the client requested the unknown server name {shown}"),
                )
            }
            None => (
                record::AlertDescription::MissingExtension,
                "the client sent no server name (SNI), and there is no default".to_owned(),
            ),
        };
        let failure = HandshakeFailure::new(Blame::Peer, FailureKind::UnknownName, reason);
        failure.with_cleartext_alert(alert.code())
    }

    /// The failure for a client that the caller refuses because of its ClientHello, and the alert to send.
    pub fn refused_by_caller(alert: u8) -> (HandshakeFailure, [u8; 7]) {
        let reason = "the program refused the client";
        HandshakeFailure::new(Blame::Peer, FailureKind::Refused, reason).with_cleartext_alert(alert)
    }

    /// The failure for a missing certificate, and the alert to send.
    pub(crate) fn no_certificate(
        why: NoCertificate,
        name: Option<&str>,
    ) -> (HandshakeFailure, [u8; 7]) {
        match why {
            NoCertificate::UnknownName => HandshakeFailure::unknown_name(name),
            // The certificate is not issued yet: unrecognized_name (RFC 6066 §3).
            NoCertificate::Awaited => {
                let shown = dormouse_printable::line(name.unwrap_or("no name"));
                let reason = format!(
                    "the client requested {shown}, whose certificate has not been issued yet"
                );
                HandshakeFailure::new(Blame::Configuration, FailureKind::UnknownName, reason)
                    .with_cleartext_alert(record::AlertDescription::UnrecognizedName.code())
            }
            // no_application_protocol (RFC 7301 §3.2).
            NoCertificate::Challenge => {
                let reason = "the client offers only acme-tls/1, and no challenge is pending";
                HandshakeFailure::new(Blame::Peer, FailureKind::NoCommonAlpn, reason)
                    .with_cleartext_alert(record::AlertDescription::NoApplicationProtocol.code())
            }
        }
    }

    /// The failure for a peer that sends more than `max` bytes during the handshake.
    pub(crate) fn too_large(max: usize) -> Self {
        let reason = format!(
            "the peer sent more than {max} bytes during the handshake (handshake_bytes_max)"
        );
        HandshakeFailure::new(Blame::Limit, FailureKind::TooLarge, reason)
    }

    /// The same for a client whose ClientHello waits for a decision, and the alert to send: illegal_parameter.
    pub fn too_large_undecided(max: usize) -> (HandshakeFailure, [u8; 7]) {
        let alert = record::AlertDescription::IllegalParameter;
        HandshakeFailure::too_large(max).with_cleartext_alert(alert.code())
    }

    fn with_cleartext_alert(self, alert: u8) -> (HandshakeFailure, [u8; 7]) {
        let level = record::AlertLevel::Fatal as u8;
        (
            self.with_alert(Some(alert)),
            [content_type::ALERT, 3, 3, 0, 2, level, alert],
        )
    }

    pub(crate) fn internal(reason: impl Into<String>) -> Self {
        Self::new(Blame::Internal, FailureKind::Internal, reason)
    }

    /// Converts an error of rustls. `problem` is what our verifier found.
    pub(crate) fn from_rustls(error: &Error, problem: Option<CertificateProblem>) -> Self {
        let (blame, kind) = match error {
            Error::PeerIncompatible(what) => (Blame::Configuration, incompatible(what)),
            Error::NoApplicationProtocol => (Blame::Configuration, FailureKind::NoCommonAlpn),
            Error::AlertReceived(alert) => {
                let kind = if *alert == AlertDescription::CloseNotify {
                    FailureKind::PeerClosed
                } else {
                    FailureKind::PeerAlert((*alert).into())
                };
                (Blame::Peer, kind)
            }
            Error::InvalidCertificate(certificate) => {
                let problem = problem.unwrap_or_else(|| CertificateProblem::from(certificate));
                let blame = match problem {
                    CertificateProblem::Unsupported(_) => Blame::Limit,
                    _ => Blame::Peer,
                };
                (blame, FailureKind::Certificate(problem))
            }
            Error::NoCertificatesPresented => (
                Blame::Peer,
                FailureKind::Certificate(CertificateProblem::Missing),
            ),
            Error::DecryptError => (Blame::Peer, FailureKind::Forged),
            Error::PeerSentOversizedRecord
            | Error::InvalidMessage(_)
            | Error::InappropriateMessage { .. }
            | Error::InappropriateHandshakeMessage { .. } => (Blame::Peer, FailureKind::Malformed),
            Error::PeerMisbehaved(_) => (Blame::Peer, FailureKind::Misbehaved),
            _ => (Blame::Internal, FailureKind::Internal),
        };
        let reason = reason(error, &kind);
        HandshakeFailure::new(blame, kind, reason)
    }

    /// The same failure for a client's certificate, with its subject `whose` if it sent one.
    pub(crate) fn about_client(mut self, whose: Option<&str>) -> Self {
        let FailureKind::Certificate(problem) = &self.kind else {
            return self;
        };
        let whose = whose.map_or_else(String::new, |whose| format!(" ({whose})"));
        self.reason = in_one_line(&match problem {
            CertificateProblem::WrongPurpose => {
                format!("the client's certificate{whose} is not valid for a client")
            }
            problem => format!("the client's certificate{whose} {problem}"),
        });
        self
    }

    /// Returns whether the peer ended the handshake: it sent an alert or closed.
    pub fn is_by_peer(&self) -> bool {
        matches!(
            self.kind,
            FailureKind::PeerAlert(_) | FailureKind::PeerClosed
        )
    }

    /// Returns the alert that ended the handshake, sent or received.
    pub fn alert(&self) -> Option<u8> {
        match self.kind {
            FailureKind::PeerAlert(alert) => Some(alert),
            _ => self.alert_sent,
        }
    }

    /// Records the alert that is sent with this failure, and adds it to the reason.
    pub(crate) fn with_alert(mut self, alert: Option<u8>) -> Self {
        if let Some(alert) = alert {
            self.alert_sent = Some(alert);
            let name = alert_name(alert);
            self.reason = format!("{}; sent the alert {name}", self.reason);
        }
        self
    }
}

/// Returns the alert that `error` requires (RFC 8446 §6.2). `rustls` is the alert that rustls chose, if any.
pub(crate) fn alert_owed(error: &Error, rustls: Option<u8>, is_tls13: bool) -> Option<u8> {
    let own = match error {
        // The peer ended the connection; no alert is sent.
        Error::AlertReceived(_) => return None,
        Error::InvalidMessage(InvalidMessage::InvalidContentType) => {
            AlertDescription::UnexpectedMessage
        }
        // RFC 8446 §9.2. TLS 1.2 has defaults for these extensions, or does not have them.
        Error::PeerIncompatible(
            PeerIncompatible::KeyShareExtensionRequired
            | PeerIncompatible::NamedGroupsExtensionRequired
            | PeerIncompatible::SignatureAlgorithmsExtensionRequired,
        ) if is_tls13 => AlertDescription::MissingExtension,
        // RFC 5246 §7.4.6. TLS 1.2 has no certificate_required.
        Error::NoCertificatesPresented if !is_tls13 => AlertDescription::HandshakeFailure,
        _ => return rustls.or_else(|| Some(default_alert(error).into())),
    };
    Some(own.into())
}

/// Returns the alert for errors where rustls sends none.
fn default_alert(error: &Error) -> AlertDescription {
    match error {
        Error::InvalidCertificate(certificate) => AlertDescription::from(certificate.clone()),
        Error::NoApplicationProtocol => AlertDescription::NoApplicationProtocol,
        Error::InvalidMessage(_) => AlertDescription::DecodeError,
        Error::NoCertificatesPresented => AlertDescription::CertificateRequired,
        Error::InappropriateMessage { .. } | Error::InappropriateHandshakeMessage { .. } => {
            AlertDescription::UnexpectedMessage
        }
        Error::PeerSentOversizedRecord => AlertDescription::RecordOverflow,
        Error::PeerIncompatible(_) => AlertDescription::HandshakeFailure,
        Error::PeerMisbehaved(what) => misbehaviour(what),
        Error::DecryptError => AlertDescription::DecryptError,
        _ => AlertDescription::InternalError,
    }
}

fn misbehaviour(what: &PeerMisbehaved) -> AlertDescription {
    match what {
        PeerMisbehaved::IllegalMiddleboxChangeCipherSpec
        | PeerMisbehaved::IllegalTlsInnerPlaintext
        | PeerMisbehaved::KeyEpochWithPendingFragment
        | PeerMisbehaved::MessageInterleavedWithHandshakeMessage
        | PeerMisbehaved::RejectedEarlyDataInterleavedWithHandshakeMessage
        | PeerMisbehaved::TooManyEmptyFragments
        | PeerMisbehaved::TooManyKeyUpdateRequests
        | PeerMisbehaved::TooManyRenegotiationRequests
        | PeerMisbehaved::TooManyWarningAlertsReceived
        | PeerMisbehaved::TooMuchEarlyDataReceived => AlertDescription::UnexpectedMessage,
        PeerMisbehaved::UnsolicitedCertExtension
        | PeerMisbehaved::UnsolicitedEncryptedExtension
        | PeerMisbehaved::UnsolicitedServerHelloExtension
        | PeerMisbehaved::UnsolicitedEchExtension => AlertDescription::UnsupportedExtension,
        PeerMisbehaved::MissingKeyShare
        | PeerMisbehaved::MissingPskExtensionInSecondClientHello
        | PeerMisbehaved::MissingPskModesExtension => AlertDescription::MissingExtension,
        PeerMisbehaved::IncorrectBinder => AlertDescription::DecryptError,
        _ => AlertDescription::IllegalParameter,
    }
}

fn incompatible(what: &PeerIncompatible) -> FailureKind {
    match what {
        PeerIncompatible::NoCipherSuitesInCommon => FailureKind::NoCommonSuite,
        PeerIncompatible::NoKxGroupsInCommon | PeerIncompatible::NamedGroupsExtensionRequired => {
            FailureKind::NoCommonGroup
        }
        PeerIncompatible::NoSignatureSchemesInCommon
        | PeerIncompatible::SignatureAlgorithmsExtensionRequired => FailureKind::NoCommonSignature,
        PeerIncompatible::ServerDoesNotSupportTls12Or13
        | PeerIncompatible::ServerTlsVersionIsDisabledByOurConfig
        | PeerIncompatible::SupportedVersionsExtensionRequired
        | PeerIncompatible::Tls12NotOffered
        | PeerIncompatible::Tls12NotOfferedOrEnabled => FailureKind::NoCommonVersion,
        _ => FailureKind::PeerIncompatible,
    }
}

/// Maximum number of characters in a reason: our text and a few names.
const REASON_MAX: usize = 1000;

/// Escapes a reason, which may quote names from the peer.
fn in_one_line(reason: &str) -> String {
    dormouse_printable::line_up_to(reason, REASON_MAX).to_string()
}

fn reason(error: &Error, kind: &FailureKind) -> String {
    match kind {
        FailureKind::Certificate(problem) => format!("the server's certificate {problem}"),
        FailureKind::PeerAlert(alert) => {
            format!("the peer sent the alert {}", alert_name(*alert))
        }
        FailureKind::PeerClosed => "the peer closed the connection during the handshake".to_owned(),
        FailureKind::Forged => {
            "a record or the Finished message of the peer failed authentication".to_owned()
        }
        FailureKind::NoCommonVersion => format!("no common protocol version ({error})"),
        FailureKind::NoCommonSuite => "no common cipher suite".to_owned(),
        FailureKind::NoCommonGroup => "no common key exchange group".to_owned(),
        FailureKind::NoCommonSignature => {
            "no certificate has a signature algorithm that the client accepts".to_owned()
        }
        FailureKind::NoCommonAlpn => "no common application protocol (ALPN)".to_owned(),
        _ => error.to_string(),
    }
}

impl From<&CertificateError> for CertificateProblem {
    fn from(error: &CertificateError) -> Self {
        match error {
            CertificateError::ExpiredContext { time, not_after } => CertificateProblem::Expired {
                not_after_s: not_after.as_secs(),
                now_s: time.as_secs(),
            },
            CertificateError::NotValidYetContext { time, not_before } => {
                CertificateProblem::NotYetValid {
                    not_before_s: not_before.as_secs(),
                    now_s: time.as_secs(),
                }
            }
            CertificateError::NotValidForNameContext {
                expected,
                presented,
            } => CertificateProblem::WrongName {
                expected: expected.to_str().into_owned(),
                presented: presented.iter().map(|name| bare_name(name)).collect(),
            },
            CertificateError::Revoked => CertificateProblem::Revoked,
            CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
                CertificateProblem::WrongPurpose
            }
            CertificateError::BadSignature => CertificateProblem::BadSignature,
            other => CertificateProblem::Other(of_certificate(other)),
        }
    }
}

/// webpki writes names as `DnsName("a.example")`; this returns the bare name.
fn bare_name(name: &str) -> String {
    name.split_once('(')
        .and_then(|(_, rest)| rest.strip_suffix(')'))
        .map_or(name, |inner| inner.trim_matches('"'))
        .to_owned()
}

/// Formats a time in UTC.
pub(crate) fn utc(seconds: u64) -> String {
    i64::try_from(seconds)
        .ok()
        .and_then(|s| x509_parser::time::ASN1Time::from_timestamp(s).ok())
        .map_or_else(|| format!("{seconds} s"), |time| time.to_string())
}

impl CertificateProblem {
    /// Returns the problem in words, in which the peer's names are as it sent them.
    fn words(&self) -> String {
        match self {
            Self::Expired { not_after_s, now_s } => format!(
                "expired at {} (the time is {})",
                utc(*not_after_s),
                utc(*now_s)
            ),
            Self::NotYetValid {
                not_before_s,
                now_s,
            } => format!(
                "is not valid before {} (the time is {}; check the clock)",
                utc(*not_before_s),
                utc(*now_s)
            ),
            Self::WrongName {
                expected,
                presented,
            } if presented.is_empty() => format!(
                "has no names (subjectAltName), and a common name does not count; {expected} was requested"
            ),
            // An address compares with addresses only (RFC 9525 §6.5).
            Self::WrongName {
                expected,
                presented,
            } if presented.contains(expected) => {
                format!("has {expected} as a DNS name, and not as an IP address")
            }
            Self::WrongName {
                expected,
                presented,
            } => format!("is for {}, not for {expected}", presented.join(", ")),
            Self::UnknownIssuer { issuer, .. } => {
                format!("was issued by {issuer}, which is not trusted")
            }
            Self::SelfSigned { subject } => format!("is self-signed ({subject}) and not trusted"),
            Self::AuthorityAsServer {
                subject,
                self_signed,
            } => format!(
                "{} an authority ({subject}, CA:TRUE), and is not itself a trusted certificate; trust this \
                 certificate, or create it with `-addext basicConstraints=critical,CA:FALSE`",
                if *self_signed {
                    "is self-signed and belongs to"
                } else {
                    "belongs to"
                }
            ),
            Self::Missing => "was not sent".to_owned(),
            Self::Revoked => "was revoked".to_owned(),
            Self::NotAllowed { claims } => {
                format!("matches no rule of client_allow; it has {claims}")
            }
            Self::WrongPurpose => "is not valid for a server".to_owned(),
            Self::BadSignature => "or a signature made with its key does not verify".to_owned(),
            Self::Unsupported(words) | Self::Other(words) => format!("was refused: {words}"),
        }
    }
}

/// The problem in one line. Programs log it, so the peer's names in it are escaped.
impl fmt::Display for CertificateProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&in_one_line(&self.words()))
    }
}

impl fmt::Display for Blame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Blame::Peer => "peer",
            Blame::Configuration => "configuration",
            Blame::Limit => "limit",
            Blame::Misuse => "misuse",
            Blame::Internal => "internal",
        })
    }
}

impl fmt::Display for HandshakeFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (blame: {})", self.reason, self.blame)
    }
}

impl std::error::Error for HandshakeFailure {}
