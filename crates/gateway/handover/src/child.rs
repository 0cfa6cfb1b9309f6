//! Properties of all processes that main starts: environment, confinement, and delay before a restart.

use crate::trial;
use dormouse_config::{Backend, Config, SYSTEMD_VARIABLES, Sandbox};
use dormouse_reactor::process::KeptPrivileges;
use dormouse_reactor::sandbox::{self, Role, UnixSockets};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::io;
use std::time::Duration;

/// Settings of glibc's malloc in keepers and workers. Their heap holds only handshakes: short bursts,
/// after which all memory should be returned. So there is one arena (for the one working thread), and its
/// cache of freed blocks, which keeps pages from being returned, is small: four blocks of each size up to
/// 512 bytes save a twentieth of a handshake's user time and cost no measurable memory.
const MALLOC: &str =
    "glibc.malloc.tcache_count=4:glibc.malloc.tcache_max=512:glibc.malloc.arena_max=1";

/// The environment of keepers and workers: main's, plus the malloc settings unless the user has set
/// them.
pub fn environment() -> Vec<(OsString, OsString)> {
    let is_for_main = |name: &OsString| SYSTEMD_VARIABLES.iter().any(|variable| name == variable);
    let mut environment: Vec<_> = std::env::vars_os()
        .filter(|(name, _)| !is_for_main(name))
        .collect();
    if !environment.iter().any(|(name, _)| name == "GLIBC_TUNABLES") {
        environment.push(("GLIBC_TUNABLES".into(), MALLOC.into()));
    }
    environment
}

/// Confinement of a keeper and its workers, which never changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Bounds {
    /// Whether they confine themselves.
    pub sandbox: Sandbox,
    /// The unix sockets that the worker may connect to.
    #[serde(with = "UnixSocketsForm")]
    pub unix: UnixSockets,
}

/// Serialized form of [`UnixSockets`].
#[derive(Serialize, Deserialize)]
#[serde(remote = "UnixSockets")]
enum UnixSocketsForm {
    No,
    Files,
    Abstract,
}

impl Bounds {
    /// The confinement for this configuration.
    pub fn of(config: &Config) -> Bounds {
        let routes = config.routes.iter().flat_map(|route| &route.to);
        let of_backend = |backend: &Backend| match backend {
            Backend::Unix(path) if path.as_os_str().as_encoded_bytes().starts_with(b"@") => {
                UnixSockets::Abstract
            }
            Backend::Unix(_) => UnixSockets::Files,
            Backend::Tcp { .. } | Backend::Echo => UnixSockets::No,
        };
        let unix = routes.map(|to| of_backend(&to.backend)).max();
        Bounds {
            sandbox: config.process.sandbox,
            unix: unix.unwrap_or(UnixSockets::No),
        }
    }

    /// Whether these bounds allow something that a worker confined by `others` could not do.
    pub fn exceeds(self, others: Bounds) -> bool {
        others.sandbox != Sandbox::Off && self.unix > others.unix
    }

    /// Privileges that these processes keep: a worker that stays root needs one to connect to unix
    /// sockets of other users.
    pub fn kept(self) -> KeptPrivileges {
        match self.unix {
            UnixSockets::No => KeptPrivileges::Nothing,
            UnixSockets::Files | UnixSockets::Abstract => KeptPrivileges::FilesOfOthers,
        }
    }
}

/// Confines this process according to `mode`. Main has already warned about missing kernel features.
pub fn confine(role: Role, mode: Sandbox) -> io::Result<()> {
    trial::hold_descriptor(role);
    let result = match mode {
        Sandbox::Off => Ok(()),
        Sandbox::Required => sandbox::enter(role),
        Sandbox::On => sandbox::enter(role).or_else(|error| {
            tracing::debug!(%role, %error, "sandbox incomplete");
            Ok(())
        }),
    };
    trial::try_forbidden_operations(role);
    result
}

/// The delay before a restart: none at first; a worker that keeps dying is restarted at growing
/// intervals.
pub fn backoff(streak: u32) -> Option<Duration> {
    let doublings = streak.checked_sub(3)?;
    Some(Duration::from_millis(100 << doublings.min(6)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_grow_with_repeated_deaths() {
        assert_eq!(backoff(0), None);
        assert_eq!(backoff(1), None);
        assert_eq!(backoff(2), None);
        assert_eq!(backoff(3), Some(Duration::from_millis(100)));
        assert_eq!(backoff(4), Some(Duration::from_millis(200)));
        assert_eq!(
            backoff(9),
            backoff(4_000_000_000),
            "the delay has a maximum"
        );
    }
}
