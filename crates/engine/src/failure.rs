//! Why a handshake failed: who is to blame, what happened, which alert was sent or received.

use std::fmt;

use rustls::{
    AlertDescription, CertificateError, Error, InvalidMessage, PeerIncompatible, PeerMisbehaved,
};

use crate::alert_name::alert_name;

/// A handshake which can't go on. [`Handshake::output`](crate::Handshake::output) still
/// holds what should be sent to the peer, an alert usually.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HandshakeFailure {
    /// Who has to change something.
    pub blame: Blame,
    /// What it is, for counting and for deciding.
    pub kind: FailureKind,
    /// What happened, in words.
    pub reason: String,
    /// The alert which was put into the output, where it is known (RFC 8446 §6.2).
    pub alert_sent: Option<u8>,
}

/// Who has to change something so that it goes well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blame {
    /// The other end of the connection, or the network between.
    Peer,
    /// Our configuration, or it and the peer's together don't fit.
    Configuration,
    /// A limit of ours was reached.
    Limit,
    /// The caller used this crate in a wrong order.
    Misuse,
    /// This program: a check of its own failed.
    Internal,
}

/// What made the handshake fail.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum FailureKind {
    /// An HTTP request without TLS came to this port.
    PlainHttp,
    /// The first bytes are not TLS.
    NotTls,
    /// No protocol version is enabled on both sides.
    NoCommonVersion,
    /// No cipher suite is enabled on both sides.
    NoCommonSuite,
    /// No key exchange group is enabled on both sides.
    NoCommonGroup,
    /// No certificate of the server has a signature the client accepts.
    NoCommonSignature,
    /// No application protocol (ALPN) is enabled on both sides.
    NoCommonAlpn,
    /// The client asked for a server name that nobody has here, or for none.
    UnknownName,
    /// The program around the engine refused the client because of its ClientHello.
    Refused,
    /// The peer lacks something else that is required.
    PeerIncompatible,
    /// The peer sent a fatal alert, with this description.
    PeerAlert(u8),
    /// The peer closed before the handshake was done.
    PeerClosed,
    /// The peer sent more bytes than a handshake may have.
    TooLarge,
    /// A message which can't be decoded, or does not belong here.
    Malformed,
    /// A well-formed message which breaks the protocol.
    Misbehaved,
    /// A record or a Finished message which does not authenticate.
    Forged,
    /// The server's certificate was refused.
    Certificate(CertificateProblem),
    /// Called in a wrong order.
    Misuse,
    /// A check of our own failed, or the cryptographic library did.
    Internal,
}

/// What is wrong with the peer's certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum CertificateProblem {
    /// Its time is over.
    Expired {
        /// When it ended, in seconds of Unix time.
        not_after_s: u64,
        /// The time it was judged at.
        now_s: u64,
    },
    /// Its time has not begun, or the clock here is behind.
    NotYetValid {
        /// When it begins, in seconds of Unix time.
        not_before_s: u64,
        /// The time it was judged at.
        now_s: u64,
    },
    /// It is for other names.
    WrongName {
        /// The name that was asked for.
        expected: String,
        /// The names it is for.
        presented: Vec<String>,
    },
    /// It was issued by nobody who is trusted here.
    UnknownIssuer {
        /// Who issued it, by its own account.
        issuer: String,
    },
    /// It was issued by itself, and is not trusted here.
    SelfSigned {
        /// Whose it is, by its own account.
        subject: String,
    },
    /// It is an authority's (CA:TRUE), which may not stand for a server itself.
    AuthorityAsServer {
        /// Whose it is, by its own account.
        subject: String,
        /// It was issued by itself.
        self_signed: bool,
    },
    /// None was sent.
    Missing,
    /// It was revoked.
    Revoked,
    /// It is good, but no rule lets it in.
    NotAllowed {
        /// What it says of its owner.
        claims: String,
    },
    /// It may not be used for a server.
    WrongPurpose,
    /// Its signature, or the one made with its key, is wrong.
    BadSignature,
    /// Something else, in rustls' words.
    Other(String),
}

/// Why no certificate is shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NoCertificate {
    /// None is for that name.
    UnknownName,
    /// The one for that name is still to come.
    Awaited,
    /// The client does not want a connection, but to see that a name is ours (RFC 8737), and
    /// nobody has asked for that.
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

    /// A client that knows no version which is spoken here.
    pub(crate) fn too_old() -> Self {
        let reason = "no common protocol version: the client speaks TLS 1.1 or older";
        HandshakeFailure::new(Blame::Peer, FailureKind::NoCommonVersion, reason)
    }

    /// A client asked for this name, or none, and nothing is for it: the failure, and the alert to
    /// be sent, in the clear as all before the server's answer. unrecognized_name (RFC 6066 §3);
    /// missing_extension without a name (RFC 8446 §9.2).
    pub fn unknown_name(name: Option<&str>) -> (HandshakeFailure, [u8; 7]) {
        let (alert, reason) = match name {
            Some(name) => {
                let shown = dormouse_printable::line(name);
                (
                    112,
                    format!("the client asked for \"{shown}\", and nothing is for that name"),
                )
            }
            None => (
                109,
                "the client named no server (SNI), and there is no default".to_owned(),
            ),
        };
        let failure = HandshakeFailure::new(Blame::Peer, FailureKind::UnknownName, reason);
        failure.told_in_the_clear(alert)
    }

    /// The caller refuses a client because of its ClientHello: the failure, and the alert to be sent.
    pub fn refused_by_caller(alert: u8) -> (HandshakeFailure, [u8; 7]) {
        let reason = "the program refused the client";
        HandshakeFailure::new(Blame::Peer, FailureKind::Refused, reason).told_in_the_clear(alert)
    }

    /// No certificate is shown: the failure, and the alert to be sent.
    pub(crate) fn no_certificate(
        why: NoCertificate,
        name: Option<&str>,
    ) -> (HandshakeFailure, [u8; 7]) {
        match why {
            NoCertificate::UnknownName => HandshakeFailure::unknown_name(name),
            // Nothing is for that name yet: unrecognized_name (RFC 6066 §3).
            NoCertificate::Awaited => {
                let shown = name.map_or("no name".to_owned(), |name| format!("{name:?}"));
                let reason =
                    format!("the client asked for {shown}, and no certificate has come for it yet");
                HandshakeFailure::new(Blame::Configuration, FailureKind::UnknownName, reason)
                    .told_in_the_clear(112)
            }
            // no_application_protocol (RFC 7301 §3.2).
            NoCertificate::Challenge => {
                let reason = "the client offers acme-tls/1 only, and no challenge is open";
                HandshakeFailure::new(Blame::Peer, FailureKind::NoCommonAlpn, reason)
                    .told_in_the_clear(120)
            }
        }
    }

    fn told_in_the_clear(self, alert: u8) -> (HandshakeFailure, [u8; 7]) {
        const FATAL: u8 = 2;
        (self.with_alert(Some(alert)), [21, 3, 3, 0, 2, FATAL, alert])
    }

    pub(crate) fn internal(reason: impl Into<String>) -> Self {
        Self::new(Blame::Internal, FailureKind::Internal, reason)
    }

    /// What rustls reports, in this crate's terms. `problem` is what our verifier found.
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
                (Blame::Peer, FailureKind::Certificate(problem))
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

    /// The same, of a client's certificate. `whose`: its subject, if it sent one.
    pub(crate) fn about_client(mut self, whose: Option<&str>) -> Self {
        let FailureKind::Certificate(problem) = &self.kind else {
            return self;
        };
        let whose = whose.map_or_else(String::new, |whose| format!(" ({whose})"));
        self.reason = in_one_line(&match problem {
            CertificateProblem::WrongPurpose => {
                format!("the client's certificate{whose} may not be used for a client")
            }
            problem => format!("the client's certificate{whose} {problem}"),
        });
        self
    }

    /// Which side gave up, in a word: the one which sent the alert, or closed.
    pub fn gave_up(&self) -> &'static str {
        match self.kind {
            FailureKind::PeerAlert(_) | FailureKind::PeerClosed => "peer",
            _ => "us",
        }
    }

    /// The alert which ended it, sent or received.
    pub fn alert(&self) -> Option<u8> {
        match self.kind {
            FailureKind::PeerAlert(alert) => Some(alert),
            _ => self.alert_sent,
        }
    }

    /// Notes the alert that goes out with this failure and adds it to the reason.
    pub(crate) fn with_alert(mut self, alert: Option<u8>) -> Self {
        if let Some(alert) = alert {
            self.alert_sent = Some(alert);
            let name = alert_name(alert);
            self.reason = format!("{}; sent the alert {name}", self.reason);
        }
        self
    }
}

/// The alert that `error` demands (RFC 8446 §6.2); `rustls`: the one that rustls has chosen, if any.
pub(crate) fn alert_owed(error: &Error, rustls: Option<u8>, is_tls13: bool) -> Option<u8> {
    let own = match error {
        // The peer has ended the connection: there is nothing to add.
        Error::AlertReceived(_) => return None,
        Error::InvalidMessage(InvalidMessage::InvalidContentType) => {
            AlertDescription::UnexpectedMessage
        }
        // RFC 8446 §9.2. TLS 1.2 has defaults for these extensions, or none of them.
        Error::PeerIncompatible(
            PeerIncompatible::KeyShareExtensionRequired
            | PeerIncompatible::NamedGroupsExtensionRequired
            | PeerIncompatible::SignatureAlgorithmsExtensionRequired,
        ) if is_tls13 => AlertDescription::MissingExtension,
        _ => return rustls.or_else(|| Some(default_alert(error).into())),
    };
    Some(own.into())
}

/// The alert where rustls sends none.
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

/// Most characters of a reason: words of ours around a few names.
const REASON_MAX: usize = 1000;

/// A reason may quote what the peer calls itself.
fn in_one_line(reason: &str) -> String {
    dormouse_printable::line_up_to(reason, REASON_MAX).to_string()
}

fn reason(error: &Error, kind: &FailureKind) -> String {
    match kind {
        FailureKind::Certificate(problem) => format!("the server's certificate {problem}"),
        FailureKind::PeerAlert(alert) => {
            format!("the peer refused with the alert {}", alert_name(*alert))
        }
        FailureKind::PeerClosed => "the peer closed during the handshake".to_owned(),
        FailureKind::Forged => {
            "a record or the Finished message of the peer does not authenticate".to_owned()
        }
        FailureKind::NoCommonVersion => format!("no common protocol version ({error})"),
        FailureKind::NoCommonSuite => "no common cipher suite".to_owned(),
        FailureKind::NoCommonGroup => "no common key exchange group".to_owned(),
        FailureKind::NoCommonSignature => {
            "no certificate has a signature that the client accepts".to_owned()
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
            other => CertificateProblem::Other(other.to_string()),
        }
    }
}

/// webpki writes names as `DnsName("a.example")`; people don't.
fn bare_name(name: &str) -> String {
    name.split_once('(')
        .and_then(|(_, rest)| rest.strip_suffix(')'))
        .map_or(name, |inner| inner.trim_matches('"'))
        .to_owned()
}

/// A time for people, in UTC.
pub(crate) fn utc(seconds: u64) -> String {
    i64::try_from(seconds)
        .ok()
        .and_then(|s| x509_parser::time::ASN1Time::from_timestamp(s).ok())
        .map_or_else(|| format!("{seconds} s"), |time| time.to_string())
}

impl fmt::Display for CertificateProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Expired { not_after_s, now_s } => write!(
                f,
                "expired at {} (it is {})",
                utc(*not_after_s),
                utc(*now_s)
            ),
            Self::NotYetValid {
                not_before_s,
                now_s,
            } => write!(
                f,
                "is valid only from {} on (it is {}: is the clock right?)",
                utc(*not_before_s),
                utc(*now_s)
            ),
            Self::WrongName {
                expected,
                presented,
            } if presented.is_empty() => {
                write!(f, "is for no name at all, {expected} was asked for")
            }
            Self::WrongName {
                expected,
                presented,
            } => write!(
                f,
                "is for {}, not for {expected}, which was asked for",
                presented.join(", ")
            ),
            Self::UnknownIssuer { issuer } => {
                write!(f, "was issued by {issuer}, which is not trusted here")
            }
            Self::SelfSigned { subject } => write!(
                f,
                "is self-signed ({subject}) and not among the trusted ones"
            ),
            Self::AuthorityAsServer {
                subject,
                self_signed,
            } => write!(
                f,
                "is {} an authority ({subject}, CA:TRUE), which may not stand for a server; \
                 make it with `-addext basicConstraints=critical,CA:FALSE`",
                if *self_signed {
                    "self-signed, and that of"
                } else {
                    "that of"
                }
            ),
            Self::Missing => write!(f, "was not sent"),
            Self::Revoked => write!(f, "was revoked"),
            Self::NotAllowed { claims } => {
                write!(f, "is let in by no rule of client_allow; it has {claims}")
            }
            Self::WrongPurpose => write!(f, "may not be used for a server"),
            Self::BadSignature => write!(f, "or the signature made with it is forged"),
            Self::Other(words) => write!(f, "was refused: {words}"),
        }
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
        write!(f, "{} ({})", self.reason, self.blame)
    }
}

impl std::error::Error for HandshakeFailure {}
