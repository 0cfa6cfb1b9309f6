//! What is told of handshakes: counters always, a line for each if it is asked for.

use crate::bursts::Subject;
use crate::door::client::{Client, ConnectionId};
use crate::traffic;
use crate::workspace::Workspace;
use dormouse_engine::{
    CertificateProblem, FailureKind, HandshakeFailure, HandshakeInfo, ResumptionRefused, Version,
    alert_name,
};
use dormouse_routes::route::Route;
use dormouse_tables::counters::{Count, Counters};
use std::fmt;

/// Counts a handshake that is done.
pub(crate) fn count_done(info: &HandshakeInfo, count: &Counters) {
    let (all, of_version) = match (info.resumed, info.protocol) {
        (true, Version::Tls13) => (Count::HandshakesResumed, Count::HandshakesResumed13),
        (true, Version::Tls12) => (Count::HandshakesResumed, Count::HandshakesResumed12),
        (false, Version::Tls13) => (Count::HandshakesFull, Count::HandshakesFull13),
        (false, Version::Tls12) => (Count::HandshakesFull, Count::HandshakesFull12),
    };
    count.add(all, 1);
    count.add(of_version, 1);
    // The client's are the first, the third and so on.
    let flights = info.flights.bytes();
    let bytes = |first: usize| -> u64 {
        let own = flights.iter().skip(first).step_by(2);
        own.map(|&bytes| u64::from(bytes)).sum()
    };
    count.add(Count::HandshakeFlights, flights.len() as u64);
    count.add(Count::HandshakeBytesIn, bytes(0));
    count.add(Count::HandshakeBytesOut, bytes(1));
    if let Some(refused) = info.refused {
        count.add(count_of(refused), 1);
    }
    if info.ticket_withheld {
        count.add(Count::TicketsWithheld, 1);
    }
}

/// Counts a handshake with a server that is done.
pub(crate) fn count_originated(info: &HandshakeInfo, count: &Counters) {
    use Count::{ConnectHandshakesFull as Full, ConnectHandshakesResumed as Resumed};
    let (all, of_version) = match (info.resumed, info.protocol) {
        (true, Version::Tls13) => (Resumed, Count::ConnectHandshakesResumed13),
        (true, Version::Tls12) => (Resumed, Count::ConnectHandshakesResumed12),
        (false, Version::Tls13) => (Full, Count::ConnectHandshakesFull13),
        (false, Version::Tls12) => (Full, Count::ConnectHandshakesFull12),
    };
    count.add(all, 1);
    count.add(of_version, 1);
}

fn count_of(refused: ResumptionRefused) -> Count {
    match refused {
        ResumptionRefused::UnknownKey => Count::ResumptionUnknownKey,
        ResumptionRefused::Expired => Count::ResumptionExpired,
        ResumptionRefused::NotCached => Count::ResumptionNotCached,
        ResumptionRefused::OtherServerName => Count::ResumptionOtherServerName,
        ResumptionRefused::OtherAlpn => Count::ResumptionOtherAlpn,
        ResumptionRefused::OtherClientPolicy => Count::ResumptionOtherClientPolicy,
        ResumptionRefused::ClientCertificate => Count::ResumptionClientCertificate,
        ResumptionRefused::OtherSuite => Count::ResumptionOtherSuite,
        // And whatever the engine may learn to tell apart.
        _ => Count::ResumptionDamaged,
    }
}

/// Counts a handshake that failed, beyond that it did.
fn count_failed(failure: &HandshakeFailure, count: &Counters) {
    count.add(Count::HandshakesFailed, 1);
    let reason = match &failure.kind {
        FailureKind::PlainHttp => Count::PlainHttp,
        FailureKind::NotTls => Count::HandshakesNotTls,
        FailureKind::TooLarge => Count::HandshakesTooLarge,
        FailureKind::Certificate(_) => Count::ClientCertificatesRefused,
        FailureKind::NoCommonVersion
        | FailureKind::NoCommonSuite
        | FailureKind::NoCommonGroup
        | FailureKind::NoCommonSignature
        | FailureKind::NoCommonAlpn
        | FailureKind::PeerIncompatible => Count::HandshakesIncompatible,
        FailureKind::PeerAlert(_) => Count::HandshakesPeerAlert,
        FailureKind::PeerClosed => Count::HandshakesPeerClosed,
        FailureKind::Malformed | FailureKind::Misbehaved | FailureKind::Forged => {
            Count::HandshakesBroken
        }
        // And whatever the engine may learn to tell apart.
        _ => Count::HandshakesInternal,
    };
    count.add(reason, 1);
}

/// Was the client refused for its certificate?
fn is_refused_client(failure: &HandshakeFailure) -> bool {
    matches!(&failure.kind, FailureKind::Certificate(problem) if *problem != CertificateProblem::Missing)
}

/// A handshake that is done, as its line names it.
pub(crate) struct Handshaken<'a> {
    pub(crate) route: &'a str,
    pub(crate) peer: &'a dyn fmt::Display,
    /// What a backend knows the connection by.
    pub(crate) id: Option<ConnectionId>,
    pub(crate) took_ms: u64,
}

/// The line of a handshake that is done.
pub(crate) fn log_done(info: &HandshakeInfo, done: Handshaken<'_>, asked_for: bool) {
    let Handshaken {
        route,
        peer,
        id,
        took_ms,
    } = done;
    macro_rules! line {
        ($level:ident) => {
            tracing::$level!(
                route,
                peer = %peer,
                id = id.map(|id| id.to_string()),
                version = %info.protocol,
                suite = info.suite,
                group = info.group,
                sni = info.sni,
                alpn = info.alpn.as_deref().map(|name| name.escape_ascii().to_string()),
                resumed = info.resumed,
                not_resumed = info.refused.map(|refused| refused.to_string()),
                retried = info.retried,
                client = info.client,
                took_ms,
                flights = flight_bytes(info),
                "handshake done"
            )
        };
    }
    if asked_for {
        line!(info);
    } else {
        line!(debug);
    }
}

/// The bytes of each flight, the client's first: `517,1266,74`.
fn flight_bytes(info: &HandshakeInfo) -> String {
    let bytes = info.flights.bytes().iter();
    bytes.map(ToString::to_string).collect::<Vec<_>>().join(",")
}

/// The line of a handshake that failed, when every one is to have a line.
pub(crate) fn log_failed(
    failure: &HandshakeFailure,
    route: Option<&str>,
    peer: &dyn fmt::Display,
    took_ms: u64,
) {
    tracing::info!(
        route,
        peer = %peer,
        gave_up = failure.gave_up(),
        alert = failure.alert().map(alert_name),
        blame = %failure.blame,
        error = failure.reason,
        took_ms,
        "handshake failed"
    );
}

/// The line of a handshake which ended without a word.
pub(crate) fn log_gone(
    gave_up: &str,
    why: &str,
    route: Option<&str>,
    peer: &dyn fmt::Display,
    took_ms: u64,
) {
    tracing::info!(route, peer = %peer, gave_up, error = why, took_ms, "handshake failed");
}

/// Counts a handshake with a client that failed, and logs it. `each_ms`: every handshake has a
/// line; it took this long. `route`: its number and itself, if the handshake got so far.
pub(crate) fn client_failed<I>(
    failure: &HandshakeFailure,
    client: &Client,
    each_ms: Option<u64>,
    route: Option<(u16, &Route)>,
    work: &mut Workspace<I>,
) {
    count_failed(failure, &work.count);
    traffic::count_handshake_failed(route.map(|(number, _)| number), &work.traffic);
    let route = route.map(|(_, route)| route.name.as_str());
    if let Some(took_ms) = each_ms {
        return log_failed(failure, route, client, took_ms);
    }
    // A refused client is logged apart from what any stranger can cause.
    let subject = if is_refused_client(failure) {
        Subject::ClientRefused
    } else {
        Subject::HandshakeFailed
    };
    work.bursts.note(subject, work.now_ms, |more| {
        tracing::info!(
            route,
            peer = %client,
            alert = failure.alert().map(alert_name),
            blame = %failure.blame,
            error = failure.reason,
            more,
            "handshake failed"
        );
    });
}
