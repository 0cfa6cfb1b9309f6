//! The child processes: `serve` and the echo server behind it. Dropping this value stops them; the
//! kernel stops them if this process ends without that.

use std::fs::{self, DirBuilder};
use std::io::{self, BufRead as _, BufReader};
use std::net::TcpListener;
use std::os::unix::fs::DirBuilderExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use dormouse_engine::Identity;
use dormouse_reactor::process::{self, Pid};
use dormouse_reactor::signal::Signal;

use super::backend::Fault;
use super::plan::WORKERS;
use super::random::Random;

/// The name in the certificate, which every client verifies.
pub(super) const SERVER_NAME: &str = "localhost";

/// Limit on the start, longer than any machine needs.
const START_TIMEOUT: Duration = Duration::from_secs(20);
/// How long `serve` may take to end before it is killed.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);
/// Number of log lines that are kept for error messages.
const LINES_MAX: usize = 12;

/// The running processes.
pub(super) struct Children {
    serve: Child,
    backend: Child,
    log: Log,
    /// The command that a user would type to start this `serve`.
    pub(super) command: String,
    /// The address that `serve` listens on.
    pub(super) address: String,
    /// The certificate of `serve`, as PEM.
    pub(super) certificate: String,
}

impl Children {
    /// Starts both, and waits until `serve` is ready.
    pub(super) fn start(fault: Option<Fault>) -> Result<Children, String> {
        let (mut backend, to) = start_backend(fault)?;
        let started = start_serve(&to);
        if started.is_err() {
            end(&mut backend);
        }
        let (serve, log, command, address, certificate) = started?;
        Ok(Children {
            serve,
            backend,
            log,
            command,
            address,
            certificate,
        })
    }

    /// Returns the main process of `serve`, the root of its process tree.
    pub(super) fn serve_pid(&self) -> i32 {
        self.serve.id() as i32
    }

    /// Returns an error if one of the processes has exited.
    pub(super) fn check(&mut self) -> Result<(), String> {
        if let Ok(Some(status)) = self.serve.try_wait() {
            return Err(format!("`serve` has exited ({status}){}", self.log.shown()));
        }
        match self.backend.try_wait() {
            Ok(Some(status)) => Err(format!("the echo server has exited ({status})")),
            _ => Ok(()),
        }
    }
}

impl Drop for Children {
    fn drop(&mut self) {
        // SIGTERM first, so that `serve` stops its workers.
        let _ = process::send_signal(Pid(self.serve_pid()), Signal::Terminate);
        let until = Instant::now() + STOP_TIMEOUT;
        while matches!(self.serve.try_wait(), Ok(None)) && Instant::now() < until {
            thread::sleep(Duration::from_millis(5));
        }
        end(&mut self.serve);
        end(&mut self.backend);
    }
}

/// Kills a process, unless it has exited, and reaps it.
fn end(child: &mut Child) {
    let _ = child.kill();
    let _ = child.wait();
}

fn start_backend(fault: Option<Fault>) -> Result<(Child, String), String> {
    let mut command = part("echo");
    if let Some(fault) = fault {
        command.args(["--fault", fault.name()]);
    }
    let failed = |error: io::Error| format!("cannot start the echo server: {error}");
    let mut child = command.stdout(Stdio::piped()).spawn().map_err(failed)?;
    let mut address = String::new();
    if let Some(output) = child.stdout.take() {
        let _ = BufReader::new(output).read_line(&mut address);
    }
    match address.trim() {
        "" => {
            end(&mut child);
            Err("the echo server exited before it printed its address".to_owned())
        }
        address => Ok((child, address.to_owned())),
    }
}

type Serving = (Child, Log, String, String, String);

fn start_serve(to: &str) -> Result<Serving, String> {
    let site = Site::new()?;
    let address = free_address().map_err(|error| format!("no free port: {error}"))?;
    let (cert, key) = (site.path("site.pem"), site.path("site.key"));
    let workers = WORKERS.to_string();
    let arguments = [
        "--listen",
        &address,
        "--to",
        to,
        "--cert",
        &cert,
        "--key",
        &key,
        "--workers",
        &workers,
    ];
    let mut child = part("serve")
        .args(["--", "dormouse", "serve"])
        .args(arguments)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| format!("cannot start `serve`: {error}"))?;
    let log = Log::of(child.stderr.take());
    let until = Instant::now() + START_TIMEOUT;
    while !log.is_ready() {
        let ended = child.try_wait().ok().flatten();
        if ended.is_some() || Instant::now() > until {
            end(&mut child);
            return Err(format!("`serve` did not become ready{}", log.shown()));
        }
        thread::sleep(Duration::from_millis(10));
    }
    let command = format!(
        "dormouse serve --listen {address} --to {to} --cert site.pem --key site.key --workers {workers}"
    );
    Ok((child, log, command, address, site.certificate.clone()))
}

/// Returns a command that runs this binary as a part of the demo. It has a process group of its
/// own: Ctrl-C reaches the demo alone, which then stops the others.
fn part(name: &str) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command
        .arg0("dormouse")
        .args([
            "demo-part",
            name,
            "--parent",
            &std::process::id().to_string(),
        ])
        .env("RUST_BACKTRACE", "0")
        .stdin(Stdio::null())
        .process_group(0);
    command
}

/// Returns an address with a free port.
fn free_address() -> io::Result<String> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?
        .local_addr()?
        .to_string())
}

/// A directory with a new certificate and its key. It exists until `serve` has read them.
struct Site {
    directory: PathBuf,
    certificate: String,
}

impl Site {
    fn new() -> Result<Site, String> {
        let (certificate, key) =
            Identity::self_signed_pem(SERVER_NAME).map_err(|error| error.to_string())?;
        let name = format!(
            "dormouse-demo-{}-{:x}",
            std::process::id(),
            Random::new().below(1 << 30)
        );
        let directory = std::env::temp_dir().join(name);
        let refused = |error: io::Error| format!("{}: {error}", directory.display());
        DirBuilder::new()
            .mode(0o700)
            .create(&directory)
            .map_err(refused)?;
        let site = Site {
            directory: directory.clone(),
            certificate,
        };
        fs::write(directory.join("site.pem"), &site.certificate)
            .and_then(|()| fs::write(directory.join("site.key"), key.as_bytes()))
            .map_err(refused)?;
        Ok(site)
    }

    fn path(&self, name: &str) -> String {
        self.directory.join(name).display().to_string()
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// The last lines of the log of `serve`.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Lines>>);

#[derive(Default)]
struct Lines {
    ready: bool,
    last: Vec<String>,
}

impl Log {
    /// Reads the log in a thread until it ends: a full pipe would block `serve`.
    fn of(output: Option<ChildStderr>) -> Log {
        let log = Log::default();
        let reader = log.clone();
        if let Some(output) = output {
            thread::spawn(move || {
                for line in BufReader::new(output).lines().map_while(Result::ok) {
                    reader.add(line);
                }
            });
        }
        log
    }

    fn add(&self, line: String) {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        lines.ready |= line.contains("ready");
        if lines.last.len() >= LINES_MAX {
            lines.last.remove(0);
        }
        lines.last.push(line);
    }

    fn is_ready(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).ready
    }

    /// Returns the last lines, to append to a message.
    fn shown(&self) -> String {
        let lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match lines.last.as_slice() {
            [] => "; it logged nothing".to_owned(),
            last => format!("; its last log lines:\n  {}", last.join("\n  ")),
        }
    }
}
