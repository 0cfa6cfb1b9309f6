//! Specification of a server's audit.

use std::time::Duration;

use dormouse_bench::load::{IdentityFiles, Traffic, Trust};
use dormouse_measure::ServerSource;

/// Server to audit, and how.
#[derive(Clone, PartialEq, Debug)]
pub struct ServerSpec {
    /// Address: `127.0.0.1:8443`, `[::1]:8443`, `unix:/path`.
    pub target: String,
    /// All addresses of the server's name, where it has several; the target is among them.
    pub addresses: Vec<String>,
    /// The name as the user gave it: words of a command line.
    pub named: Option<String>,
    /// The server's name in reports.
    pub label: String,
    /// Where the server comes from.
    pub source: ServerSource,
    /// By what its process was found: `unit` or `container`, and the name.
    pub found_by: Option<(&'static str, String)>,
    /// A command that starts the same server on the same address holding more, to see whether the
    /// first connection takes time in proportion.
    pub larger: Option<String>,
    /// The name in the certificate and the SNI.
    pub server_name: String,
    /// Certificates that are trusted.
    pub trust: Trust,
    /// Certificate for a server that asks for one.
    pub identity: Option<IdentityFiles>,
    /// Application data; `None`: detected.
    pub talk: Option<Traffic>,
    /// The effort.
    pub effort: Effort,
    /// Connections to hold; `None`: by the effort. Twice as many are held at most.
    pub connections: Option<u64>,
    /// Options by which `bench` reaches it as the audit does: trust, name, what is said.
    pub options: Vec<String>,
    /// Whether load on another machine is allowed.
    pub own_server: bool,
    /// Longest time that the audit may take; `None`: by the effort.
    pub time_max: Option<Duration>,
    /// Most bytes by which the server may grow; `None`: half of the memory that is available.
    pub memory_max_bytes: Option<u64>,
}

impl ServerSpec {
    pub(super) fn sizes(&self) -> Sizes {
        let sizes = self.effort.sizes();
        Sizes {
            n: self.connections.unwrap_or(sizes.n),
            ..sizes
        }
    }
}

/// How long a server may take for a connection or an answer.
const PATIENCE: Duration = Duration::from_secs(15);

/// Effort of an audit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effort {
    /// At most 30 seconds.
    Quick,
    /// At most three minutes.
    Normal,
    /// As long as it takes to be sure.
    Thorough,
}

/// Numbers of connections, rounds and bytes, and waits, of an effort.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    pub(super) n: u64,
    pub(super) rounds: u32,
    pub(super) per_round: u64,
    pub(super) lanes: u32,
    pub(super) tries: usize,
    pub(super) resumed: u64,
    pub(super) quiet: Duration,
    pub(super) settle: Duration,
    pub(super) after: Duration,
    pub(super) bulk_bytes: u64,
    /// For a connection, a handshake and an answer.
    pub(super) timeout: Duration,
}

impl Effort {
    /// Longest time of an audit with this effort.
    pub(super) fn time_max(self) -> Option<Duration> {
        match self {
            Self::Quick => Some(Duration::from_secs(30)),
            Self::Normal => Some(Duration::from_secs(180)),
            Self::Thorough => None,
        }
    }

    /// The numbers of this effort.
    pub(super) fn sizes(self) -> Sizes {
        let s = Duration::from_secs;
        match self {
            Self::Quick => Sizes {
                n: 250,
                rounds: 5,
                per_round: 250,
                lanes: 16,
                tries: 16,
                resumed: 200,
                quiet: s(1),
                settle: Duration::from_millis(250),
                after: Duration::from_millis(500),
                bulk_bytes: 2_000_000,
                timeout: s(5),
            },
            Self::Normal => Sizes {
                n: 2000,
                rounds: 5,
                per_round: 3000,
                lanes: 50,
                tries: 40,
                resumed: 1500,
                quiet: s(10),
                settle: s(1),
                after: s(5),
                bulk_bytes: 32_000_000,
                timeout: PATIENCE,
            },
            Self::Thorough => Sizes {
                n: 4700,
                rounds: 6,
                per_round: 20_000,
                lanes: 500,
                tries: 200,
                resumed: 10_000,
                quiet: s(60),
                settle: s(2),
                after: s(30),
                bulk_bytes: 128_000_000,
                timeout: PATIENCE,
            },
        }
    }
}
