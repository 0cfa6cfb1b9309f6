//! On which occasion a configuration is loaded: a start, a check, a reload.

use crate::systemd::InheritedListeners;
use dormouse_config::{self as config, Config, Purpose, Severity};
use std::io;
use std::net::SocketAddr;

/// Looks up the addresses of a host.
pub type LookUp<'a> = &'a dyn Fn(&str, u16) -> io::Result<Vec<SocketAddr>>;

/// What loading depends on besides the source.
pub struct Occasion<'a> {
    /// What the configuration is loaded for.
    pub purpose: Purpose,
    /// Looks up names of backends.
    pub look_up: LookUp<'a>,
    /// The addresses that are listened on already, and may be.
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
                admin: false,
            },
        }
    }
}

/// Addresses that are listened on already, and may be: by this program, by the running instance that
/// a reload will tell, or by systemd for it.
#[derive(Debug, Default)]
pub struct Occupied {
    /// The listeners.
    pub listeners: Vec<String>,
    /// Somebody answers at the admin socket, and may.
    pub admin: bool,
}

impl Occupied {
    /// Nothing is.
    pub fn nothing() -> Occupied {
        Occupied::default()
    }
}

/// Who may lack a privilege now may still look at a configuration for somebody who has it.
pub(crate) fn of_privilege(purpose: Purpose) -> Severity {
    match purpose {
        Purpose::Serve => Severity::Error,
        Purpose::Check => Severity::Warning,
    }
}
