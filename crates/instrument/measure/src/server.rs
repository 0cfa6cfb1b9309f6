//! The server under test: a running one, or one that the run starts and stops.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read};
use std::net::TcpStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use dormouse_reactor::process;
use dormouse_reactor::signal;
use dormouse_reactor::socket::{Addr, connect_unix};

use crate::error::Error;
use crate::sample::TreeSample;
use crate::sockets;
use crate::termination;
use crate::tree::{self, ProcessTree};

/// Maximum wait until a server opens its port.
const START_WAIT: Duration = Duration::from_secs(60);
/// Maximum wait until it exits.
const STOP_WAIT: Duration = Duration::from_secs(5);
/// Number of its last lines of output that are kept.
const LINES_KEPT: usize = 20;
const LINE_MAX: u64 = 400;

/// Where the server comes from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ServerSource {
    /// A running server that is not measured.
    Unknown,
    /// This process and its descendants.
    Pid(i32),
    /// These processes, which another part of the program has found or started, and ends.
    Tree(ProcessTree),
    /// A server that this command starts.
    Command(String),
}

/// A server that is measured.
#[derive(Debug)]
pub struct Server {
    /// Its processes.
    pub tree: ProcessTree,
    started: Option<Started>,
}

#[derive(Debug)]
struct Started {
    child: Child,
    output: Arc<Mutex<VecDeque<String>>>,
}

impl Server {
    /// Finds or starts the server. A started server listens on `target` when this returns.
    pub fn open(
        source: &ServerSource,
        target: &Addr,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<Option<Self>, Error> {
        match source {
            ServerSource::Unknown => Ok(None),
            ServerSource::Pid(pid) => Self::running(ProcessTree::of_pid(*pid)?, target).map(Some),
            ServerSource::Tree(tree) => Self::running(tree.clone(), target).map(Some),
            ServerSource::Command(command) => Self::start(command, target, go_on).map(Some),
        }
    }

    fn running(tree: ProcessTree, target: &Addr) -> Result<Self, Error> {
        let server = Self {
            tree,
            started: None,
        };
        // Fails now if the process may not be read, not after minutes of load.
        server.sample()?;
        refuse_other_server(&server.tree, target)?;
        Ok(server)
    }

    fn start(command: &str, target: &Addr, go_on: &mut dyn FnMut() -> bool) -> Result<Self, Error> {
        if listens(target) {
            return Err(Error::usage(format!(
                "another program listens on {target} already, so the load would reach the wrong server; stop that program first"
            )));
        }
        // Daemons that detach become children of this process and stay in the tree.
        process::set_subreaper()
            .map_err(|error| Error::system(format!("becoming a subreaper: {error}")))?;
        let own = i32::try_from(std::process::id()).unwrap_or(0);
        let earlier = tree::descendants(own);
        let mut shell = Command::new("/bin/sh");
        shell
            .args(["-c", command])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        let mut child = signal::unblocked(&mut shell)
            .spawn()
            .map_err(|error| Error::system(format!("cannot start {command:?}: {error}")))?;
        let output = Arc::new(Mutex::new(VecDeque::new()));
        if let (Some(out), Some(err)) = (child.stdout.take(), child.stderr.take()) {
            keep_lines(out, &output);
            keep_lines(err, &output);
        }
        let root = i32::try_from(child.id()).unwrap_or(i32::MAX);
        let tree = ProcessTree::of_child(root, own, earlier);
        let mut server = Self {
            tree,
            started: Some(Started { child, output }),
        };
        server.wait_for_port(command, target, go_on)?;
        Ok(server)
    }

    fn wait_for_port(
        &mut self,
        command: &str,
        target: &Addr,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<(), Error> {
        let until = Instant::now() + START_WAIT;
        while !listens(target) {
            if !go_on() {
                return Err(Error::lost("interrupted"));
            }
            if self.tree.pids().is_err() {
                let output = self.last_words();
                return Err(Error::target(format!(
                    "the server {command:?} exited before it listened on {target}{output}"
                )));
            }
            if Instant::now() > until {
                let output = self.last_words();
                let waited = START_WAIT.as_secs();
                return Err(Error::target(format!(
                    "the server {command:?} does not listen on {target} after {waited} s{output}"
                )));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    /// Reads the whole process tree.
    pub fn sample(&self) -> Result<TreeSample, Error> {
        TreeSample::take(&self.tree).map_err(|mut error| {
            error.message.push_str(&self.last_words());
            error
        })
    }

    /// Returns the server's last lines of output, for an error message.
    fn last_words(&self) -> String {
        let Some(started) = &self.started else {
            return String::new();
        };
        let lines = started
            .output
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if lines.is_empty() {
            return String::new();
        }
        let lines: Vec<_> = lines.iter().map(|line| format!("\n    | {line}")).collect();
        format!("; its last output:{}", lines.concat())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(started) = &mut self.started {
            termination::end(&mut started.child, &self.tree, STOP_WAIT);
        }
    }
}

/// Refuses processes that certainly do not serve `target`, because others listen there: the figures would be theirs, of
/// a server without a connection, and every limit would be met.
fn refuse_other_server(tree: &ProcessTree, target: &Addr) -> Result<(), Error> {
    let Addr::Tcp(address) = target else {
        return Ok(());
    };
    let listening = sockets::listening(tree.root(), address.port());
    let inodes: Vec<_> = listening.into_iter().map(|socket| socket.inode).collect();
    let pids = tree.pids()?;
    // A process in another network, such as a container's, may serve a port that is forwarded to it.
    let is_unknown = inodes.is_empty() || pids.iter().any(|pid| !sockets::are_readable(*pid));
    if is_unknown || pids.iter().any(|pid| sockets::holds_any(*pid, &inodes)) {
        return Ok(());
    }
    let root = tree.root();
    Err(Error::usage(format!(
        "process {root} and its descendants do not listen on {target}, but another process does; `ss -tlnp` shows which"
    )))
}

/// Returns whether `target` accepts a connection.
fn listens(target: &Addr) -> bool {
    let patience = Duration::from_secs(1);
    match target {
        Addr::Tcp(address) => TcpStream::connect_timeout(address, patience).is_ok(),
        Addr::Unix(path) => connect_unix(path, patience).is_ok(),
    }
}

/// Keeps the last lines of a server's output, and drains its pipe.
fn keep_lines(output: impl Read + Send + 'static, kept: &Arc<Mutex<VecDeque<String>>>) {
    let kept = Arc::clone(kept);
    // Without the thread, the server would block on a full pipe; the run would then report that it
    // stopped answering.
    let _ = std::thread::Builder::new().spawn(move || {
        let mut reader = BufReader::new(output);
        let mut line = Vec::new();
        loop {
            line.clear();
            match reader.by_ref().take(LINE_MAX).read_until(b'\n', &mut line) {
                Ok(0) | Err(_) => return,
                Ok(_) => {
                    let mut lines = kept.lock().unwrap_or_else(PoisonError::into_inner);
                    lines.push_back(String::from_utf8_lossy(&line).trim_end().to_owned());
                    if lines.len() > LINES_KEPT {
                        lines.pop_front();
                    }
                }
            }
        }
    });
}
