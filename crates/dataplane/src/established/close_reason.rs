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
    /// A limit of ours: memory, records per key.
    Limit,
    /// Nothing has passed for `idle_timeout`.
    Idle,
    /// It is older than `total_timeout`.
    TooOld,
    /// A record took longer than `partial_record_timeout`.
    PartialRecord,
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
            CloseReason::Limit
            | CloseReason::Idle
            | CloseReason::TooOld
            | CloseReason::PartialRecord => Count::ClosedLimit,
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
            CloseReason::Limit
            | CloseReason::Idle
            | CloseReason::TooOld
            | CloseReason::PartialRecord => Tally::ClosedLimit,
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
            | CloseReason::Idle
            | CloseReason::TooOld
            | CloseReason::PartialRecord
            | CloseReason::Stopping
            | CloseReason::Drained
            | CloseReason::Crash => Subject::Limit,
        }
    }

    /// All of them: a connection's entry in the log has the place of one here.
    const ALL: [CloseReason; 13] = [
        CloseReason::Clean,
        CloseReason::TlsTruncated,
        CloseReason::TlsFailed,
        CloseReason::Refused,
        CloseReason::PlainFailed,
        CloseReason::BackendDown,
        CloseReason::Limit,
        CloseReason::Idle,
        CloseReason::TooOld,
        CloseReason::PartialRecord,
        CloseReason::Stopping,
        CloseReason::Drained,
        CloseReason::Crash,
    ];

    /// Its number in an entry of the connection log, from 1 on.
    pub(crate) fn code(self) -> u8 {
        let place = CloseReason::ALL.iter().position(|&one| one == self);
        place.map_or(0, |place| place as u8 + 1)
    }

    /// The reason of this number.
    pub(crate) fn from_code(code: u8) -> Option<CloseReason> {
        CloseReason::ALL
            .get(usize::from(code).checked_sub(1)?)
            .copied()
    }

    /// How the connection ended, and who ended it, as the connection log says it. `originates`: TLS is
    /// spoken with the backend, and the client is on the plain side.
    pub(crate) fn in_words(
        self,
        originates: bool,
        backend_was_first: bool,
    ) -> (&'static str, &'static str) {
        let (tls, plain) = match originates {
            true => ("backend", "client"),
            false => ("client", "backend"),
        };
        let first = if backend_was_first {
            "backend"
        } else {
            "client"
        };
        match self {
            CloseReason::Clean => ("closed", first),
            CloseReason::TlsTruncated => ("truncated", tls),
            CloseReason::TlsFailed => ("failed", tls),
            CloseReason::Refused => ("protocol_error", tls),
            CloseReason::PlainFailed => ("failed", plain),
            CloseReason::BackendDown => ("backend_down", "backend"),
            CloseReason::Limit => ("limit", "dormouse"),
            CloseReason::Idle => ("idle_timeout", "dormouse"),
            CloseReason::TooOld => ("total_timeout", "dormouse"),
            CloseReason::PartialRecord => ("partial_record_timeout", "dormouse"),
            CloseReason::Stopping => ("stopped", "dormouse"),
            CloseReason::Drained => ("drained", "dormouse"),
            CloseReason::Crash => ("crash", "dormouse"),
        }
    }
}
