//! Why connections close, and how that is counted and logged.

use crate::bursts::Subject;
use dormouse_tables::counters::Count;
use dormouse_tables::traffic::Tally;

/// Why a connection is over, and on whose side that lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CloseReason {
    /// Both directions ended in order.
    Clean,
    /// The TLS peer's TCP stream ended without close_notify.
    TlsTruncated,
    /// The TLS side's connection failed, or its peer sent a fatal alert.
    TlsFailed,
    /// We refused what the TLS peer sent.
    Refused,
    /// The plain side's connection failed.
    PlainFailed,
    /// No backend could be reached.
    BackendDown,
    /// A limit of ours: time, memory, records per key.
    Limit,
    /// The gateway is stopping.
    Stopping,
    /// A drain closed it.
    Drained,
    /// The worker before this one died while it worked on it.
    Crash,
}

impl CloseReason {
    /// The counter of connections that closed for this reason.
    pub(crate) fn count(self) -> Count {
        match self {
            CloseReason::Clean => Count::ClosedClean,
            CloseReason::TlsTruncated => Count::ClosedTlsTruncated,
            CloseReason::TlsFailed => Count::ClosedTlsFailed,
            CloseReason::Refused => Count::ClosedRefused,
            CloseReason::PlainFailed => Count::ClosedPlainFailed,
            CloseReason::BackendDown => Count::ClosedBackendDown,
            CloseReason::Limit => Count::ClosedLimit,
            CloseReason::Stopping => Count::ClosedStopping,
            CloseReason::Drained => Count::ClosedDrained,
            CloseReason::Crash => Count::ClosedByCrash,
        }
    }

    /// The tally of a route's and a backend's connections that closed for this reason.
    pub(crate) fn tally(self) -> Tally {
        match self {
            CloseReason::Clean => Tally::ClosedClean,
            CloseReason::TlsTruncated => Tally::ClosedTlsTruncated,
            CloseReason::TlsFailed => Tally::ClosedTlsFailed,
            CloseReason::Refused => Tally::ClosedRefused,
            CloseReason::PlainFailed => Tally::ClosedPlainFailed,
            CloseReason::BackendDown => Tally::ClosedBackendDown,
            CloseReason::Limit => Tally::ClosedLimit,
            CloseReason::Stopping => Tally::ClosedStopping,
            CloseReason::Drained => Tally::ClosedDrained,
            CloseReason::Crash => Tally::ClosedByCrash,
        }
    }

    /// The subject of the log line.
    pub(crate) fn subject(self) -> Subject {
        match self {
            CloseReason::TlsTruncated => Subject::Truncated,
            CloseReason::TlsFailed => Subject::TlsFailed,
            CloseReason::Refused => Subject::Refused,
            CloseReason::PlainFailed => Subject::PlainFailed,
            CloseReason::BackendDown => Subject::BackendDown,
            CloseReason::Clean
            | CloseReason::Limit
            | CloseReason::Stopping
            | CloseReason::Drained
            | CloseReason::Crash => Subject::Limit,
        }
    }
}
