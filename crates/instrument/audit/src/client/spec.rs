//! Specification of a client's audit.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// The client to audit, and how to audit it.
#[derive(Clone, PartialEq, Debug)]
pub struct ClientSpec {
    /// The client's name in reports.
    pub label: String,
    /// The client's command: program and arguments, with `{url}`, `{address}`, `{port}` and `{ca}` as placeholders.
    /// Empty: the user starts clients by other means.
    pub command: Vec<String>,
    /// Address to listen on.
    pub listen: SocketAddr,
    /// Plaintext server to which the client's data is forwarded. `None`: every request gets a short text as its
    /// answer.
    pub relay: Option<SocketAddr>,
    /// Time limit of the audit; without a command only this limit ends it.
    pub limit: Duration,
    /// File for the authority's certificate; `None`: a file in a directory for this run.
    pub ca_file: Option<PathBuf>,
}
