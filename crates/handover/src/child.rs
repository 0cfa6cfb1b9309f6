//! What all processes that main starts have in common: their environment, their confinement, and how
//! soon they are started again.

use crate::trial;
use dormouse_config::{Backend, Config, SYSTEMD_VARIABLES, Sandbox};
use dormouse_reactor::process::Kept;
use dormouse_reactor::sandbox::{self, Role, UnixSockets};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::io;
use std::time::Duration;

/// How glibc's malloc is set in keepers and workers. Only handshakes live in their heap: short
/// bursts of garbage, which is to be given back whole. So there is one arena (one thread works),
/// and no cache of freed blocks which would keep pages from being returned.
const MALLOC: &str = "glibc.malloc.tcache_count=0:glibc.malloc.arena_max=1";

/// The environment of a keeper, and of the workers after it: main's, and how malloc is set unless
/// the user has set it.
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

/// What a keeper and its worker are bound by, for good.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Bounds {
    /// Whether they confine themselves.
    pub sandbox: Sandbox,
    /// The unix sockets that the worker may connect to.
    #[serde(with = "UnixSocketsForm")]
    pub unix: UnixSockets,
}

/// How [`UnixSockets`] are written.
#[derive(Serialize, Deserialize)]
#[serde(remote = "UnixSockets")]
enum UnixSocketsForm {
    No,
    Files,
    Abstract,
}

impl Bounds {
    /// What this configuration asks for.
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

    /// Whether a worker that is bound by `others` could not do what these allow.
    pub fn exceeds(self, others: Bounds) -> bool {
        others.sandbox != Sandbox::Off && self.unix > others.unix
    }

    /// The privileges that are left to these processes: root that stays root needs one for sockets
    /// of others.
    pub fn kept(self) -> Kept {
        match self.unix {
            UnixSockets::No => Kept::Nothing,
            UnixSockets::Files | UnixSockets::Abstract => Kept::FilesOfOthers,
        }
    }
}

/// Confines this process, if that is wanted. What the kernel can't do, main has said.
pub fn confine(role: Role, wanted: Sandbox) -> io::Result<()> {
    let result = match wanted {
        Sandbox::Off => Ok(()),
        Sandbox::Required => sandbox::enter(role),
        Sandbox::On => sandbox::enter(role).or_else(|error| {
            tracing::debug!(%role, %error, "this process is confined in part, or not at all");
            Ok(())
        }),
    };
    trial::try_what_is_forbidden(role);
    result
}

/// The first death costs no time; workers which die again and again are started ever later.
pub fn backoff(streak: u32) -> Option<Duration> {
    let doublings = streak.checked_sub(3)?;
    Some(Duration::from_millis(100 << doublings.min(6)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_deaths_cost_no_time_and_later_ones_ever_more() {
        assert_eq!(backoff(0), None);
        assert_eq!(backoff(1), None);
        assert_eq!(backoff(2), None);
        assert_eq!(backoff(3), Some(Duration::from_millis(100)));
        assert_eq!(backoff(4), Some(Duration::from_millis(200)));
        assert_eq!(
            backoff(9),
            backoff(4_000_000_000),
            "and there is a longest wait"
        );
    }
}
