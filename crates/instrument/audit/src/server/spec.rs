//! Specification of a server's audit.

use std::time::Duration;

use dormouse_bench::load::{IdentityFiles, Starttls, Traffic, Trust};
use dormouse_measure::ServerSource;

/// The server to audit, and how to audit it.
#[derive(Clone, PartialEq, Debug)]
pub struct ServerSpec {
    /// Address: `127.0.0.1:8443`, `[::1]:8443`, `unix:/path`.
    pub target: String,
    /// All addresses of the server's name if there are several, including the target.
    pub addresses: Vec<String>,
    /// The name as the user gave it, in words of a command line.
    pub named: Option<String>,
    /// The server's name in reports.
    pub label: String,
    /// How the audit gets the server: its process id, or a command that starts it.
    pub source: ServerSource,
    /// How its process was found: `unit` or `container`, and the name.
    pub found_by: Option<(&'static str, String)>,
    /// A command that starts the same server on the same address with more data, to see whether the first connection
    /// becomes slower in proportion.
    pub larger: Option<String>,
    /// The name in the certificate and in the SNI extension.
    pub server_name: String,
    /// Trusted certificates.
    pub trust: Trust,
    /// Client certificate for a server that requests one.
    pub identity: Option<IdentityFiles>,
    /// Protocol of a server that begins in plaintext.
    pub starttls: Option<Starttls>,
    /// Application protocol; `None`: detected.
    pub talk: Option<Traffic>,
    /// Effort of the audit.
    pub effort: Effort,
    /// Number of connections to hold; `None`: depends on the effort. Twice as many are held later, and four times as many
    /// if the server's own pools hide what a connection takes.
    pub connections: Option<u64>,
    /// Options with which `bench` connects as the audit does: trust, server name, application data.
    pub options: Vec<String>,
    /// Whether load on another machine is allowed.
    pub own_server: bool,
    /// Time limit of the audit; `None`: depends on the effort.
    pub time_max: Option<Duration>,
    /// Limit on the server's memory growth in bytes; `None`: half of the available memory.
    pub memory_max_bytes: Option<u64>,
}

impl ServerSpec {
    /// Time limit of the audit.
    pub(super) fn time_max(&self) -> Option<Duration> {
        self.time_max.or(self.effort.time_max())
    }

    pub(super) fn sizes(&self) -> Sizes {
        let sizes = self.effort.sizes();
        // Short timeouts are there for a short time limit. On a busy machine they would be taken for limits of the server.
        let has_time = self.time_max() >= Effort::Normal.time_max();
        Sizes {
            n: self.connections.unwrap_or(sizes.n),
            timeout: if has_time { PATIENCE } else { sizes.timeout },
            ..sizes
        }
    }
}

/// Maximum wait for a connection or an answer.
const PATIENCE: Duration = Duration::from_secs(15);

/// Effort of an audit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effort {
    /// At most 30 seconds.
    Quick,
    /// At most three minutes.
    Normal,
    /// No time limit.
    Thorough,
}

/// Numbers of connections, rounds and bytes, and waiting times, of an effort.
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
    /// Timeout for a connection, a handshake and an answer.
    pub(super) timeout: Duration,
}

impl Effort {
    /// Time limit of an audit with this effort.
    pub(super) fn time_max(self) -> Option<Duration> {
        match self {
            Self::Quick => Some(Duration::from_secs(30)),
            Self::Normal => Some(Duration::from_secs(180)),
            Self::Thorough => None,
        }
    }

    /// Returns the numbers and waiting times of this effort.
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
