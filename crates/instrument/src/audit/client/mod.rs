//! `audit client`: how a TLS client connects, resumes, and what it spends.
//!
//! The audit is the client's server, with a certificate of an authority made for this run, whose
//! certificate is handed to the client through the environment. Every ClientHello is read before
//! the engine gets it.

mod hello;
mod peer;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use dormouse_reactor::process;
use dormouse_reactor::signal::Signals;
use dormouse_reactor::socket::Attempt;

use self::peer::{Peer, Seen};
use super::again;
use super::model::{Audit, ClientFigures, Measured};
use super::server::hello::{GROUPS, name_of};
use super::software;
use crate::measure::{CpuTime, ProcessTree, TreeSample};
use crate::model::Sample;
use crate::server::end;
use crate::session::{Console, Progress};
use crate::signals;
use crate::trouble::Trouble;

/// Variables by which programs are told whom to trust.
const TRUST_VARIABLES: [&str; 11] = [
    "SSL_CERT_FILE",
    "NODE_EXTRA_CA_CERTS",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "PERL_LWP_SSL_CA_FILE",
    "HTTPS_CA_FILE",
    "GIT_SSL_CAINFO",
    "AWS_CA_BUNDLE",
    "CARGO_HTTP_CAINFO",
    "PIP_CERT",
    "DORMOUSE_CA",
];
/// Connections that are kept one by one.
const RAW_MAX: usize = 1000;
const SAMPLE_EVERY: Duration = Duration::from_millis(50);
const SAMPLES_MAX: usize = 2000;
/// How long a client may take to end when it is told to.
const END_WAIT: Duration = Duration::from_secs(2);

/// What is to be audited, and how.
#[derive(Clone, PartialEq, Debug)]
pub struct ClientSpec {
    /// The client's name in reports.
    pub label: String,
    /// Its command: program and arguments, in which `{url}`, `{address}`, `{port}` and `{ca}` are
    /// replaced. Empty: somebody else starts clients.
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

/// Audits a client. Whatever goes wrong is in its outcome, with the figures so far.
pub fn run(spec: &ClientSpec, console: &mut dyn Console) -> Audit {
    let command = again::line(&spec.command);
    let target = if command.is_empty() {
        spec.listen.to_string()
    } else {
        command
    };
    let mut audit = Audit::begin("client", &spec.label, &target);
    let began = Instant::now();
    let end = look(spec, console, &mut audit, began);
    audit.duration_s = began.elapsed().as_secs_f64();
    audit.conclude(end);
    audit
}

fn look(
    spec: &ClientSpec,
    console: &mut dyn Console,
    audit: &mut Audit,
    began: Instant,
) -> Result<(), Trouble> {
    let signals = signals::open();
    let peer = Peer::open(spec.listen, spec.relay)?;
    let directory = Directory::make()?;
    let ca = spec
        .ca_file
        .clone()
        .unwrap_or_else(|| directory.0.join("ca.pem"));
    std::fs::write(&ca, peer.authority_pem())
        .map_err(|error| Trouble::system(format!("cannot write {}: {error}", ca.display())))?;
    let address = peer.address();
    let mut put =
        |name: &str, value: String| drop(audit.settings.insert(name.into(), value.into()));
    put("address", address.to_string());
    put("ca", ca.display().to_string());
    if let Some(relay) = spec.relay {
        put("relay", relay.to_string());
    }
    let stop = Arc::new(AtomicBool::new(false));
    let seen = Arc::new(Mutex::new(Seen::default()));
    let server = peer.start(Arc::clone(&seen), Arc::clone(&stop), began);
    let title = if spec.command.is_empty() {
        format!(
            "listening on https://localhost:{} (CA: {})",
            address.port(),
            ca.display()
        )
    } else {
        "the client runs".into()
    };
    console.stage(&title, None);
    let mut watch = Watch {
        spec,
        console,
        signals,
        began,
        samples: Vec::new(),
        memory_max: 0,
        software: None,
    };
    let cpu_before = children_ms();
    let ended = if spec.command.is_empty() {
        watch.wait(None, &seen)
    } else {
        let child = start(spec, address, &ca)?;
        watch.wait(Some(child), &seen)
    };
    watch.console.stage_over();
    stop.store(true, Ordering::Relaxed);
    let _ = server.join();
    let cpu_ms = children_ms() - cpu_before;
    audit.samples = watch.samples;
    if let Some(software) = watch.software {
        audit.software = Measured::Measured(software);
    }
    let seen = std::mem::take(&mut *seen.lock().unwrap_or_else(PoisonError::into_inner));
    let mut figures = figures(&seen);
    figures.run_ms = began.elapsed().as_secs_f64() * 1e3;
    if spec.command.is_empty() {
        let foreign = "the client was started by somebody else";
        figures.cpu_ms = Measured::not(foreign);
        figures.memory_max_bytes = Measured::not(foreign);
        figures.exit_status = Measured::not(foreign);
        audit.software = Measured::not(foreign);
    } else {
        figures.cpu_ms = Measured::Measured(cpu_ms);
        figures.memory_max_bytes = match watch.memory_max {
            0 => Measured::not("the client ended before it could be read"),
            most => Measured::Measured(most),
        };
    }
    let outcome = ended.and_then(|status| judge_end(status, address, &mut figures, audit));
    audit.client = Some(figures);
    outcome
}

/// A client which made no connection is never clean.
fn judge_end(
    status: Option<i32>,
    address: SocketAddr,
    figures: &mut ClientFigures,
    audit: &mut Audit,
) -> Result<(), Trouble> {
    if let Some(status) = status {
        figures.exit_status = Measured::Measured(status);
        if status != 0 {
            let note = format!("the client ended with exit status {status}");
            audit.notes.push(note);
        }
    }
    if figures.connections > 0 {
        return Ok(());
    }
    let whose = status.map_or_else(
        || "no client".to_owned(),
        |status| format!("the client ended with exit status {status} and"),
    );
    let reasons = failures(figures);
    let words = match status {
        Some(_) => format!("{whose} made no TLS connection to {address}{reasons}"),
        None => format!("{whose} made a TLS connection to {address}{reasons}"),
    };
    Err(Trouble::target(words))
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

/// A directory that goes away with the run.
struct Directory(PathBuf);

impl Directory {
    fn make() -> Result<Self, Trouble> {
        let path = std::env::temp_dir().join(format!("dormouse-audit-{}", std::process::id()));
        std::fs::create_dir_all(&path)
            .map_err(|error| Trouble::system(format!("cannot make {}: {error}", path.display())))?;
        Ok(Self(path))
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn start(spec: &ClientSpec, address: SocketAddr, ca: &Path) -> Result<Child, Trouble> {
    use std::os::unix::process::CommandExt;
    let url = format!("https://localhost:{}/", address.port());
    let fill = |word: &String| {
        word.replace("{url}", &url)
            .replace("{address}", &address.to_string())
            .replace("{port}", &address.port().to_string())
            .replace("{ca}", &ca.display().to_string())
    };
    let mut words = spec.command.iter().map(fill);
    let program = words.next().unwrap_or_default();
    process::set_subreaper()
        .map_err(|error| Trouble::system(format!("becoming a subreaper: {error}")))?;
    let mut command = Command::new(&program);
    command.args(words).stdin(Stdio::null()).process_group(0);
    // The results alone go to the standard output.
    let stderr = std::io::stderr();
    use std::os::fd::AsFd;
    if let Ok(copy) = stderr.as_fd().try_clone_to_owned() {
        command.stdout(Stdio::from(copy));
    }
    for variable in TRUST_VARIABLES {
        command.env(variable, ca);
    }
    command.env("DORMOUSE_URL", &url);
    command.env("DORMOUSE_ADDRESS", address.to_string());
    command.env("DORMOUSE_PORT", address.port().to_string());
    command
        .spawn()
        .map_err(|error| Trouble::usage(format!("cannot start {program:?}: {error}")))
}

/// The CPU time of children that were waited for, in milliseconds.
fn children_ms() -> f64 {
    let own = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let (_, fields) = own.rsplit_once(')').unwrap_or_default();
    let ticks: u64 = fields
        .split_whitespace()
        .skip(13)
        .take(2)
        .filter_map(|ticks| ticks.parse::<u64>().ok())
        .sum();
    ticks as f64 * 1e3 / rustix::param::clock_ticks_per_second().max(1) as f64
}

/// What happens while the client runs.
struct Watch<'a> {
    spec: &'a ClientSpec,
    console: &'a mut dyn Console,
    signals: Option<Signals>,
    began: Instant,
    samples: Vec<Sample>,
    memory_max: u64,
    software: Option<software::Software>,
}

impl Watch<'_> {
    /// Waits for the end: the client's, the limit, or an interrupt. The exit status, if there is one.
    fn wait(&mut self, child: Option<Child>, seen: &Mutex<Seen>) -> Result<Option<i32>, Trouble> {
        let own = i32::try_from(std::process::id()).unwrap_or(0);
        let id = child
            .as_ref()
            .and_then(|child| i32::try_from(child.id()).ok());
        let tree = id.map(|id| ProcessTree::of_child(id, own));
        let mut child = child;
        loop {
            let ended = child.as_mut().map_or(Ok(None), Child::try_wait);
            if let Some(status) = ended.map_err(|error| Trouble::system(error.to_string()))? {
                return Ok(Some(status.code().unwrap_or(128)));
            }
            if let Some(tree) = &tree {
                self.sample(tree);
            }
            let count = seen
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .connections();
            self.console.progress(&Progress {
                done: count,
                total: None,
                alive: 0,
                failed: 0,
                pss_bytes: self.samples.last().map(|sample| sample.pss_bytes),
                elapsed: self.began.elapsed(),
                left: None,
            });
            let interrupted = matches!(
                self.signals.as_ref().map(Signals::receive),
                Some(Ok(Attempt::Done(_)))
            );
            if interrupted || self.began.elapsed() > self.spec.limit {
                let command = child.is_some();
                stop(child, tree.as_ref());
                return match (command, interrupted) {
                    (true, true) => Err(Trouble::lost("interrupted; figures so far")),
                    (true, false) => Err(Trouble::target(format!(
                        "the client did not end within {} s (--limit)",
                        self.spec.limit.as_secs()
                    ))),
                    (false, _) => Ok(None),
                };
            }
            std::thread::sleep(SAMPLE_EVERY);
        }
    }

    fn sample(&mut self, tree: &ProcessTree) {
        let Ok(sample) = TreeSample::take(tree) else {
            return;
        };
        self.memory_max = self.memory_max.max(sample.memory.pss);
        if self
            .software
            .as_ref()
            .is_none_or(|software| software.kind == software::Kind::Unknown)
        {
            let processes = tree.describe().unwrap_or_default();
            self.software = software::recognise(&processes, None).ok();
        }
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

/// Ends a client which does not end by itself, with all that it started.
fn stop(child: Option<Child>, tree: Option<&ProcessTree>) {
    if let (Some(mut child), Some(tree)) = (child, tree) {
        end(&mut child, tree, END_WAIT);
    }
}

/// What the connections say together.
fn figures(seen: &Seen) -> ClientFigures {
    let mut figures = ClientFigures {
        failed: seen.failed.clone(),
        cpu_ms: Measured::not("not yet"),
        memory_max_bytes: Measured::not("not yet"),
        exit_status: Measured::not("it did not end by itself"),
        hello_bytes: (u64::MAX, 0),
        ..ClientFigures::default()
    };
    let mut uses: HashMap<&str, u64> = HashMap::new();
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
        figures.compression_offered |= visit.hello.compression;
        let (least, most) = figures.hello_bytes;
        figures.hello_bytes = (least.min(raw.hello_bytes), most.max(raw.hello_bytes));
        if let Some(session) = &raw.offered {
            figures.offered += 1;
            let count = uses.entry(session).or_default();
            *count += 1;
            figures.tickets_reused += u64::from(*count > 1 && raw.version == "TLS 1.3");
        }
        if figures.raw.len() < RAW_MAX {
            figures.raw.push(raw.clone());
        }
    }
    figures.sessions_offered = uses.len() as u64;
    figures.same_session_max = uses.values().copied().max().unwrap_or(0);
    if figures.connections == 0 {
        figures.hello_bytes = (0, 0);
    }
    if let Some(first) = seen.visits.first() {
        figures.versions_offered = first.hello.versions();
        let names = |ids: &[u16]| ids.iter().map(|id| name_of(&GROUPS, *id)).collect();
        figures.groups_offered = names(&first.hello.groups);
        figures.key_shares = names(&first.hello.key_shares);
        figures.alpn = first.hello.alpn.clone();
    }
    figures
}
