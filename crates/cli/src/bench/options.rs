//! The options of each mode, and the run they describe.

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use dormouse_instrument::load::{Expect, Talk, Tls, TlsVersion, Trust};
use dormouse_instrument::{Bulk, Churn, Hold, Mode, Request, ServerSource, Spec, Trouble, Wake};

/// Where results go.
#[derive(Args, Debug, Clone)]
pub(super) struct Output {
    /// Also write the run as one JSON object to FILE; - for the standard output, without the table
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    pub(super) json: Option<PathBuf>,
    /// No progress
    #[arg(short, long)]
    pub(super) quiet: bool,
}

#[derive(Args, Debug)]
struct Common {
    /// Server: 127.0.0.1:8443, [::1]:8443, localhost:8443 or unix:/path
    #[arg(value_name = "ADDR")]
    target: String,
    /// Measure this process and its descendants
    #[arg(long, conflicts_with = "cmd")]
    pid: Option<i32>,
    /// Start the server with this shell command, measure it, and stop it at the end
    #[arg(long, value_name = "COMMAND")]
    cmd: Option<String>,
    /// The server's name in reports
    #[arg(long)]
    label: Option<String>,
    /// Trust the certificates in this PEM file instead of the system's
    #[arg(long, value_name = "FILE", conflicts_with = "insecure")]
    ca: Option<PathBuf>,
    /// Do not verify the server's certificate (the output says so)
    #[arg(long)]
    insecure: bool,
    /// Name that the certificate must be for, and that is sent as SNI; default: the host of ADDR
    #[arg(long, value_name = "NAME")]
    sni: Option<String>,
    /// Use only this version of TLS
    #[arg(long, value_enum, value_name = "VERSION")]
    tls: Option<Version>,
    /// Offer X25519MLKEM768 too; without it all servers are measured with the same classic groups
    #[arg(long)]
    post_quantum: bool,
    /// No TLS: plain TCP, to compare with
    #[arg(long, conflicts_with_all = ["ca", "insecure", "sni", "tls", "post_quantum"])]
    plain: bool,
    /// What is said on a connection; \n, \r, \t, \0 and \\ mean what they usually do
    #[arg(
        long,
        value_name = "TEXT",
        default_value = "hello\\n",
        conflicts_with = "http"
    )]
    say: String,
    /// What counts as an answer
    #[arg(long, value_enum, default_value = "echo", conflicts_with = "http")]
    expect: Answer,
    /// The server speaks first: wait for its greeting
    #[arg(long, conflicts_with = "http")]
    greeting: bool,
    /// Speak HTTP: GET this path instead of saying something
    #[arg(long, value_name = "PATH")]
    http: Option<String>,
    /// Connect from this address; may be given several times (loopback targets need none)
    #[arg(long, value_name = "IP")]
    source: Vec<IpAddr>,
    /// For connecting, for the handshake, and for each answer
    #[arg(long, value_parser = duration, default_value = "10s", value_name = "TIME")]
    timeout: Duration,
    /// Wait before each reading of the server's memory
    #[arg(long, value_parser = duration, default_value = "1s", value_name = "TIME")]
    settle: Duration,
    /// Most connections per generator process; default: what the descriptor limit allows
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    per_process: Option<u32>,
    /// More than 100 connections to another machine: you say that it is yours
    #[arg(long)]
    i_own_this_server: bool,
    #[command(flatten)]
    output: Output,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Version {
    #[value(name = "1.2")]
    V12,
    #[value(name = "1.3")]
    V13,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Answer {
    /// The same bytes
    Echo,
    /// Any byte
    Any,
    /// Nothing at all
    None,
}

#[derive(Args, Debug)]
pub(super) struct HoldArgs {
    #[command(flatten)]
    common: Common,
    /// How many connections
    #[arg(short = 'n', long, default_value = "10000", value_parser = count)]
    connections: u64,
    /// Open at most so many per second; 0: no limit
    #[arg(long, default_value = "2000", value_parser = rate)]
    rate: f64,
    /// Open at most so many at a time
    #[arg(short, long, default_value = "64", value_parser = clap::value_parser!(u32).range(1..))]
    concurrency: u32,
    /// Hold them so long
    #[arg(long = "for", value_parser = duration, default_value = "5s", value_name = "TIME")]
    held: Duration,
    /// While held, each connection says something in this interval
    #[arg(long, value_parser = duration, value_name = "TIME")]
    every: Option<Duration>,
    /// After the rest every connection echoes so many times
    #[arg(long, default_value = "0", value_name = "TIMES")]
    echoes: u64,
    /// Messages per second for --echoes; 0: as fast as it goes
    #[arg(long, default_value = "5000", value_parser = rate)]
    echo_rate: f64,
    /// Wait so long after all have closed before the memory is read again
    #[arg(long, value_parser = duration, default_value = "5s", value_name = "TIME")]
    after: Duration,
}

#[derive(Args, Debug)]
pub(super) struct ChurnArgs {
    #[command(flatten)]
    common: Common,
    /// Connections per round
    #[arg(short = 'n', long, default_value = "5000", value_parser = count)]
    connections: u64,
    /// At a time
    #[arg(short, long, default_value = "50", value_parser = clap::value_parser!(u32).range(1..))]
    concurrency: u32,
    /// Rounds; a verdict on growth needs at least four
    #[arg(short, long, default_value = "5", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    rounds: u32,
    /// Resume sessions: each of the concurrent clients offers its latest ticket
    #[arg(long, conflicts_with = "plain")]
    resume: bool,
    /// Close right after the handshake, without saying anything
    #[arg(long)]
    no_exchange: bool,
    /// Wait so long after the last round before the memory is read again
    #[arg(long, value_parser = duration, default_value = "5s", value_name = "TIME")]
    after: Duration,
}

#[derive(Args, Debug)]
pub(super) struct BulkArgs {
    #[command(flatten)]
    common: Common,
    /// Streams
    #[arg(short = 'c', long, default_value = "8", value_parser = clap::value_parser!(u32).range(1..))]
    streams: u32,
    /// Bytes each way on each stream: 512M, 2G
    #[arg(short, long, default_value = "256M", value_parser = bytes)]
    bytes: u64,
}

#[derive(Args, Debug)]
pub(super) struct WakeArgs {
    #[command(flatten)]
    common: Common,
    /// How many connections are held
    #[arg(short = 'n', long, default_value = "10000", value_parser = count)]
    connections: u64,
    /// Open at most so many per second; 0: no limit
    #[arg(long, default_value = "2000", value_parser = rate)]
    rate: f64,
    /// Open at most so many at a time
    #[arg(short, long, default_value = "64", value_parser = clap::value_parser!(u32).range(1..))]
    concurrency: u32,
    /// How many wake per second
    #[arg(short = 'k', long, default_value = "200", value_parser = rate)]
    per_second: f64,
    /// How long each of the two measurements takes
    #[arg(long = "for", value_parser = duration, default_value = "20s", value_name = "TIME")]
    measured: Duration,
    /// The same rate of messages on this many connections, for comparison; 0: leave that out
    #[arg(long, default_value = "4")]
    busy: u32,
}

#[derive(Args, Debug)]
pub(super) struct RequestArgs {
    #[command(flatten)]
    common: Common,
    /// Requests in all; 0: as many as there is time for
    #[arg(short = 'n', long, default_value = "10000")]
    requests: u64,
    /// Connections at a time
    #[arg(short, long, default_value = "50", value_parser = clap::value_parser!(u32).range(1..))]
    concurrency: u32,
    /// A connection for each request, instead of keeping it
    #[arg(long)]
    close: bool,
    /// Resume sessions (with --close)
    #[arg(long, requires = "close", conflicts_with = "plain")]
    resume: bool,
    /// Go on for so long
    #[arg(long = "for", value_parser = duration, default_value = "0s", value_name = "TIME")]
    time: Duration,
}

type Described = Result<(Spec, Output), Trouble>;

impl HoldArgs {
    pub(super) fn spec(self) -> Described {
        let mode = Mode::Hold(Hold {
            connections: self.connections,
            rate_per_s: self.rate,
            in_flight: self.concurrency,
            every_s: self.every.map(|every| every.as_secs_f64()),
            for_s: self.held.as_secs_f64(),
            echoes: self.echoes,
            echo_rate_per_s: self.echo_rate,
            after_s: self.after.as_secs_f64(),
        });
        self.common.spec(mode, false)
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
        self.common.spec(mode, self.resume)
    }
}

impl BulkArgs {
    pub(super) fn spec(self) -> Described {
        self.common.spec(
            Mode::Bulk(Bulk {
                streams: self.streams,
                bytes: self.bytes,
            }),
            false,
        )
    }
}

impl WakeArgs {
    pub(super) fn spec(self) -> Described {
        let mode = Mode::Wake(Wake {
            connections: self.connections,
            rate_per_s: self.rate,
            in_flight: self.concurrency,
            per_s: self.per_second,
            for_s: self.measured.as_secs_f64(),
            busy: self.busy,
        });
        self.common.spec(mode, false)
    }
}

impl RequestArgs {
    pub(super) fn spec(mut self) -> Described {
        self.common.http.get_or_insert_with(|| "/".into());
        if self.requests == 0 && self.time.is_zero() {
            return Err(Trouble::usage("no end: give --requests or --for"));
        }
        let mode = Mode::Request(Request {
            requests: self.requests,
            concurrency: self.concurrency,
            keep_alive: !self.close,
            for_s: self.time.as_secs_f64(),
        });
        self.common.spec(mode, self.resume)
    }
}

impl Common {
    fn spec(self, mode: Mode, resume: bool) -> Described {
        let (target, host) = resolve(&self.target)?;
        let label = self.label.unwrap_or_else(|| self.target.clone());
        let server = match (self.pid, &self.cmd) {
            (Some(pid), _) => ServerSource::Pid(pid),
            (None, Some(command)) => ServerSource::Command(command.clone()),
            (None, None) => ServerSource::Unknown,
        };
        let trust = match &self.ca {
            Some(path) => Trust::Pem(fs::read_to_string(path).map_err(|error| {
                Trouble::usage(format!("cannot read --ca {}: {error}", path.display()))
            })?),
            None if self.insecure => Trust::Insecure,
            None => Trust::System,
        };
        let server_name = self.sni.unwrap_or_else(|| host.clone());
        let version = self.tls.map(|version| match version {
            Version::V12 => TlsVersion::V12,
            Version::V13 => TlsVersion::V13,
        });
        let tls = Tls {
            server_name: server_name.clone(),
            trust,
            version,
            resume,
            post_quantum: self.post_quantum,
        };
        let talk = match self.http {
            Some(path) => Talk::Http {
                path,
                host: server_name,
            },
            None => Talk::Say {
                message: unescape(&self.say)?,
                expect: self.expect.into(),
                greeting: self.greeting,
            },
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

impl From<Answer> for Expect {
    fn from(answer: Answer) -> Self {
        match answer {
            Answer::Echo => Self::Echo,
            Answer::Any => Self::Any,
            Answer::None => Self::Nothing,
        }
    }
}

/// The address, and the host's name as it was written.
fn resolve(target: &str) -> Result<(String, String), Trouble> {
    use std::net::ToSocketAddrs;
    if target.starts_with("unix:") {
        return Ok((target.to_owned(), "localhost".into()));
    }
    if let Ok(address) = target.parse::<SocketAddr>() {
        return Ok((target.to_owned(), address.ip().to_string()));
    }
    let wrong = |why: String| {
        Trouble::usage(format!(
            "{target:?} is no address ({why}): write 127.0.0.1:8443, localhost:8443 or unix:/path"
        ))
    };
    let (host, _) = target
        .rsplit_once(':')
        .ok_or_else(|| wrong("there is no port".into()))?;
    let mut found = target
        .to_socket_addrs()
        .map_err(|error| wrong(error.to_string()))?
        .collect::<Vec<_>>();
    // IPv4 loopback has 16 million source addresses, IPv6 loopback has one.
    found.sort_by_key(SocketAddr::is_ipv6);
    let address = found
        .first()
        .ok_or_else(|| wrong("the name has no address".into()))?;
    Ok((address.to_string(), host.to_owned()))
}

fn unescape(text: &str) -> Result<Vec<u8>, Trouble> {
    let mut out = Vec::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        let c = match c {
            '\\' => match chars.next() {
                Some('n') => '\n',
                Some('r') => '\r',
                Some('t') => '\t',
                Some('0') => '\0',
                Some('\\') => '\\',
                other => {
                    let other = other.map_or_else(String::new, String::from);
                    return Err(Trouble::usage(format!(
                        "--say: \\{other} means nothing; known are \\n \\r \\t \\0 \\\\"
                    )));
                }
            },
            c => c,
        };
        out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
    }
    if out.is_empty() {
        return Err(Trouble::usage("--say: there must be something to say"));
    }
    Ok(out)
}

/// `500ms`, `5s`, `2m`, or seconds without a unit.
fn duration(text: &str) -> Result<Duration, String> {
    let split = text
        .find(|c: char| c.is_ascii_alphabetic())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let factor = match unit {
        "" | "s" => 1.0,
        "ms" => 0.001,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => {
            return Err(format!(
                "{unit:?} is no unit of time: write 500ms, 5s, 2m or 1h"
            ));
        }
    };
    let seconds: f64 = number
        .parse()
        .map_err(|_| format!("{number:?} is no number: write 500ms, 5s or 2m"))?;
    Duration::try_from_secs_f64(seconds * factor)
        .map_err(|_| format!("{text} is no length of time"))
}

/// `1000000`, `512k`, `256M`, `2G` (powers of ten).
fn bytes(text: &str) -> Result<u64, String> {
    let plain = text.strip_suffix('B').unwrap_or(text);
    let (number, factor) = match plain.chars().last() {
        Some('k' | 'K') => (&plain[..plain.len() - 1], 1_000),
        Some('M') => (&plain[..plain.len() - 1], 1_000_000),
        Some('G') => (&plain[..plain.len() - 1], 1_000_000_000),
        _ => (plain, 1),
    };
    let number: u64 = number
        .parse()
        .map_err(|_| format!("{text:?} is no number of bytes: write 512k, 256M or 2G"))?;
    number
        .checked_mul(factor)
        .filter(|&bytes| bytes > 0)
        .ok_or_else(|| format!("{text} bytes: from 1 to 18 EB"))
}

/// `10000`, `10_000`, `10k`, `1M`.
fn count(text: &str) -> Result<u64, String> {
    bytes(&text.replace(['_', ','], ""))
        .map_err(|_| format!("{text:?} is no number of connections: write 10000, 10k or 1M"))
}

fn rate(text: &str) -> Result<f64, String> {
    let rate: f64 = text.parse().map_err(|_| format!("{text:?} is no number"))?;
    (rate.is_finite() && rate >= 0.0)
        .then_some(rate)
        .ok_or_else(|| format!("{text} per second: 0 or more"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_amounts_are_read_as_people_write_them() {
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(duration("1.5"), Ok(Duration::from_millis(1500)));
        assert_eq!(duration("2m"), Ok(Duration::from_secs(120)));
        assert!(
            duration("5 parsecs").is_err() && duration("-1s").is_err() && duration("").is_err()
        );
        assert_eq!(bytes("256M"), Ok(256_000_000));
        assert_eq!(bytes("256MB"), Ok(256_000_000));
        assert!(bytes("0").is_err() && bytes("M").is_err() && bytes("99999999999G").is_err());
        assert_eq!(count("10_000"), Ok(10_000));
    }

    #[test]
    fn what_is_said_may_hold_line_ends() {
        assert_eq!(unescape("a\\r\\nb").unwrap(), b"a\r\nb");
        assert!(unescape("\\x").is_err() && unescape("a\\").is_err() && unescape("").is_err());
    }

    #[test]
    fn an_address_without_port_is_explained() {
        assert!(
            resolve("localhost")
                .unwrap_err()
                .message
                .contains("no port")
        );
        let (address, host) = resolve("localhost:8443").unwrap();
        assert_eq!(
            (address.as_str(), host.as_str()),
            ("127.0.0.1:8443", "localhost")
        );
    }
}
