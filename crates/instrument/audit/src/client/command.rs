//! The client's command: starts it, recognises its software and ends it, with all its child processes.

use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use dormouse_reactor::process;
use dormouse_reactor::signal;

use super::environment::Environment;
use super::spec::ClientSpec;
use crate::model::Measured;
use crate::software::{self, Software, SoftwareKind};
use dormouse_measure::Error;
use dormouse_measure::ProcessTree;
use dormouse_measure::termination;

/// Maximum wait for the client to end after SIGTERM.
const STOP_WAIT: Duration = Duration::from_secs(2);
/// Interval between attempts to recognise the client's software.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// The interval is at least this many times as long as an attempt.
const LOOK_SHARE: u32 = 9;

/// The client and all its child processes, which end when this is dropped.
pub(super) struct Client {
    child: Child,
    pub(super) tree: ProcessTree,
}

impl Client {
    pub(super) fn start(spec: &ClientSpec, environment: &Environment) -> Result<Self, Error> {
        use std::os::fd::AsFd;
        use std::os::unix::process::CommandExt;
        let mut words = spec.command.iter().map(|word| environment.fill(word));
        let program = words.next().unwrap_or_default();
        process::set_subreaper()
            .map_err(|error| Error::system(format!("becoming a subreaper: {error}")))?;
        let mut command = Command::new(&program);
        command.args(words).stdin(Stdio::null()).process_group(0);
        // Standard output is reserved for the results.
        let stderr = std::io::stderr();
        if let Ok(copy) = stderr.as_fd().try_clone_to_owned() {
            command.stdout(Stdio::from(copy));
        }
        command.envs(environment.variables());
        let number = |id: u32| i32::try_from(id).unwrap_or(i32::MAX);
        let own = number(std::process::id());
        let earlier = dormouse_measure::descendants(own);
        let child = signal::unblocked(&mut command)
            .spawn()
            .map_err(|error| Error::usage(format!("cannot start {program:?}: {error}")))?;
        let tree = ProcessTree::of_child(number(child.id()), own, earlier);
        Ok(Self { child, tree })
    }

    /// Whether the client is running.
    pub(super) fn goes_on(&self) -> bool {
        termination::is_running(&self.child)
    }

    /// Number of running child processes.
    pub(super) fn others(&self) -> usize {
        let all = self.tree.pids().unwrap_or_default();
        all.iter().filter(|pid| **pid != self.tree.root()).count()
    }

    pub(super) fn end(&mut self) -> Option<ExitStatus> {
        termination::end(&mut self.child, &self.tree, STOP_WAIT)
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        if self.goes_on() {
            self.end();
        }
    }
}

/// Recognises the client's software in its own thread: reading the program takes time, and the client may end soon.
pub(super) struct Recognition {
    over: Arc<AtomicBool>,
    looks: Option<JoinHandle<Option<Software>>>,
}

impl Recognition {
    pub(super) fn begin(tree: ProcessTree) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&over);
        let look = move || {
            let mut best = None;
            loop {
                let began = Instant::now();
                let processes = tree.describe().unwrap_or_default();
                if let Ok(found) = software::recognise(&processes, None) {
                    let known = found.kind != SoftwareKind::Unknown;
                    best = Some(found);
                    if known {
                        return best;
                    }
                }
                if told.load(Ordering::Relaxed) {
                    return best;
                }
                // A look reads up to all of a large program, on a core that the client may need.
                std::thread::park_timeout(LOOK_EVERY.max(began.elapsed() * LOOK_SHARE));
            }
        };
        let looks = std::thread::Builder::new().spawn(look).ok();
        Self { over, looks }
    }

    pub(super) fn end(self) -> Measured<Software> {
        self.over.store(true, Ordering::Relaxed);
        let found = self.looks.and_then(|looks| {
            looks.thread().unpark();
            looks.join().ok().flatten()
        });
        Measured::or_why(found, "the client exited before it was recognised")
    }
}
