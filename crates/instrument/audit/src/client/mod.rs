//! `audit client`: how a TLS client connects and resumes, and how much memory and CPU time it uses.
//!
//! The audit acts as the client's server, with a certificate from an authority made for this run. The client gets the
//! authority's certificate through its environment. The audit reads every ClientHello before the engine does.

mod audit_server;
mod authority;
mod client_hello;
mod command;
mod environment;
mod openers;
mod requests;
mod session_ids;
mod spec;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use self::audit_server::{AuditServer, ConnectionLog};
use self::command::{Client, Recognition};
use self::environment::Environment;
use self::openers::Openers;
pub use self::spec::ClientSpec;
use super::model::{Audit, ClientFigures, Measured, USUAL_KEY};
use super::reference;
use super::shell;
use dormouse_bench::model::Sample;
use dormouse_bench::{Console, MeasuredSide, Progress};
use dormouse_measure::Error;
use dormouse_measure::Interrupts;
use dormouse_measure::{CpuTime, ProcessTree, TreeSample};

/// Maximum number of connections recorded individually.
const RAW_MAX: usize = 1000;
/// First sampling interval: a client may end within milliseconds. Later samples are less frequent.
const SAMPLE_FIRST: Duration = Duration::from_millis(5);
const SAMPLE_EVERY: Duration = Duration::from_millis(50);
const SAMPLES_MAX: usize = 2000;

/// Parses what a client sends in pieces: its ClientHello and its requests. Returns the number of requests.
pub(crate) fn understood(pieces: &[&[u8]]) -> usize {
    let mut requests = requests::Requests::default();
    let heard = pieces.iter().flat_map(|piece| {
        if let client_hello::HelloBytes::Whole(hello) = client_hello::read(piece) {
            let _ = (hello.versions(), client_hello::group_names(&hello.groups));
        }
        requests.hear(piece)
    });
    heard
        .filter(|heard| matches!(heard, requests::ClientMessage::Request(_)))
        .count()
}

/// Audits a client. The audit's outcome reports any error, and the figures up to it stay.
pub fn run(spec: &ClientSpec, console: &mut dyn Console) -> Audit {
    let command = shell::command_line(&spec.command);
    let target = if command.is_empty() {
        spec.listen.to_string()
    } else {
        command
    };
    let mut audit = Audit::begin("client", &spec.label, &target);
    let began = Instant::now();
    let end = examine(spec, console, &mut audit, began);
    audit.duration_s = began.elapsed().as_secs_f64();
    audit.conclude(end);
    audit
}

/// Records the settings.
fn describe(spec: &ClientSpec, address: SocketAddr, environment: &Environment, audit: &mut Audit) {
    let mut put =
        |name: &str, value: String| drop(audit.settings.insert(name.into(), value.into()));
    put("address", address.to_string());
    put("ca", environment.ca().display().to_string());
    if let Some(relay) = spec.relay {
        put("relay", relay.to_string());
    }
    if let Some(file) = &spec.ca_file {
        put("ca_file", file.display().to_string());
    }
    if spec.command.is_empty() {
        put("listen", address.to_string());
    }
}

/// Runs the client against the audit's server and summarises its connections.
fn examine(
    spec: &ClientSpec,
    console: &mut dyn Console,
    audit: &mut Audit,
    began: Instant,
) -> Result<(), Error> {
    let interrupts = Interrupts::open();
    let peer = AuditServer::open(spec.listen, spec.relay)?;
    let address = peer.address();
    let environment = Environment::make(address, peer.authority(), spec.ca_file.clone())?;
    describe(spec, address, &environment, audit);
    let stop = Arc::new(AtomicBool::new(false));
    let seen = Arc::new(Mutex::new(ConnectionLog::default()));
    let openers = Arc::new(Openers::default());
    let server = peer.start(
        Arc::clone(&seen),
        Arc::clone(&openers),
        Arc::clone(&stop),
        began,
    );
    if spec.command.is_empty() {
        let (url, ca) = (environment.url(), environment.ca().display());
        let title = format!("listening on {url} (CA: {ca})");
        console.stage(&title, None);
    } else {
        // The client writes to the same terminal, so a progress bar would mix with its output.
        console.note("the client is running; its output follows");
    }
    let mut watch = ClientMonitor {
        spec,
        console,
        openers: Arc::clone(&openers),
        interrupts,
        began,
        samples: Vec::new(),
        memory_max: 0,
    };
    let cpu_before_ns = CpuTime::ns_of_children();
    let attended = if spec.command.is_empty() {
        let ended = watch.wait(None, &seen).map(|()| None);
        let run_ms = watch.elapsed_ms();
        watch.console.stage_over();
        Ok((ended, run_ms))
    } else {
        watch.attend(&environment, &seen, audit)
    };
    stop.store(true, Ordering::Relaxed);
    let _ = server.join();
    let cpu_ms = (CpuTime::ns_of_children() - cpu_before_ns) as f64 / 1e6;
    let (ended, run_ms) = attended?;
    audit.samples = watch.samples;
    let seen = std::mem::take(&mut *seen.lock().unwrap_or_else(PoisonError::into_inner));
    let mut figures = figures(&seen);
    figures.run_ms = run_ms;
    if spec.command.is_empty() {
        forget_process(&mut figures, audit);
    } else {
        figures.cpu_ms = Measured::Value(cpu_ms);
        figures.cpu_startup_ms = startup_ms(&figures, &audit.samples);
        figures.processes = openers.processes();
        figures.signature_us = reference::signature_us(USUAL_KEY).into();
        figures.memory_max_bytes = match watch.memory_max {
            0 => Measured::not("the client exited before the first sample"),
            most => Measured::Value(most),
        };
    }
    note_unrecorded(&seen, &mut figures, audit);
    let outcome = ended.and_then(|status| judge_end(status, address, &mut figures, audit));
    audit.client = Some(figures);
    outcome
}

/// Drops the figures of all connections together if only some are recorded: they would be divided by these.
fn note_unrecorded(seen: &ConnectionLog, figures: &mut ClientFigures, audit: &mut Audit) {
    let (recorded, others) = (seen.connections(), seen.unrecorded);
    if others == 0 {
        return;
    }
    audit.notes.push(format!(
        "the figures are those of the first {recorded} connections; the client made {others} more"
    ));
    if figures.cpu_ms.value().is_some() {
        let why = format!("the client made more than {recorded} connections");
        figures.cpu_ms = Measured::not(why.clone());
        figures.cpu_startup_ms = Measured::not(why);
    }
}

/// Gives the reason for the missing figures of clients that the audit did not start.
fn forget_process(figures: &mut ClientFigures, audit: &mut Audit) {
    const FOREIGN: &str = "the audit did not start the client";
    figures.cpu_ms = Measured::not(FOREIGN);
    figures.cpu_startup_ms = Measured::not(FOREIGN);
    figures.signature_us = Measured::not(FOREIGN);
    figures.memory_max_bytes = Measured::not(FOREIGN);
    figures.processes = Measured::not(FOREIGN);
    figures.exit_status = Measured::not(FOREIGN);
    audit.software = Measured::not(FOREIGN);
}

/// How the client's command ended.
#[derive(Clone, Copy)]
enum CommandEnd {
    Exited(i32),
    Killed(i32),
    Unknown,
}

impl CommandEnd {
    fn of(status: Option<ExitStatus>) -> Self {
        let exited = status.and_then(|status| status.code()).map(Self::Exited);
        let killed = || status.and_then(|status| status.signal()).map(Self::Killed);
        exited.or_else(killed).unwrap_or(Self::Unknown)
    }

    fn words(self) -> String {
        match self {
            Self::Exited(status) => format!("the client exited with status {status}"),
            Self::Killed(signal) => format!("the client was killed by signal {signal}"),
            Self::Unknown => "the client ended".into(),
        }
    }
}

/// Reports a client that made no connection, or failed before it sent anything, as a failure. `end` is `None` if the
/// audit did not start the client.
fn judge_end(
    end: Option<CommandEnd>,
    address: SocketAddr,
    figures: &mut ClientFigures,
    audit: &mut Audit,
) -> Result<(), Error> {
    let reasons = failures(figures);
    let Some(end) = end else {
        return match figures.connections {
            0 => Err(Error::target(format!(
                "no client made a TLS connection to {address}{reasons}"
            ))),
            _ => Ok(()),
        };
    };
    let words = end.words();
    figures.exit_status = match end {
        CommandEnd::Exited(status) => Measured::Value(status),
        CommandEnd::Killed(_) | CommandEnd::Unknown => Measured::not(words.clone()),
    };
    let has_failed = !matches!(end, CommandEnd::Exited(0));
    if has_failed {
        audit.notes.push(words.clone());
    }
    match (figures.connections, figures.failed.is_empty()) {
        (0, true) => Err(Error::target(format!(
            "{words} and made no TLS connection to {address}: put {{url}} or {{address}} into its command, or let it read DORMOUSE_URL"
        ))),
        (0, false) => Err(Error::target(format!(
            "{words} and made no TLS connection to {address}{reasons}"
        ))),
        // Some clients (GnuTLS, TLS 1.3) verify the certificate after the handshake, and then just leave.
        (count, _) if has_failed && figures.requests == 0 => Err(Error::target(format!(
            "{words} and sent nothing on its connections ({count}); if it rejected the certificate, make it trust {{ca}}"
        ))),
        _ => Ok(()),
    }
}

fn failures(figures: &ClientFigures) -> String {
    let words: Vec<_> = figures
        .failed
        .iter()
        .map(|(reason, count)| format!("{count} × {reason}"))
        .collect();
    if words.is_empty() {
        String::new()
    } else {
        format!(" ({})", words.join("; "))
    }
}

/// Watches the client while it runs.
struct ClientMonitor<'a> {
    spec: &'a ClientSpec,
    console: &'a mut dyn Console,
    openers: Arc<Openers>,
    interrupts: Interrupts,
    began: Instant,
    samples: Vec<Sample>,
    memory_max: u64,
}

/// The client's end and the duration of its run in milliseconds.
type ClientRun = (Result<Option<CommandEnd>, Error>, f64);

impl ClientMonitor<'_> {
    fn elapsed_ms(&self) -> f64 {
        self.began.elapsed().as_secs_f64() * 1e3
    }

    /// Runs the command until it ends.
    fn attend(
        &mut self,
        environment: &Environment,
        seen: &Mutex<ConnectionLog>,
        audit: &mut Audit,
    ) -> Result<ClientRun, Error> {
        let mut client = Client::start(self.spec, environment)?;
        self.openers.watch(client.tree.clone());
        let recognition = Recognition::begin(client.tree.clone());
        let ended = self.wait(Some(&client), seen);
        let run_ms = self.elapsed_ms();
        let left = client.others();
        let end = CommandEnd::of(client.end());
        let of_tree = recognition.end();
        audit.software = self.openers.software().map_or(of_tree, Measured::Value);
        if ended.is_ok() && left > 0 {
            audit.notes.push(format!(
                "the command exited and left {left} process(es) running, which the audit stopped"
            ));
        }
        Ok((ended.map(|()| Some(end)), run_ms))
    }

    /// Waits until the client ends, the time limit is reached or an interrupt arrives.
    fn wait(&mut self, client: Option<&Client>, seen: &Mutex<ConnectionLog>) -> Result<(), Error> {
        loop {
            if let Some(client) = client {
                if !client.goes_on() {
                    return Ok(());
                }
                self.sample(&client.tree);
            }
            if client.is_none() {
                self.say_how_far(seen);
            }
            let interrupted = self.interrupts.arrived();
            if interrupted || self.began.elapsed() > self.spec.limit {
                return match (client, interrupted) {
                    (Some(_), true) => Err(Error::interrupted()),
                    (Some(_), false) => Err(Error::target(format!(
                        "the client did not exit within {} s (--limit)",
                        self.spec.limit.as_secs()
                    ))),
                    (None, _) => Ok(()),
                };
            }
            let pause = (self.began.elapsed() / 20).clamp(SAMPLE_FIRST, SAMPLE_EVERY);
            std::thread::sleep(pause);
        }
    }

    fn say_how_far(&mut self, seen: &Mutex<ConnectionLog>) {
        let seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
        let (done, failed) = (seen.connections(), seen.failed.values().sum());
        drop(seen);
        self.console.progress(&Progress {
            done,
            total: None,
            alive: 0,
            failed,
            whose: MeasuredSide::Client,
            pss_bytes: self.samples.last().map(|sample| sample.pss_bytes),
            elapsed: self.began.elapsed(),
            left: None,
        });
    }

    fn sample(&mut self, tree: &ProcessTree) {
        let Ok(sample) = TreeSample::take(tree) else {
            return;
        };
        self.memory_max = self.memory_max.max(sample.memory.pss);
        if self.samples.len() < SAMPLES_MAX {
            let cpu: CpuTime = sample.cpu;
            self.samples.push(Sample {
                at_s: self.began.elapsed().as_secs_f64(),
                alive: 0,
                pss_bytes: sample.memory.pss,
                rss_bytes: sample.memory.rss,
                cpu_s: cpu.total_ns as f64 / 1e9,
            });
        }
    }
}

/// CPU time that the client used before its first connection.
fn startup_ms(figures: &ClientFigures, samples: &[Sample]) -> Measured<f64> {
    let first_s = figures.raw.iter().map(|one| one.at_s).reduce(f64::min);
    let before = samples
        .iter()
        .take_while(|sample| first_s.is_some_and(|first_s| sample.at_s <= first_s));
    let ms = before.last().map(|sample| sample.cpu_s * 1e3);
    Measured::or_why(ms, "the first connection came before the first sample")
}

/// Uses of one session, in the order in which the handshakes ended.
struct SessionUses {
    count: u64,
    /// Uses that began after the handshake of the one before had ended.
    successive: u64,
    /// When the server had issued a newer session.
    newer_at_s: f64,
}

impl Default for SessionUses {
    fn default() -> Self {
        Self {
            count: 0,
            successive: 0,
            newer_at_s: f64::NEG_INFINITY,
        }
    }
}

/// Summarises the connections.
fn figures(seen: &ConnectionLog) -> ClientFigures {
    let mut figures = ClientFigures {
        failed: seen.failed.clone(),
        cpu_ms: Measured::not("not measured yet"),
        memory_max_bytes: Measured::not("not measured yet"),
        exit_status: Measured::not("the client did not exit by itself"),
        hello_bytes: (u64::MAX, 0),
        ..ClientFigures::default()
    };
    let mut uses: HashMap<&str, SessionUses> = HashMap::new();
    for visit in &seen.visits {
        let raw = &visit.raw;
        figures.connections += 1;
        figures.requests += raw.requests;
        figures.kept_alive += u64::from(raw.requests > 1);
        figures.resumed += u64::from(raw.resumed);
        figures.retried += u64::from(visit.retried);
        figures.handshake_ms += raw.handshake_ms;
        *figures.versions.entry(raw.version.clone()).or_default() += 1;
        figures.without_sni += u64::from(visit.hello.server_name.is_none());
        let (least, most) = figures.hello_bytes;
        figures.hello_bytes = (least.min(raw.hello_bytes), most.max(raw.hello_bytes));
        if let Some(session) = &raw.offered {
            figures.offered += 1;
            let uses = uses.entry(session).or_default();
            uses.count += 1;
            if raw.at_s > uses.newer_at_s {
                uses.successive += 1;
                uses.newer_at_s = raw.at_s + raw.handshake_ms / 1e3;
            }
            // A session id stays the same for the session's lifetime, so its reuse does not count.
            if !session.starts_with(client_hello::SESSION_ID) {
                figures.same_session_max = figures.same_session_max.max(uses.successive);
            }
            figures.tickets_reused += u64::from(uses.count > 1 && raw.version == "TLS 1.3");
        }
        if figures.raw.len() < RAW_MAX {
            figures.raw.push(raw.clone());
        }
    }
    figures.sessions_offered = uses.len() as u64;
    if figures.connections == 0 {
        figures.hello_bytes = (0, 0);
    }
    // A failed handshake also shows what the client offers.
    let completed = seen.visits.iter().map(|visit| &visit.hello);
    let mut hellos = completed.chain(&seen.in_vain);
    figures.compression_offered = hellos.clone().any(|hello| hello.compression);
    if let Some(first) = hellos.next() {
        figures.versions_offered = first.versions();
        figures.groups_offered = client_hello::group_names(&first.groups);
        figures.key_shares = client_hello::group_names(&first.key_shares);
        figures.alpn = first.alpn.clone();
    }
    figures
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::audit_server::RecordedConnection;
    use crate::model::ClientConnection;

    #[test]
    fn cpu_time_is_not_divided_by_some_of_the_connections() {
        let mut audit = Audit::begin("client", "", "");
        let mut figures = ClientFigures {
            cpu_ms: Measured::Value(7.0),
            ..ClientFigures::default()
        };
        let mut seen = ConnectionLog::default();
        note_unrecorded(&seen, &mut figures, &mut audit);
        assert_eq!((figures.cpu_ms.value(), audit.notes.len()), (Some(&7.0), 0));
        seen.unrecorded = 2;
        note_unrecorded(&seen, &mut figures, &mut audit);
        assert_eq!(figures.cpu_ms.value(), None);
        assert!(audit.notes[0].contains("made 2 more"), "{:?}", audit.notes);
    }

    /// Connections that a client opens at the same time have no newer session to offer.
    #[test]
    fn a_session_is_kept_only_if_its_uses_follow_each_other() {
        let judged = |every_s: f64| {
            let visit = |number: u32| RecordedConnection {
                raw: ClientConnection {
                    at_s: 1.0 + f64::from(number) * every_s,
                    version: "TLS 1.3".into(),
                    offered: Some("ticket 1".into()),
                    handshake_ms: 5.0,
                    ..ClientConnection::default()
                },
                hello: client_hello::ClientHello::default(),
                retried: false,
            };
            let figures = figures(&ConnectionLog {
                visits: (0..8).map(visit).collect(),
                ..ConnectionLog::default()
            });
            (figures.same_session_max, figures.tickets_reused)
        };
        assert_eq!(judged(0.010), (8, 7));
        assert_eq!(judged(0.0001), (1, 7));
    }
}
