//! The TLS terminator of a scene: dormouse, or another one in its place.

mod haproxy;
mod nginx;
mod ours;
mod settings;

use std::fmt;
use std::path::Path;

use crate::namespace;

pub use settings::{Launch, Settings, Target};

/// A terminator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Terminator {
    /// `dormouse serve`.
    Dormouse,
    /// nginx with its stream module.
    NginxStream,
    /// HAProxy in TCP mode.
    Haproxy,
}

/// An ability of a terminator, beyond what all of them have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Can {
    /// It closes connections with close_notify.
    EndCleanly,
    /// A client that has closed its sending direction still receives.
    HalfCloseByClient,
    /// A backend that has closed its sending direction still receives.
    HalfCloseByBackend,
    /// A TCP end without close_notify becomes a reset at the backend.
    ReportTruncation,
    /// A reset by the backend is not a clean end for the client.
    ReportReset,
    /// The group X25519MLKEM768.
    PostQuantum,
    /// A stopped reader holds up the other end after a few hundred kilobytes.
    BoundBuffers,
    /// A full worker leaves connections to the others, or in the queue.
    QueueWhenFull,
    /// A backend that cannot be reached is not a clean end for the client.
    ReportBackendDown,
    /// Peers that vanish silently are detected.
    FindVanished,
    /// Dead workers are replaced, and all exit with the main process.
    ReplaceWorkers,
    /// Everything specific to `dormouse serve`: its options, log lines, processes.
    BeDormouse,
}

impl Terminator {
    /// The terminator of this test run: `DORMOUSE_INTEROP`, by default dormouse.
    ///
    /// # Panics
    /// When the variable names something else.
    pub fn chosen() -> Self {
        match std::env::var("DORMOUSE_INTEROP").as_deref() {
            Err(_) | Ok("" | "dormouse") => Self::Dormouse,
            Ok("nginx") => Self::NginxStream,
            Ok("haproxy") => Self::Haproxy,
            Ok(other) => panic!("DORMOUSE_INTEROP={other}: use dormouse, nginx or haproxy"),
        }
    }

    /// Whether it has this ability, as observed with Debian 12's packages. `DORMOUSE_INTEROP_STRICT=1`
    /// requires every ability of every terminator, which proves that the tests can fail.
    pub fn can(self, what: Can) -> bool {
        let strict = std::env::var_os("DORMOUSE_INTEROP_STRICT").is_some_and(|value| value == "1");
        match self {
            _ if strict && what != Can::BeDormouse => true,
            Self::Dormouse => true,
            Self::NginxStream => matches!(what, Can::ReplaceWorkers),
            Self::Haproxy => matches!(
                what,
                Can::EndCleanly
                    | Can::HalfCloseByClient
                    | Can::HalfCloseByBackend
                    | Can::QueueWhenFull
                    | Can::FindVanished
            ),
        }
    }
}

impl fmt::Display for Terminator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Dormouse => "dormouse",
            Self::NginxStream => "nginx",
            Self::Haproxy => "haproxy",
        })
    }
}

impl Terminator {
    /// Writes the configuration into `folder`.
    pub fn prepare(self, settings: &Settings, folder: &Path) -> Launch {
        let mut launch = match self {
            Self::Dormouse => ours::prepare(settings, folder),
            Self::NginxStream => nginx::prepare(settings, folder),
            Self::Haproxy => haproxy::prepare(settings, folder),
        };
        let namespace = settings.namespace.as_deref().map(namespace::entering);
        let inside = namespace.iter().flatten().chain(&settings.wrapper);
        let before = settings.outer.iter().chain(inside);
        launch.command.splice(0..0, before.cloned());
        launch
    }
}
