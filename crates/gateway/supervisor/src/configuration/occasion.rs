//! The circumstances in which a configuration is loaded: a start, a check, a reload.

use crate::sockets::systemd::InheritedListeners;
use dormouse_config::{self as config, Admin, Config, MetricsAddress, Severity};
use std::io;
use std::net::SocketAddr;

/// Resolves a host name.
pub type LookUp<'a> = &'a dyn Fn(&str, u16) -> io::Result<Vec<SocketAddr>>;

/// What a configuration is loaded for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// To run it in this process: a privilege that this process lacks is an error.
    Serve,
    /// To examine it, perhaps with fewer privileges than the process that will run it: a missing
    /// privilege is a warning.
    Check,
}

/// Everything that loading depends on besides the source.
pub struct Occasion<'a> {
    /// The purpose of loading.
    pub purpose: Purpose,
    /// Resolves names of backends.
    pub look_up: LookUp<'a>,
    /// Addresses that are in use, and may be.
    pub occupied: &'a dyn Fn(&Config) -> Occupied,
}

impl Occasion<'static> {
    /// The start of the program.
    pub fn start() -> Occasion<'static> {
        Occasion {
            purpose: Purpose::Serve,
            look_up: &config::look_up,
            occupied: &|_| Occupied {
                listeners: InheritedListeners::from_environment().addresses(),
                ..Occupied::default()
            },
        }
    }
}

/// Addresses that are in use, and may be: by this program, by the running instance that will get the
/// reload, or by systemd for this program.
#[derive(Debug, Default)]
pub struct Occupied {
    /// The listeners.
    pub listeners: Vec<String>,
    /// The metrics address.
    pub metrics: Option<MetricsAddress>,
    /// The admin address.
    pub admin: Option<Admin>,
}

/// Severity of a missing privilege: a warning for `check`, because the user who serves may have it.
pub(crate) fn of_privilege(purpose: Purpose) -> Severity {
    match purpose {
        Purpose::Serve => Severity::Error,
        Purpose::Check => Severity::Warning,
    }
}
