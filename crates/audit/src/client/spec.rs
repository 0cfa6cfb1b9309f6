//! Specification of a client's audit.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Client to audit, and how.
#[derive(Clone, PartialEq, Debug)]
pub struct ClientSpec {
    /// The client's name in reports.
    pub label: String,
    /// Its command: program and arguments, in which `{url}`, `{address}`, `{port}` and `{ca}` are
    /// replaced. Empty: clients are started by other means.
    pub command: Vec<String>,
    /// Where to listen.
    pub listen: SocketAddr,
    /// A plain server behind: what the client says goes there. `None`: every request is answered
    /// with a short text.
    pub relay: Option<SocketAddr>,
    /// The end of the audit; without a command it is the only one.
    pub limit: Duration,
    /// Where the authority's certificate is written; `None`: into a directory for the run.
    pub ca_file: Option<PathBuf>,
}
