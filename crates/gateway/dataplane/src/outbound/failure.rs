//! Reasons for which an attempt failed.

use crate::bursts::{Place, Subject};
use crate::context::WorkerContext;
use crate::io::Io;
use dormouse_engine::HandshakeFailure;
use dormouse_tables::counters::Count;
use std::fmt;

/// Reason for which an attempt failed.
pub(crate) enum Failure {
    /// The handshake failed.
    Handshake(HandshakeFailure),
    /// The connection failed, or could not be established.
    Connection(String),
    /// A timeout was reached.
    Time(&'static str),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Handshake(failure) => failure.fmt(f),
            Failure::Connection(reason) => f.write_str(reason),
            Failure::Time(reason) => f.write_str(reason),
        }
    }
}

/// Logs that an origination has no address to connect to, because its names have not resolved.
pub(crate) fn note_unresolved<I: Io>(route: u16, cx: &mut WorkerContext<I>) {
    let Some(name) = cx
        .settings
        .route(route)
        .and_then(|route| route.origin()?.unresolved())
    else {
        return;
    };
    cx.work.count.add(Count::ConnectAttemptsFailed, 1);
    let (place, now_ms) = (Place::Route(route), cx.work.now_ms);
    let shown = cx.settings.route(route).map(|route| route.name.as_str());
    let bursts = &mut cx.work.bursts;
    bursts.note(Subject::BackendDown, place, now_ms, |more| {
        tracing::warn!(
            route = shown,
            name,
            more,
            "server name has not resolved yet"
        );
    });
}
