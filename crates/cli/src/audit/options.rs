//! The options of `audit`, and the audit they describe.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use dormouse_audit::{ClientSpec, Effort, ServerSpec, Severity, Thresholds, process_lookup, shell};
use dormouse_bench::load::Traffic;
use dormouse_measure::{Error, ServerSource};

use crate::bench::options::peer::{ExpectArg, PeerArgs};
use crate::bench::options::values::{bytes, count, duration, escaped, resolve_all, unescape};

/// Where results go, and what is a failure.
#[derive(Args, Debug, Clone)]
pub(super) struct Output {
    /// Also write the audit as one JSON object to FILE; `-`: to standard output, without the text
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    pub(super) json: Option<PathBuf>,
    /// Also write the audit as one self-contained HTML page to FILE
    #[arg(long, value_name = "FILE")]
    pub(super) html: Option<PathBuf>,
    /// Exit with status 1 if a finding has this severity or a higher one
    #[arg(long, value_enum, default_value = "medium", value_name = "SEVERITY")]
    fail_on: FailOn,
    /// Exit with status 1 if fewer connections than this percentage resume
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(0..=100))]
    min_resumed: Option<u8>,
    /// Name in reports
    #[arg(long)]
    label: Option<String>,
    /// Do not show progress
    #[arg(short, long)]
    pub(super) quiet: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum FailOn {
    Info,
    Low,
    Medium,
    High,
    /// No finding is a failure
    Never,
}

impl Output {
    fn thresholds(&self, max_bytes_per_connection: Option<u64>) -> Thresholds {
        Thresholds {
            fail_on: match self.fail_on {
                FailOn::Info => Some(Severity::Info),
                FailOn::Low => Some(Severity::Low),
                FailOn::Medium => Some(Severity::Medium),
                FailOn::High => Some(Severity::High),
                FailOn::Never => None,
            },
            max_bytes_per_connection: max_bytes_per_connection.map(|bytes| bytes as f64),
            min_resumed: self.min_resumed.map(|percent| f64::from(percent) / 100.0),
        }
    }
}

#[derive(Args, Debug)]
pub(super) struct ServerArgs {
    /// Server: `127.0.0.1:8443`, `[::1]:8443`, `localhost:8443` or `unix:/path`
    #[arg(value_name = "ADDR")]
    target: String,
    /// Addresses of the name in ADDR, in place of the resolver's: NAME:PORT:ADDR[,ADDR…]
    #[arg(long, value_name = "ADDRESSES")]
    resolve: Vec<String>,
    /// Process of the server; its descendants are measured too
    #[arg(long, conflicts_with_all = ["cmd", "unit", "container"])]
    pid: Option<i32>,
    /// Systemd unit of the server, whose main process is used as --pid
    #[arg(long, value_name = "NAME", conflicts_with_all = ["cmd", "container"])]
    unit: Option<String>,
    /// Container of the server (docker or podman), whose first process is used as --pid
    #[arg(long, value_name = "NAME", conflicts_with = "cmd")]
    container: Option<String>,
    /// Start the server with this shell command, audit it from its first connection, and stop it at the end
    #[arg(long, value_name = "COMMAND")]
    cmd: Option<String>,
    /// Start the same server with a larger configuration first, and compare the time of its first
    /// connection
    #[arg(long, value_name = "COMMAND", requires = "cmd")]
    cmd_larger: Option<String>,
    #[command(flatten)]
    peer: PeerArgs,
    /// Use HTTP and request this path. Without --http and --send the audit finds out what the server
    /// speaks
    #[arg(long, value_name = "PATH", conflicts_with = "send")]
    http: Option<String>,
    /// Text to send on a connection, with the escapes \n, \r, \t, \0, \xNN and \\
    #[arg(long, value_name = "TEXT")]
    send: Option<String>,
    /// What counts as an answer to --send
    #[arg(long, value_enum, default_value = "echo", requires = "send")]
    expect: ExpectArg,
    /// At most 30 seconds, with fewer connections
    #[arg(long, conflicts_with = "thorough")]
    quick: bool,
    /// Many connections and rounds, without a limit of time
    #[arg(long)]
    thorough: bool,
    /// End the load after this time (default: 30s with --quick, 180s without) and report what was measured
    #[arg(long, value_parser = duration, value_name = "TIME")]
    time: Option<Duration>,
    /// End a part of the audit in which the server grows by more than this (default: half of the memory
    /// that is available to it)
    #[arg(long, value_parser = bytes, value_name = "BYTES")]
    memory: Option<u64>,
    /// Hold this many idle connections, then twice as many, and four times as many if the server has
    /// pools of its own
    #[arg(short = 'n', long, value_parser = count)]
    connections: Option<u64>,
    /// Exit with status 1 if a quiet connection costs more bytes than this
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    max_bytes_per_connection: Option<u64>,
    /// Allow load on a server that is not on this machine: you confirm that it is yours
    #[arg(long)]
    i_own_this_server: bool,
    #[command(flatten)]
    pub(super) output: Output,
}

impl ServerArgs {
    pub(super) fn spec(&self) -> Result<ServerSpec, Error> {
        let (addresses, host) = resolve_all(&self.target, &self.resolve)?;
        let target = addresses.first().cloned().unwrap_or_default();
        let server_name = self.peer.sni.clone().unwrap_or(host);
        let any_status = self.peer.any_status(self.http.is_some())?;
        let talk = match (&self.http, &self.send) {
            (Some(path), _) => Some(Traffic::Http {
                path: path.clone(),
                host: server_name.clone(),
                any_status,
            }),
            (None, Some(text)) => Some(Traffic::Message {
                message: unescape(text)?,
                expect: self.expect.into(),
                greeting: false,
            }),
            (None, None) => None,
        };
        let found_by = match (&self.unit, &self.container) {
            (Some(name), _) => Some(("unit", name.clone())),
            (None, Some(name)) => Some(("container", name.clone())),
            (None, None) => None,
        };
        let pid = match &found_by {
            Some(("unit", name)) => Some(process_lookup::pid_of_unit(name)?),
            Some((_, name)) => Some(process_lookup::pid_of_container(name)?),
            None => self.pid,
        };
        let source = match (pid, &self.cmd) {
            (Some(pid), _) => ServerSource::Pid(pid),
            (None, Some(command)) => ServerSource::Command(command.clone()),
            (None, None) => ServerSource::Unknown,
        };
        let identity = self.peer.identity()?;
        Ok(ServerSpec {
            label: self.output.label.clone().unwrap_or_else(|| target.clone()),
            named: (addresses.len() > 1).then(|| self.named()),
            options: self.common(&target, &server_name),
            target,
            addresses,
            source,
            found_by,
            identity,
            larger: self.cmd_larger.clone(),
            server_name,
            trust: self.peer.trust()?,
            starttls: self.peer.starttls,
            talk,
            effort: match (self.quick, self.thorough) {
                (true, _) => Effort::Quick,
                (false, true) => Effort::Thorough,
                (false, false) => Effort::Normal,
            },
            connections: self.connections,
            own_server: self.i_own_this_server,
            time_max: self.time,
            memory_max_bytes: self.memory,
        })
    }

    /// Returns the server's name as given, for a command line that repeats the audit.
    fn named(&self) -> String {
        let mut words = vec![self.target.as_str()];
        for word in &self.resolve {
            words.extend(["--resolve", word]);
        }
        shell::command_line(words)
    }

    /// Returns the options that `bench` has too, for the commands that reproduce findings. They are
    /// for the address `target`, which does not contain the server's name.
    fn common(&self, target: &str, name: &str) -> Vec<String> {
        let mut words = Vec::new();
        let path = |path: &PathBuf| path.display().to_string();
        let given = [
            ("--ca", self.peer.ca.as_ref().map(path)),
            (
                "--sni",
                (target != self.target || self.peer.sni.is_some()).then(|| name.to_owned()),
            ),
            ("--cert", self.peer.cert.as_ref().map(path)),
            ("--key", self.peer.key.as_ref().map(path)),
            (
                "--starttls",
                self.peer
                    .starttls
                    .map(|protocol| protocol.name().to_owned()),
            ),
            ("--http", self.http.clone()),
            ("--send", self.send.as_deref().map(escaped)),
        ];
        for (name, value) in given {
            words.extend(value.into_iter().flat_map(|value| [name.to_owned(), value]));
        }
        if self.send.is_some() {
            let expect = match self.expect {
                ExpectArg::Echo => "echo",
                ExpectArg::Any => "any",
                ExpectArg::None => "none",
            };
            words.extend(["--expect".to_owned(), expect.to_owned()]);
        }
        if self.peer.any_status {
            words.push("--any-status".into());
        }
        if self.peer.insecure {
            words.push("--insecure".into());
        }
        if self.i_own_this_server {
            words.push("--i-own-this-server".into());
        }
        words
    }

    pub(super) fn thresholds(&self) -> Thresholds {
        self.output.thresholds(self.max_bytes_per_connection)
    }
}

#[derive(Args, Debug)]
pub(super) struct ClientArgs {
    /// Address to listen on for the client; without a command, send clients there
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// Pass the client's data on to this plaintext server, and its answers back
    #[arg(long, value_name = "ADDR")]
    relay: Option<SocketAddr>,
    /// Write the certificate of this run's authority to FILE
    #[arg(long, value_name = "FILE")]
    ca_file: Option<PathBuf>,
    /// Stop after this time; without a command only this and Ctrl-C stop the audit
    #[arg(long, value_parser = duration, default_value = "120s", value_name = "TIME")]
    limit: Duration,
    #[command(flatten)]
    pub(super) output: Output,
    /// Command of the client; `{url}`, `{address}`, `{port}` and `{ca}` in it are replaced, and its
    /// environment has them as `DORMOUSE_URL`, `_ADDRESS`, `_PORT` and `_CA`
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

impl ClientArgs {
    pub(super) fn spec(&self) -> Result<ClientSpec, Error> {
        if self.command.is_empty() && self.listen.port() == 0 {
            return Err(Error::usage(
                "no client is given: put its command after --, or name a port for clients with --listen ADDR",
            ));
        }
        let program = self.command.first();
        let name = program.and_then(|program| program.rsplit('/').next());
        Ok(ClientSpec {
            label: self
                .output
                .label
                .clone()
                .unwrap_or_else(|| name.unwrap_or("client").to_owned()),
            command: self.command.clone(),
            listen: self.listen,
            relay: self.relay,
            limit: self.limit,
            ca_file: self.ca_file.clone(),
        })
    }

    pub(super) fn thresholds(&self) -> Thresholds {
        self.output.thresholds(None)
    }
}

#[derive(Args, Debug)]
pub(super) struct ReportArgs {
    /// JSON files: one audit, a list of audits, or one audit per line
    #[arg(required = true, value_name = "FILE")]
    pub(super) files: Vec<PathBuf>,
    /// File for the page
    #[arg(short, long, default_value = "audit.html", value_name = "FILE")]
    pub(super) output: PathBuf,
    /// Headline of the page
    #[arg(long, default_value = "TLS, audited")]
    pub(super) title: String,
}

#[derive(Args, Debug)]
pub(super) struct DiffArgs {
    /// JSON file of the audit before the change
    pub(super) before: PathBuf,
    /// JSON file of the audit after the change
    pub(super) after: PathBuf,
}

#[derive(Args, Debug)]
pub(super) struct JudgeArgs {
    /// JSON files of audits; each is replaced by a new file, which is first written beside it
    #[arg(required = true, value_name = "FILE")]
    pub(super) files: Vec<PathBuf>,
}
