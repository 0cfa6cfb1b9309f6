//! Counters and log lines of handshakes. Every handshake is counted; with `log_handshakes`, every
//! handshake also has a line.

use crate::bursts::{Place, Subject};
use crate::client::{Client, ConnectionId};
use crate::close_reason::Party;
use crate::connection_log::FailedHandshake;
use crate::io::Io;
use crate::proxy_protocol::HeaderError;
use crate::traffic;
use crate::workspace::Workspace;
use dormouse_engine::{
    CertificateProblem, FailureKind, HandshakeFailure, HandshakeInfo, ResumptionRefused, Version,
    alert_name,
};
use dormouse_routes::route::Route;
use dormouse_tables::counters::{Count, Counters};
use std::fmt;
use std::io;

/// Counts a handshake with a client.
pub(crate) fn count_done(info: &HandshakeInfo, count: &Counters) {
    let (all, of_version) = match (info.resumed, info.protocol) {
        (true, Version::Tls13) => (Count::HandshakesResumed, Count::HandshakesResumed13),
        (true, Version::Tls12) => (Count::HandshakesResumed, Count::HandshakesResumed12),
        (false, Version::Tls13) => (Count::HandshakesFull, Count::HandshakesFull13),
        (false, Version::Tls12) => (Count::HandshakesFull, Count::HandshakesFull12),
    };
    count.add(all, 1);
    count.add(of_version, 1);
    // The first, the third, … flight are the client's.
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

/// Counts a handshake with a server.
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
        // And reasons that the engine may add.
        _ => Count::ResumptionDamaged,
    }
}

/// Counts a failed handshake, in total and by its reason.
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
        // And kinds that the engine may add.
        _ => Count::HandshakesInternal,
    };
    count.add(reason, 1);
}

/// Whether the client was refused because of its certificate.
fn is_refused_client(failure: &HandshakeFailure) -> bool {
    matches!(&failure.kind, FailureKind::Certificate(problem) if *problem != CertificateProblem::Missing)
}

/// The fields of a completed handshake's line that do not come from its [`HandshakeInfo`].
pub(crate) struct DoneFields<'a> {
    pub(crate) route: &'a str,
    pub(crate) peer: &'a dyn fmt::Display,
    /// The connection's id, which the backend also gets.
    pub(crate) id: Option<ConnectionId>,
    pub(crate) took_ms: u64,
}

/// Logs a completed handshake: at INFO with `log_handshakes`, else at DEBUG.
pub(crate) fn log_done(info: &HandshakeInfo, fields: DoneFields<'_>, log_handshakes: bool) {
    let DoneFields {
        route,
        peer,
        id,
        took_ms,
    } = fields;
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
    if log_handshakes {
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

/// Logs a handshake that failed with an alert, for `log_handshakes`. `by` ended it.
pub(crate) fn log_failed(
    failure: &HandshakeFailure,
    by: Party,
    route: Option<&str>,
    peer: &dyn fmt::Display,
    took_ms: u64,
) {
    tracing::info!(
        route,
        peer = %peer,
        by = by.name(),
        alert = failure.alert().map(alert_name),
        blame = %failure.blame,
        error = failure.reason,
        took_ms,
        "handshake failed"
    );
}

/// Logs a handshake that ended without an alert, for `log_handshakes`.
pub(crate) fn log_ended(
    by: Party,
    reason: &str,
    route: Option<&str>,
    peer: &dyn fmt::Display,
    took_ms: u64,
) {
    tracing::info!(route, peer = %peer, by = by.name(), error = reason, took_ms, "handshake failed");
}

/// A handshake with a client, as its log lines describe it.
#[derive(Clone, Copy)]
pub(crate) struct ClientHandshake<'a> {
    pub(crate) client: &'a Client,
    /// The route and its number, if the route was chosen.
    pub(crate) route: Option<(u16, &'a Route)>,
    pub(crate) took_ms: u64,
    /// With `log_handshakes`, every failure has a line.
    pub(crate) log_each: bool,
}

impl ClientHandshake<'_> {
    pub(crate) fn route_name(&self) -> Option<&str> {
        self.route.map(|(_, route)| route.name.as_str())
    }
}

/// Counts and logs a failed handshake with a client.
pub(crate) fn client_failed<I: Io>(
    failure: &HandshakeFailure,
    handshake: ClientHandshake<'_>,
    work: &mut Workspace<I>,
) {
    count_failed(failure, &work.count);
    let number = handshake.route.map(|(number, _)| number);
    traffic::count_handshake_failed(number, &work.traffic);
    let by = match failure.is_by_peer() {
        true => Party::Client,
        false => Party::Dormouse,
    };
    note_failed(handshake, by, &failure.reason, work);
    let (client, route) = (handshake.client, handshake.route_name());
    if handshake.log_each || work.traces.takes(client.ip(), work.now_ms) {
        return log_failed(failure, by, route, client, handshake.took_ms);
    }
    // A refused certificate has its own burst, so that other failures can't hide it.
    let subject = if is_refused_client(failure) {
        Subject::ClientRefused
    } else {
        Subject::HandshakeFailed
    };
    work.bursts
        .note(subject, Place::of_route(number), work.now_ms, |more| {
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

/// Logs a handshake with a client that ended without an alert: a line with `log_handshakes`, and one in the
/// connection log.
pub(crate) fn client_ended<I: Io>(
    by: Party,
    why: &str,
    handshake: ClientHandshake<'_>,
    work: &mut Workspace<I>,
) {
    note_failed(handshake, by, why, work);
    if handshake.log_each || work.traces.takes(handshake.client.ip(), work.now_ms) {
        let (client, route) = (handshake.client, handshake.route_name());
        log_ended(by, why, route, client, handshake.took_ms);
    }
}

/// Counts and logs a handshake with a client that epoll does not watch.
pub(crate) fn client_not_watched<I: Io>(
    error: &io::Error,
    handshake: ClientHandshake<'_>,
    work: &mut Workspace<I>,
) {
    work.count.add(Count::HandshakesFailed, 1);
    work.count.add(Count::HandshakesInternal, 1);
    let number = handshake.route.map(|(number, _)| number);
    traffic::count_handshake_failed(number, &work.traffic);
    let why = format!("socket poll failed: {error}");
    client_ended(Party::Dormouse, &why, handshake, work);
}

/// Logs a connection whose route passes TLS through.
pub(crate) fn passed_through(route: &Route, client: &Client, server_name: Option<&str>) {
    let backend = &route.backend_name;
    let route = route.name.as_str();
    tracing::info!(route, peer = %client, server_name, %backend, "connection passed through");
}

/// Counts and logs an invalid PROXY header.
pub(crate) fn bad_header<I>(peer: &Client, error: HeaderError, work: &mut Workspace<I>) {
    work.count.add(Count::ProxyHeaderRefused, 1);
    work.bursts
        .note(Subject::ProxyHeader, Place::Program, work.now_ms, |more| {
            tracing::warn!(%peer, %error, more, "PROXY header rejected; connection closed");
        });
}

/// Counts and logs a handshake with a client that was not done in time.
pub(crate) fn client_timed_out<I: Io>(handshake: ClientHandshake<'_>, work: &mut Workspace<I>) {
    work.count.add(Count::HandshakesTimedOut, 1);
    let number = handshake.route.map(|(number, _)| number);
    traffic::count_handshake_failed(number, &work.traffic);
    let reason = "not finished within handshake_timeout";
    client_ended(Party::Dormouse, reason, handshake, work);
    let (client, route) = (handshake.client, handshake.route_name());
    let (place, now_ms) = (Place::of_route(number), work.now_ms);
    work.bursts
        .note(Subject::HandshakeTimeout, place, now_ms, |more| {
            tracing::info!(route, peer = %client, more, "handshake timed out; connection closed");
        });
}

/// Writes the line of the connection log.
fn note_failed<I: Io>(
    handshake: ClientHandshake<'_>,
    by: Party,
    error: &str,
    work: &mut Workspace<I>,
) {
    work.note_failed_handshake(&FailedHandshake {
        route: handshake.route_name(),
        client: handshake.client.address(),
        took_ms: handshake.took_ms,
        by,
        error,
    });
}
