//! The options of each mode, and the run they describe.

pub(crate) mod peer;
pub(crate) mod values;

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use dormouse_bench::load::{Tls, TlsSuite, TlsVersion, Traffic};
use dormouse_bench::{Bulk, Churn, Hold, Mode, Request, Spec, Wake};
use dormouse_measure::{Error, ServerSource};

use peer::{ExpectArg, PeerArgs};
use values::{bytes, count, duration, rate, resolve, timeout, unescape};

/// Text that a connection sends unless told otherwise.
const TEXT: &str = "hello\\n";

/// Where results go.
#[derive(Args, Debug, Clone)]
pub(super) struct Output {
    /// Also write the run as one JSON object to FILE; `-`: to standard output, without the table
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    pub(super) json: Option<PathBuf>,
    /// Do not show progress
    #[arg(short, long)]
    pub(super) quiet: bool,
}

#[derive(Args, Debug)]
struct Common {
    /// Server: `127.0.0.1:8443`, `[::1]:8443`, `localhost:8443` or `unix:/path`
    #[arg(value_name = "ADDR")]
    target: String,
    /// Measure this process and its descendants
    #[arg(long, conflicts_with = "cmd")]
    pid: Option<i32>,
    /// Start the server with this shell command, measure it, and stop it at the end
    #[arg(long, value_name = "COMMAND")]
    cmd: Option<String>,
    /// Name of the server in reports
    #[arg(long)]
    label: Option<String>,
    #[command(flatten)]
    peer: PeerArgs,
    /// Use only this TLS version
    #[arg(long, value_enum, value_name = "VERSION")]
    tls: Option<Version>,
    /// Use only TLS 1.3 with this suite
    #[arg(long, value_enum, value_name = "SUITE", conflicts_with = "tls")]
    suite: Option<Suite>,
    /// Offer X25519MLKEM768 too; by default, all servers are measured with the same classic groups
    #[arg(long)]
    post_quantum: bool,
    /// Use plain TCP without TLS, for comparison
    #[arg(long, conflicts_with_all = ["ca", "insecure", "sni", "cert", "starttls", "tls", "suite", "post_quantum"])]
    plain: bool,
    /// Use HTTP: GET this path instead of sending a text; held connections do so once, when they
    /// are opened
    #[arg(long, value_name = "PATH")]
    http: Option<String>,
    /// Connect from this address; may be given several times (loopback targets need none)
    #[arg(long, value_name = "IP")]
    source: Vec<IpAddr>,
    /// Timeout for connecting, for the handshake, and for each answer
    #[arg(long, value_parser = timeout, default_value = "10s", value_name = "TIME")]
    timeout: Duration,
    /// Wait before each reading of the server's memory
    #[arg(long, value_parser = duration, default_value = "1s", value_name = "TIME")]
    settle: Duration,
    /// Maximum connections per generator process [default: what the descriptor limit allows]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    per_process: Option<u32>,
    /// Allow more than 100 connections to another machine: you confirm that it is yours
    #[arg(long)]
    i_own_this_server: bool,
    #[command(flatten)]
    output: Output,
}

/// What a connection says without HTTP.
#[derive(Args, Debug, Default)]
struct Talk {
    /// Text to send on a connection, with the escapes \n, \r, \t, \0, \xNN and \\ [default: hello\n]
    #[arg(long, value_name = "TEXT", conflicts_with = "http")]
    send: Option<String>,
    /// What counts as an answer [default: echo]
    #[arg(long, value_enum, conflicts_with = "http")]
    expect: Option<ExpectArg>,
    #[command(flatten)]
    greeting: Greeting,
}

#[derive(Args, Debug, Default)]
struct Greeting {
    /// The server speaks first: wait for its greeting
    #[arg(long, conflicts_with = "http")]
    greeting: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Version {
    #[value(name = "1.2")]
    V12,
    #[value(name = "1.3")]
    V13,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Suite {
    #[value(name = "TLS_AES_128_GCM_SHA256")]
    Aes128Gcm,
    #[value(name = "TLS_AES_256_GCM_SHA384")]
    Aes256Gcm,
    #[value(name = "TLS_CHACHA20_POLY1305_SHA256")]
    Chacha20,
}

/// How connections are opened that stay open.
#[derive(Args, Debug)]
struct Opening {
    /// Number of connections
    #[arg(short = 'n', long, default_value = "10000", value_parser = count)]
    connections: u64,
    /// Open at most this many per second; 0: no limit
    #[arg(long, default_value = "2000", value_parser = rate)]
    rate: f64,
    /// Open at most this many at a time
    #[arg(short, long, default_value = "64", value_parser = clap::value_parser!(u32).range(1..))]
    concurrency: u32,
}

#[derive(Args, Debug)]
pub(super) struct HoldArgs {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    talk: Talk,
    #[command(flatten)]
    opening: Opening,
    /// Hold the connections for this long
    #[arg(long = "for", value_parser = duration, default_value = "5s", value_name = "TIME")]
    held: Duration,
    /// While held, each connection sends a text at this interval
    #[arg(long, value_parser = duration, value_name = "TIME")]
    every: Option<Duration>,
    /// After the hold, send this many texts on every connection
    #[arg(long, default_value = "0", value_name = "TIMES")]
    echoes: u64,
    /// Texts per second for --echoes; 0: as fast as possible
    #[arg(long, default_value = "5000", value_parser = rate)]
    echo_rate: f64,
    /// Wait this long after all have closed before reading the memory again
    #[arg(long, value_parser = duration, default_value = "5s", value_name = "TIME")]
    after: Duration,
}

#[derive(Args, Debug)]
pub(super) struct ChurnArgs {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    talk: Talk,
    /// Connections per round
    #[arg(short = 'n', long, default_value = "5000", value_parser = count)]
    connections: u64,
    /// Connections at a time
    #[arg(short, long, default_value = "50", value_parser = clap::value_parser!(u32).range(1..))]
    concurrency: u32,
    /// Number of rounds; a verdict on growth needs at least four
    #[arg(short, long, default_value = "5", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    rounds: u32,
    /// Resume sessions: each of the concurrent clients offers its latest ticket
    #[arg(long, conflicts_with = "plain")]
    resume: bool,
    /// Close right after the handshake, without sending anything
    #[arg(long, conflicts_with_all = ["send", "expect", "http", "greeting"])]
    no_exchange: bool,
    /// Wait this long after the last round before reading the memory again
    #[arg(long, value_parser = duration, default_value = "5s", value_name = "TIME")]
    after: Duration,
}

#[derive(Args, Debug)]
pub(super) struct BulkArgs {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    greeting: Greeting,
    /// Number of streams
    #[arg(short = 'c', long, default_value = "8", value_parser = clap::value_parser!(u32).range(1..))]
    streams: u32,
    /// Bytes each way on each stream: 512M, 2G; with --http, bytes to receive, in as many requests
    /// as needed
    #[arg(short, long, default_value = "256M", value_parser = bytes)]
    bytes: u64,
}

#[derive(Args, Debug)]
pub(super) struct WakeArgs {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    talk: Talk,
    #[command(flatten)]
    opening: Opening,
    /// Connections to wake per second; 0: as fast as possible
    #[arg(short = 'k', long, default_value = "200", value_parser = rate)]
    per_second: f64,
    /// Duration of each of the two measurements
    #[arg(long = "for", value_parser = duration, default_value = "20s", value_name = "TIME")]
    measured: Duration,
    /// For comparison, send the same rate of texts on this many connections; 0: no comparison
    #[arg(long, default_value = "4")]
    busy: u32,
}

#[derive(Args, Debug)]
pub(super) struct RequestArgs {
    #[command(flatten)]
    common: Common,
    /// Total number of requests; 0: as many as --for allows
    #[arg(short = 'n', long, default_value = "10000")]
    requests: u64,
    /// Connections at a time
    #[arg(short, long, default_value = "50", value_parser = clap::value_parser!(u32).range(1..))]
    concurrency: u32,
    /// Use a new connection for each request
    #[arg(long)]
    close: bool,
    /// Resume sessions (with --close)
    #[arg(long, requires = "close", conflicts_with = "plain")]
    resume: bool,
    /// Run for this long; 0: until all requests are made
    #[arg(long = "for", value_parser = duration, default_value = "0s", value_name = "TIME")]
    time: Duration,
}

type Described = Result<(Spec, Output), Error>;

impl HoldArgs {
    pub(super) fn spec(self) -> Described {
        let mode = Mode::Hold(Hold {
            connections: self.opening.connections,
            rate_per_s: self.opening.rate,
            in_flight: self.opening.concurrency,
            every_s: self.every.map(|every| every.as_secs_f64()),
            for_s: self.held.as_secs_f64(),
            echoes: self.echoes,
            echo_rate_per_s: self.echo_rate,
            after_s: self.after.as_secs_f64(),
        });
        self.common.spec(mode, self.talk, false)
    }
}

impl ChurnArgs {
    pub(super) fn spec(self) -> Described {
        let mode = Mode::Churn(Churn {
            connections: self.connections,
            concurrency: self.concurrency,
            rounds: self.rounds,
            exchange: !self.no_exchange,
            after_s: self.after.as_secs_f64(),
        });
        self.common.spec(mode, self.talk, self.resume)
    }
}

impl BulkArgs {
    pub(super) fn spec(self) -> Described {
        let mode = Mode::Bulk(Bulk {
            streams: self.streams,
            bytes: self.bytes,
        });
        let talk = Talk {
            greeting: self.greeting,
            ..Talk::default()
        };
        self.common.spec(mode, talk, false)
    }
}

impl WakeArgs {
    pub(super) fn spec(self) -> Described {
        let mode = Mode::Wake(Wake {
            connections: self.opening.connections,
            rate_per_s: self.opening.rate,
            in_flight: self.opening.concurrency,
            per_s: self.per_second,
            for_s: self.measured.as_secs_f64(),
            busy: self.busy,
        });
        self.common.spec(mode, self.talk, false)
    }
}

impl RequestArgs {
    pub(super) fn spec(mut self) -> Described {
        self.common.http.get_or_insert_with(|| "/".into());
        if self.requests == 0 && self.time.is_zero() {
            return Err(Error::usage("the run has no end: give --requests or --for"));
        }
        let mode = Mode::Request(Request {
            requests: self.requests,
            concurrency: self.concurrency,
            keep_alive: !self.close,
            for_s: self.time.as_secs_f64(),
        });
        self.common.spec(mode, Talk::default(), self.resume)
    }
}

impl Common {
    fn spec(self, mode: Mode, talk: Talk, resume: bool) -> Described {
        let (target, host) = resolve(&self.target)?;
        let label = self.label.unwrap_or_else(|| self.target.clone());
        let server = match (self.pid, &self.cmd) {
            (Some(pid), _) => ServerSource::Pid(pid),
            (None, Some(command)) => ServerSource::Command(command.clone()),
            (None, None) => ServerSource::Unknown,
        };
        let server_name = self.peer.sni.clone().unwrap_or(host);
        let version = self.tls.map(|version| match version {
            Version::V12 => TlsVersion::V12,
            Version::V13 => TlsVersion::V13,
        });
        let suite = self.suite.map(|suite| match suite {
            Suite::Aes128Gcm => TlsSuite::Aes128Gcm,
            Suite::Aes256Gcm => TlsSuite::Aes256Gcm,
            Suite::Chacha20 => TlsSuite::Chacha20,
        });
        let tls = Tls {
            server_name: server_name.clone(),
            trust: self.peer.trust()?,
            version,
            suite,
            resume,
            post_quantum: self.post_quantum,
            identity: self.peer.identity()?,
            starttls: self.peer.starttls,
        };
        let any_status = self.peer.any_status(self.http.is_some())?;
        let talk = match (self.http, self.peer.starttls, &talk.send) {
            (Some(_), Some(protocol), _) => {
                return Err(Error::usage(format!(
                    "--starttls {} is not for HTTP requests",
                    protocol.name()
                )));
            }
            (Some(path), None, _) => Traffic::Http {
                path,
                host: server_name,
                any_status,
            },
            (None, protocol, text) => {
                let (message, answer) = match (protocol, text) {
                    (Some(protocol), None) => {
                        (protocol.first_message(&server_name), ExpectArg::Any)
                    }
                    (_, text) => (unescape(text.as_deref().unwrap_or(TEXT))?, ExpectArg::Echo),
                };
                Traffic::Message {
                    message,
                    expect: talk.expect.unwrap_or(answer).into(),
                    greeting: talk.greeting.greeting,
                }
            }
        };
        let spec = Spec {
            target,
            label,
            server,
            tls: (!self.plain).then_some(tls),
            talk,
            sources: self.source,
            timeout: self.timeout,
            own_server: self.i_own_this_server,
            settle: self.settle,
            per_process: self.per_process,
            mode,
        };
        Ok((spec, self.output))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use dormouse_bench::load::Expect;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        hold: HoldArgs,
    }

    #[test]
    fn what_counts_as_an_answer_can_be_set_for_every_protocol() {
        let expect = |options: &[&str]| {
            let line = ["hold", "127.0.0.1:1", "--insecure"].iter().chain(options);
            let (spec, _) = Line::parse_from(line).hold.spec().unwrap();
            match spec.talk {
                Traffic::Message {
                    expect, greeting, ..
                } => (expect, greeting),
                Traffic::Http { .. } => panic!("it is no HTTP"),
            }
        };
        assert_eq!(expect(&[]), (Expect::Echo, false));
        assert_eq!(expect(&["--starttls", "smtp"]), (Expect::Any, false));
        let set = ["--starttls", "smtp", "--expect", "none", "--greeting"];
        assert_eq!(expect(&set), (Expect::Nothing, true));
    }
}
