//! Reasons for which accepting pauses.

use dormouse_reactor::socket::Shortage;
use dormouse_tables::counters::Count;
use std::fmt;
use std::io;

/// Reason for which accepting pauses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Pause {
    /// All slots, or all descriptors for connections, are in use.
    Full,
    /// All places of connections with sockets are taken (`max_awake`).
    Awake,
    /// `max_handshakes` connections to servers are in progress.
    Handshakes,
    /// No descriptors are left: EMFILE.
    Descriptors,
    /// The machine has as many open files as it allows: ENFILE.
    Files,
    /// No local ports are left: EADDRNOTAVAIL while connecting to a backend.
    Ports,
    /// The kernel has no memory for another connection: ENOMEM or ENOBUFS while accepting.
    Memory,
    /// The user has as many epoll watches as the machine allows: ENOSPC.
    Watches,
    /// The kernel does not accept, for a reason that is no shortage.
    Refused(io::ErrorKind),
}

impl Pause {
    /// Returns the pause that follows from this shortage. A backend's full queue and a lack of kernel
    /// memory are no reason to accept less.
    pub(crate) fn for_shortage(shortage: Shortage) -> Option<Pause> {
        match shortage {
            Shortage::Descriptors => Some(Pause::Descriptors),
            Shortage::Files => Some(Pause::Files),
            Shortage::Ports => Some(Pause::Ports),
            Shortage::Watches => Some(Pause::Watches),
            Shortage::Memory | Shortage::Queue => None,
        }
    }

    /// Returns the pause that follows from an error of accept, or of the first poll of an accepted connection.
    pub(crate) fn after_accept(error: &io::Error) -> Pause {
        match Shortage::of(error) {
            Some(Shortage::Descriptors) => Pause::Descriptors,
            Some(Shortage::Files) => Pause::Files,
            Some(Shortage::Memory) => Pause::Memory,
            Some(Shortage::Watches) => Pause::Watches,
            _ => Pause::Refused(error.kind()),
        }
    }

    /// The counter of pauses for this reason.
    pub(crate) fn count(self) -> Count {
        match self {
            Pause::Full => Count::PausedFull,
            Pause::Awake => Count::PausedAwake,
            Pause::Handshakes => Count::PausedHandshakes,
            Pause::Descriptors | Pause::Files => Count::PausedDescriptors,
            Pause::Ports => Count::PausedPorts,
            Pause::Memory | Pause::Watches => Count::PausedMemory,
            Pause::Refused(_) => Count::PausedRefused,
        }
    }
}

impl fmt::Display for Pause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Pause::Full => "all connection slots are in use (max_connections or descriptor limit)",
            Pause::Awake => {
                "as many connections are awake as may be, and too few are quiet (max_awake)"
            }
            Pause::Handshakes => "max_handshakes connections to servers are in progress",
            Pause::Descriptors => "no file descriptors left (raise `ulimit -n`)",
            Pause::Files => "the machine allows no more open files (raise fs.file-max)",
            Pause::Ports => {
                "no local ports left for connections to the backend \
                 (widen net.ipv4.ip_local_port_range, or use a unix socket)"
            }
            Pause::Memory => {
                "the kernel has no memory for another connection (add memory, or lower max_connections)"
            }
            Pause::Watches => {
                "the kernel watches no more sockets for this user (raise fs.epoll.max_user_watches)"
            }
            Pause::Refused(kind) => {
                return write!(
                    f,
                    "the kernel refuses to accept connections: {kind} (a security module may forbid it)"
                );
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// EMFILE, ENFILE, ENOMEM, ENOBUFS, ENOSPC, EPERM.
    #[test]
    fn the_reason_of_a_failed_accept_is_told() {
        for (errno, counted, says) in [
            (24, Count::PausedDescriptors, "no file descriptors left"),
            (23, Count::PausedDescriptors, "fs.file-max"),
            (12, Count::PausedMemory, "no memory"),
            (105, Count::PausedMemory, "no memory"),
            (28, Count::PausedMemory, "fs.epoll.max_user_watches"),
            (1, Count::PausedRefused, "permission denied"),
        ] {
            let pause = Pause::after_accept(&io::Error::from_raw_os_error(errno));
            assert_eq!(pause.count() as usize, counted as usize);
            assert!(pause.to_string().contains(says), "{errno}: {pause}");
        }
    }
}
