//! Reasons for which connections close, with their counters and log values, and the parties that close them.

use crate::bursts::Subject;
use dormouse_handover::slot::Slot;
use dormouse_record::Role;
use dormouse_tables::counters::Count;
use dormouse_tables::traffic::Tally;

/// Reason for which a connection closes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CloseReason {
    /// Both directions ended properly.
    Clean,
    /// The TLS peer's TCP stream ended without close_notify.
    TlsTruncated,
    /// The TLS side's connection failed, or its peer sent a fatal alert.
    TlsFailed,
    /// The TLS peer broke the protocol.
    Refused,
    /// The plain side's connection failed.
    PlainFailed,
    /// No backend could be reached.
    BackendDown,
    /// A limit was reached: memory, or records per key.
    Limit,
    /// The connection was idle for `idle_timeout`.
    Idle,
    /// The connection reached `total_timeout`.
    TooOld,
    /// A record was not complete within `partial_record_timeout`.
    PartialRecord,
    /// Memory was short, and the connection made no progress for `stall_timeout`.
    Stalled,
    /// The gateway stops.
    Stopping,
    /// A drain closed the connection.
    Drained,
    /// An administrator closed the connection.
    ByAdmin,
    /// The previous worker died while it was working on the connection.
    Crash,
}

impl CloseReason {
    /// The counters of connections that closed for this reason: the worker's, and those by route and backend.
    pub(crate) fn counts(self) -> (Count, Tally) {
        match self {
            CloseReason::Clean => (Count::ClosedClean, Tally::ClosedClean),
            CloseReason::TlsTruncated => (Count::ClosedTlsTruncated, Tally::ClosedTlsTruncated),
            CloseReason::TlsFailed => (Count::ClosedTlsFailed, Tally::ClosedTlsFailed),
            CloseReason::Refused => (Count::ClosedRefused, Tally::ClosedRefused),
            CloseReason::PlainFailed => (Count::ClosedPlainFailed, Tally::ClosedPlainFailed),
            CloseReason::BackendDown => (Count::ClosedBackendDown, Tally::ClosedBackendDown),
            CloseReason::Limit
            | CloseReason::Idle
            | CloseReason::TooOld
            | CloseReason::PartialRecord
            | CloseReason::Stalled => (Count::ClosedLimit, Tally::ClosedLimit),
            CloseReason::Stopping => (Count::ClosedStopping, Tally::ClosedStopping),
            CloseReason::Drained => (Count::ClosedDrained, Tally::ClosedDrained),
            CloseReason::ByAdmin => (Count::ClosedByAdmin, Tally::ClosedByAdmin),
            CloseReason::Crash => (Count::ClosedByCrash, Tally::ClosedByCrash),
        }
    }

    /// The subject of this reason's log line.
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
            | CloseReason::Stalled
            | CloseReason::Stopping
            | CloseReason::Drained
            | CloseReason::ByAdmin
            | CloseReason::Crash => Subject::Limit,
        }
    }

    /// All reasons. A log entry stores a reason's position here, so the order must not change.
    const ALL: [CloseReason; 15] = [
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
        CloseReason::Stalled,
        CloseReason::ByAdmin,
    ];

    /// The reason's code in an entry of the connection log, from 1 on.
    pub(crate) fn code(self) -> u8 {
        let place = CloseReason::ALL.iter().position(|&one| one == self);
        place.map_or(0, |place| place as u8 + 1)
    }

    /// The reason with this code.
    pub(crate) fn from_code(code: u8) -> Option<CloseReason> {
        CloseReason::ALL
            .get(usize::from(code).checked_sub(1)?)
            .copied()
    }

    /// The fields `end` and `by` of the connection log: how the connection ended, and the party that ended it. `first`
    /// ended its direction first.
    pub(crate) fn end_and_by(self, sides: Sides, first: Party) -> (&'static str, Party) {
        let Sides { tls, plain } = sides;
        match self {
            CloseReason::Clean => ("closed", first),
            CloseReason::TlsTruncated => ("truncated", tls),
            CloseReason::TlsFailed => ("failed", tls),
            CloseReason::Refused => ("protocol_error", tls),
            CloseReason::PlainFailed => ("failed", plain),
            CloseReason::BackendDown => ("backend_down", Party::Backend),
            CloseReason::Limit => ("limit", Party::Dormouse),
            CloseReason::Idle => ("idle_timeout", Party::Dormouse),
            CloseReason::TooOld => ("total_timeout", Party::Dormouse),
            CloseReason::PartialRecord => ("partial_record_timeout", Party::Dormouse),
            CloseReason::Stalled => ("stall_timeout", Party::Dormouse),
            CloseReason::Stopping => ("stopped", Party::Dormouse),
            CloseReason::Drained => ("drained", Party::Dormouse),
            CloseReason::ByAdmin => ("closed_by_admin", Party::Dormouse),
            CloseReason::Crash => ("crash", Party::Dormouse),
        }
    }
}

/// A party to a connection. Entries of the connection log have its number, which must not change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Party {
    Client = 1,
    Backend = 2,
    Dormouse = 3,
}

impl Party {
    /// The party's name in logs.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Party::Client => "client",
            Party::Backend => "backend",
            Party::Dormouse => "dormouse",
        }
    }
}

/// The parties at the two sides of a connection.
#[derive(Clone, Copy)]
pub(crate) struct Sides {
    pub(crate) tls: Party,
    pub(crate) plain: Party,
}

impl Sides {
    pub(crate) fn of(slot: &Slot) -> Sides {
        let (tls, plain) = match slot.tls.role() {
            Role::Client => (Party::Backend, Party::Client),
            Role::Server => (Party::Client, Party::Backend),
        };
        Sides { tls, plain }
    }
}
