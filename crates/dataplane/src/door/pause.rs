//! Reasons for which accepting pauses.

use dormouse_reactor::socket::Shortage;
use dormouse_tables::counters::Count;

/// Reason for which accepting pauses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Pause {
    /// All slots, or all descriptors for connections, are in use.
    Full,
    /// `max_handshakes` connections to servers are in progress.
    Handshakes,
    /// No descriptors are left: EMFILE or ENFILE.
    Descriptors,
    /// No local ports are left: EADDRNOTAVAIL while connecting to a backend.
    Ports,
}

impl Pause {
    /// Returns the pause that follows from this shortage. A backend's full queue and a lack of kernel
    /// memory are no reason to accept less.
    pub(crate) fn for_shortage(shortage: Shortage) -> Option<Pause> {
        match shortage {
            Shortage::Descriptors => Some(Pause::Descriptors),
            Shortage::Ports => Some(Pause::Ports),
            Shortage::Memory | Shortage::Queue => None,
        }
    }

    /// The counter of pauses for this reason.
    pub(crate) fn count(self) -> Count {
        match self {
            Pause::Full => Count::PausedFull,
            Pause::Handshakes => Count::PausedHandshakes,
            Pause::Descriptors => Count::PausedDescriptors,
            Pause::Ports => Count::PausedPorts,
        }
    }

    /// The reason as the log states it.
    pub(crate) fn reason(self) -> &'static str {
        match self {
            Pause::Full => "all connection slots are in use (max_connections or descriptor limit)",
            Pause::Handshakes => "max_handshakes connections to servers are in progress",
            Pause::Descriptors => "no file descriptors left (raise `ulimit -n`)",
            Pause::Ports => {
                "no local ports left for connections to the backend \
                 (widen net.ipv4.ip_local_port_range, or use a unix socket)"
            }
        }
    }
}
