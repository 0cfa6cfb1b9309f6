//! Settings of a terminator, and how it is started.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use crate::certificates::{Files, Kind, authority};

/// Target of the plaintext.
#[derive(Clone, Debug)]
pub enum Target {
    /// A TCP address.
    Tcp(SocketAddr),
    /// A unix socket.
    Unix(PathBuf),
    /// Back to the client, by the terminator itself. Only dormouse can do this.
    Echo,
}

/// Settings of a terminator.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The address to listen on.
    pub listen: SocketAddr,
    /// Further addresses. Only for dormouse.
    pub also_listen: Vec<SocketAddr>,
    /// Target of the plaintext.
    pub target: Target,
    /// Its certificate.
    pub certificate: Files,
    /// Protocols for ALPN.
    pub alpn: Vec<&'static str>,
    /// Number of workers.
    pub workers: u32,
    /// Whether a FIN without close_notify ends the backend's side cleanly.
    pub truncation_closes: bool,
    /// Options of dormouse's file, in the route or at the top. The others support some of them.
    pub options: Vec<(&'static str, String)>,
    /// A command prefix, such as `prlimit` with its arguments.
    pub wrapper: Vec<String>,
    /// One that needs what the namespace hides, such as cgroups, and so runs outside of it.
    pub outer: Vec<String>,
    /// The network namespace it runs in.
    pub namespace: Option<String>,
}

impl Settings {
    /// The default settings: P-256, one worker.
    pub fn new(listen: SocketAddr, target: Target) -> Self {
        Self {
            listen,
            also_listen: Vec::new(),
            target,
            certificate: authority().certificate(Kind::EcdsaP256).clone(),
            alpn: Vec::new(),
            workers: 1,
            truncation_closes: false,
            options: Vec::new(),
            wrapper: Vec::new(),
            outer: Vec::new(),
            namespace: None,
        }
    }

    /// Sets an option of dormouse's file. `value` is written as in the file, but without quotes.
    pub fn option(&mut self, name: &'static str, value: &str) -> &mut Self {
        let bare = value.parse::<u32>().is_ok() || value == "true" || value == "false";
        let value = if bare {
            value.to_owned()
        } else {
            format!("\"{value}\"")
        };
        self.options.push((name, value));
        self
    }

    /// Starts dormouse with this value of `DORMOUSE_TRIAL`, by which a debug build tries a fault.
    pub fn trial(&mut self, trial: &str) {
        self.wrapper = vec!["env".to_owned(), format!("DORMOUSE_TRIAL={trial}")];
    }

    /// The value of an option, without quotes.
    pub(super) fn value(&self, name: &str) -> Option<&str> {
        let found = self.options.iter().find(|(option, _)| *option == name);
        found.map(|(_, value)| value.trim_matches('"'))
    }
}

/// How to start a terminator, and how to detect that it is ready.
pub struct Launch {
    /// The command and its arguments.
    pub command: Vec<String>,
    /// The line that reports readiness. `None`: wait until connecting succeeds.
    pub ready_line: Option<&'static str>,
}

/// Writes a configuration file and returns its path.
pub(super) fn write(folder: &Path, name: &str, text: &str) -> String {
    let file = folder.join(name);
    std::fs::write(&file, text)
        .unwrap_or_else(|error| panic!("cannot write {}: {error}", file.display()));
    file.to_string_lossy().into_owned()
}
