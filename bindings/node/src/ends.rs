//! Ends of connections, for the JavaScript half, which adds Node's codes.

use dormouse_embed::{AlertDescription, CertificateProblem, End, FailureKind};

/// The kind of an end.
pub(crate) fn kind(end: &End) -> &'static str {
    let End::Handshake(failure) = end else {
        return match end {
            End::Closed => "closed",
            End::Truncated => "truncated",
            End::Alert(_) => "alert",
            End::Refused(refusal) => match refusal.alert {
                AlertDescription::RecordOverflow => "tooLong",
                AlertDescription::UnexpectedMessage => "misbehaved",
                AlertDescription::DecodeError => "malformed",
                _ => "refused",
            },
            End::Handshake(_) => "internal",
        };
    };
    match &failure.kind {
        FailureKind::PlainHttp => "plainHttp",
        FailureKind::NotTls => "notTls",
        FailureKind::NoCommonVersion => "noCommonVersion",
        FailureKind::NoCommonSuite => "noCommonSuite",
        FailureKind::NoCommonGroup => "noCommonGroup",
        FailureKind::NoCommonSignature => "noCommonSignature",
        FailureKind::NoCommonAlpn => "noCommonAlpn",
        FailureKind::UnknownName => "unknownName",
        FailureKind::Refused => "refusedByProgram",
        FailureKind::PeerIncompatible => "peerIncompatible",
        FailureKind::PeerAlert(_) => "alert",
        FailureKind::PeerClosed => "peerClosed",
        FailureKind::TooLarge => "tooLarge",
        FailureKind::Malformed => "malformed",
        FailureKind::Misbehaved => "misbehaved",
        FailureKind::Forged => "forged",
        FailureKind::Certificate(CertificateProblem::Missing) => "noCertificate",
        FailureKind::Certificate(_) => "certificate",
        _ => "internal",
    }
}
