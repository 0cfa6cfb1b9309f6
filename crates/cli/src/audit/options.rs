//! The options of `audit`, and the audit they describe.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use dormouse_audit::{ClientSpec, Effort, ServerSpec, Severity, Thresholds, process_lookup, shell};
use dormouse_bench::load::Traffic;
use dormouse_measure::{Error, ServerSource};

use crate::bench::options::peer::{ExpectArg, PeerArgs};
use crate::bench::options::values::{bytes, count, duration, resolve_all, unescape};

/// Where results go, and what fails.
#[derive(Args, Debug, Clone)]
pub(super) struct Output {
    /// Also write the audit as one JSON object to FILE; - for the standard output, without the text
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    pub(super) json: Option<PathBuf>,
    /// Also draw it as one self-contained HTML page
    #[arg(long, value_name = "FILE")]
    pub(super) html: Option<PathBuf>,
    /// A finding of this severity or above is a failure (exit status 1)
    #[arg(long, value_enum, default_value = "medium", value_name = "SEVERITY")]
    fail_on: FailOn,
    /// A smaller share of resumed connections is a failure, in percent
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(0..=100))]
    min_resumed: Option<u8>,
    /// The name in reports
    #[arg(long)]
    label: Option<String>,
    /// No progress
    #[arg(short, long)]
    pub(super) quiet: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum FailOn {
    Info,
    Low,
    Medium,
    High,
    /// None is
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
    #[arg(long, value_name = "WORDS")]
    resolve: Vec<String>,
    /// Its process; all descendants are measured with it
    #[arg(long, conflicts_with_all = ["cmd", "unit", "container"])]
    pid: Option<i32>,
    /// Its systemd unit, whose main process is taken for --pid
    #[arg(long, value_name = "NAME", conflicts_with_all = ["cmd", "container"])]
    unit: Option<String>,
    /// Its container (docker or podman), whose first process is taken for --pid
    #[arg(long, value_name = "NAME", conflicts_with = "cmd")]
    container: Option<String>,
    /// Start the server with this shell command, audit it from its first connection, and stop it at the end
    #[arg(long, value_name = "COMMAND")]
    cmd: Option<String>,
    /// Starts the same server holding more, before --cmd does: does its first connection take longer?
    #[arg(long, value_name = "COMMAND", requires = "cmd")]
    cmd_larger: Option<String>,
    #[command(flatten)]
    peer: PeerArgs,
    /// It speaks HTTP: ask for this path. Without this and --say it is found out
    #[arg(long, value_name = "PATH", conflicts_with = "say")]
    http: Option<String>,
    /// What is said on a connection; \n, \r, \t, \0 and \\ mean what they usually do
    #[arg(long, value_name = "TEXT")]
    say: Option<String>,
    /// What counts as an answer to --say
    #[arg(long, value_enum, default_value = "echo", requires = "say")]
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
    /// Let the server grow by at most this much (default: half of the available memory)
    #[arg(long, value_parser = bytes, value_name = "BYTES")]
    memory: Option<u64>,
    /// Hold so many quiet connections, and twice as many
    #[arg(short = 'n', long, value_parser = count)]
    connections: Option<u64>,
    /// More bytes per quiet connection are a failure
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    max_bytes_per_connection: Option<u64>,
    /// Load on a server which is not on this machine: you say that it is yours
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
        let talk = match (&self.http, &self.say) {
            (Some(path), _) => Some(Traffic::Http {
                path: path.clone(),
                host: server_name.clone(),
            }),
            (None, Some(say)) => Some(Traffic::Message {
                message: unescape(say)?,
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

    /// The server's name as it was given, for the same command line.
    fn named(&self) -> String {
        let mut words = vec![self.target.as_str()];
        for word in &self.resolve {
            words.extend(["--resolve", word]);
        }
        shell::command_line(words)
    }

    /// Options that `bench` understands as well, for the commands which show findings again. They are
    /// about the address `target`, which does not say the server's name.
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
            ("--http", self.http.clone()),
            ("--say", self.say.clone()),
        ];
        for (name, value) in given {
            words.extend(value.into_iter().flat_map(|value| [name.to_owned(), value]));
        }
        if self.say.is_some() {
            let expect = match self.expect {
                ExpectArg::Echo => "echo",
                ExpectArg::Any => "any",
                ExpectArg::None => "none",
            };
            words.extend(["--expect".to_owned(), expect.to_owned()]);
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
    /// Where the audit listens for the client; without a command: where clients are to come
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// Pass what the client says on to this plain server, and its answers back
    #[arg(long, value_name = "ADDR")]
    relay: Option<SocketAddr>,
    /// Write the certificate of the authority, which is made for this run, to FILE
    #[arg(long, value_name = "FILE")]
    ca_file: Option<PathBuf>,
    /// End after this time; without a command this is the only end besides Ctrl-C
    #[arg(long, value_parser = duration, default_value = "120s", value_name = "TIME")]
    limit: Duration,
    #[command(flatten)]
    pub(super) output: Output,
    /// The client's command; `{url}`, `{address}`, `{port}` and `{ca}` in it are replaced, and stand in its
    /// environment as `DORMOUSE_URL`, `_ADDRESS`, `_PORT` and `_CA`
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

impl ClientArgs {
    pub(super) fn spec(&self) -> Result<ClientSpec, Error> {
        if self.command.is_empty() && self.listen.port() == 0 {
            return Err(Error::usage(
                "say which client: a command behind --, or --listen ADDR with a port that clients come to",
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
    /// Where the page goes
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
    /// JSON files of audits; they are rewritten
    #[arg(required = true, value_name = "FILE")]
    pub(super) files: Vec<PathBuf>,
}
