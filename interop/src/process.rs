//! Processes that belong to a test and end with it.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::wait;

/// A running process whose output goes to a file. Dropping it ends the process and its descendants; a
/// failing test shows the log.
pub struct Process {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts a program. Its output goes to a file in `folder`.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn start(name: &str, arguments: &[String], folder: &Path) -> Self {
        let log = folder.join(format!("{name}.log"));
        let output = File::create(&log).expect("a log file in the test's own folder");
        let (program, arguments) = arguments.split_first().expect("a program to start");
        let child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(output.try_clone().expect("a second handle of the log"))
            .stderr(output)
            .spawn()
            .unwrap_or_else(|error| panic!("{name}: cannot start {program}: {error}"));
        Self {
            name: name.to_owned(),
            child,
            log,
        }
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The output so far.
    pub fn log(&self) -> String {
        let bytes = std::fs::read(&self.log).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Lines of the log that contain `text`, in any case.
    pub fn lines_with(&self, text: &str) -> Vec<String> {
        let text = text.to_lowercase();
        self.log()
            .lines()
            .filter(|line| line.to_lowercase().contains(&text))
            .map(str::to_owned)
            .collect()
    }

    /// Waits until the log has this many lines that contain `text`, in any case, and returns all that it has. What a peer
    /// sees of an event says nothing about its line: the line may be written after the peer was answered.
    ///
    /// # Panics
    /// When they do not come within [`wait::PATIENCE`].
    pub fn logged(&self, text: &str, count: usize) -> Vec<String> {
        let what = format!("{count} lines of {} with `{text}`", self.name);
        wait::until(&what, wait::PATIENCE, || {
            let lines = self.lines_with(text);
            (lines.len() >= count).then_some(lines)
        })
    }

    /// Waits for a line with this text, in any case.
    ///
    /// # Panics
    /// When the line does not come, or the process exits before.
    pub fn wait_for_line(&mut self, text: &str, within: Duration) -> String {
        let what = format!("{} to write a line with `{text}`", self.name);
        wait::until(&what, within, || {
            let line = self.lines_with(text).into_iter().next();
            if line.is_none()
                && let Ok(Some(status)) = self.child.try_wait()
            {
                panic!("expected {what}, but it ended with {status}");
            }
            line
        })
    }

    /// Waits for the exit of the process.
    ///
    /// # Panics
    /// When the process runs for longer.
    pub fn wait_for_end(&mut self, within: Duration) -> ExitStatus {
        let what = format!("{} to end", self.name);
        wait::until(&what, within, || {
            self.child.try_wait().expect("the status of a child")
        })
    }

    /// Ends it by SIGTERM, and waits for its exit.
    ///
    /// # Panics
    /// When it runs for longer than [`wait::PATIENCE`].
    pub fn terminate(&mut self) -> ExitStatus {
        signal(self.pid(), Signal::TERM);
        self.wait_for_end(wait::PATIENCE)
    }

    /// Requests an upgrade, and waits until the new binary runs.
    ///
    /// # Panics
    /// When the upgrade fails.
    pub fn upgrade(&self) {
        self.upgrade_until("new binary running");
    }

    /// Requests an upgrade, and waits for another line of the log with its result.
    ///
    /// # Panics
    /// When the line does not come.
    pub fn upgrade_until(&self, result: &str) {
        let before = self.lines_with(result).len();
        signal(self.pid(), Signal::USR2);
        wait::until_true(&format!("a line with `{result}`"), || {
            self.lines_with(result).len() > before
        });
    }

    /// Whether it still runs.
    pub fn runs(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// The process and all of its descendants.
    pub fn tree(&self) -> Vec<u32> {
        self.tree_among(&parents())
    }

    fn tree_among(&self, all: &[(u32, u32)]) -> Vec<u32> {
        let mut tree = vec![self.pid()];
        let mut next = 0;
        while let Some(&parent) = tree.get(next) {
            tree.extend(
                all.iter()
                    .filter(|(_, of)| *of == parent)
                    .map(|(pid, _)| *pid),
            );
            next += 1;
        }
        tree
    }

    /// The processes of the tree without children: those that do the work.
    pub fn leaves(&self) -> Vec<u32> {
        let all = parents();
        let mut tree = self.tree_among(&all);
        tree.retain(|pid| !all.iter().any(|(_, parent)| parent == pid));
        tree
    }

    /// The running workers. (A keeper without a worker has no children, too.)
    pub fn workers(&self) -> Vec<u32> {
        let mut workers = self.leaves();
        workers.retain(|&pid| name(pid).starts_with("worker"));
        workers
    }

    /// Kills all workers, each between two events ([`kill_asleep`]).
    pub fn kill_workers(&self) {
        self.workers().into_iter().for_each(kill_asleep);
    }

    /// The first of its processes with this name.
    pub fn named(&self, wanted: &str) -> Option<u32> {
        self.tree().into_iter().find(|&pid| name(pid) == wanted)
    }

    /// Waits for the successor of the first worker.
    ///
    /// # Panics
    /// When it does not start.
    pub fn successor_of(&self, first: u32) -> u32 {
        wait::until("the next worker", wait::PATIENCE, || {
            self.named("worker-0").filter(|pid| *pid != first)
        })
    }

    /// The parent of a process.
    pub fn parent_of(&self, pid: u32) -> Option<u32> {
        stat_field(pid, 1)?.parse().ok()
    }

    /// Ends the processes that remain after the exit of this one: those with this log as their output.
    pub fn end_orphans(&self) {
        let is_ours = |pid: u32| {
            let output = std::fs::read_link(format!("/proc/{pid}/fd/2"));
            output.is_ok_and(|file| file == self.log)
        };
        // A keeper may start another worker before it is ended.
        for _ in 0..3 {
            for (pid, _) in parents() {
                if is_ours(pid) {
                    signal(pid, Signal::KILL);
                }
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Proportional set size of the whole tree, in bytes.
    ///
    /// # Panics
    /// When it cannot be read.
    pub fn memory(&self) -> u64 {
        self.sum(|pid| of_rollup(pid, "Pss:"))
    }

    /// Memory of the tree without its program files, in bytes. Unlike [`Process::memory`] it does not depend on
    /// other processes of the same program, nor on the build time (file pages count as dirty until they are on
    /// the disk).
    ///
    /// # Panics
    /// When it cannot be read.
    pub fn own_memory(&self) -> u64 {
        self.sum(|pid| of_rollup(pid, "Pss_Anon:") + of_rollup(pid, "Pss_Shmem:"))
    }

    /// The sum over the whole tree. Its processes may end meanwhile.
    fn sum(&self, bytes: impl Fn(u32) -> u64) -> u64 {
        let sum = self.tree().into_iter().map(bytes).sum();
        assert!(
            sum > 0,
            "the memory of {} cannot be read: dormouse closes its processes to other users, so this test needs root",
            self.name
        );
        sum
    }

    fn stop(&mut self) {
        let tree: Vec<_> = self
            .tree()
            .into_iter()
            .map(|pid| (pid, started(pid)))
            .collect();
        signal(self.pid(), Signal::TERM);
        let end = std::time::Instant::now() + Duration::from_secs(3);
        while self.runs() && std::time::Instant::now() < end {
            std::thread::sleep(Duration::from_millis(10));
        }
        // The kernel may have reused a process id.
        for (pid, since) in tree.into_iter().skip(1) {
            if since.is_some() && started(pid) == since {
                signal(pid, Signal::KILL);
            }
        }
        // It may have exited already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.stop();
        if std::thread::panicking() {
            let log = self.log();
            let skipped = log.lines().count().saturating_sub(60);
            let tail: Vec<&str> = log.lines().skip(skipped).collect();
            eprintln!("---- log of {} ----\n{}\n----", self.name, tail.join("\n"));
        }
    }
}

/// Sends a signal to a process of the test, which may have exited already.
pub fn signal(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        let _ = kill_process(pid, signal);
    }
}

/// The name of a process. Empty when there is no such process.
pub fn name(pid: u32) -> String {
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    name.trim_end().to_owned()
}

/// Changes a limit of a process, as `prlimit` and `setpriv` must be there to do. The process's own user may lower limits and
/// raise soft ones; root may not without CAP_SYS_RESOURCE.
///
/// # Panics
/// When `prlimit` refuses.
pub fn limit(pid: u32, limit: &str) {
    let id = |name: &str| {
        let ids = status(pid, name);
        ids.split_whitespace().take(1).collect::<String>()
    };
    let user = [
        "--reuid",
        &id("Uid:"),
        "--regid",
        &id("Gid:"),
        "--clear-groups",
    ];
    let set = Command::new("setpriv")
        .args(user)
        .args(["prlimit", "--pid", &pid.to_string(), limit])
        .status()
        .expect("setpriv starts");
    assert!(set.success(), "prlimit {limit}: {set}");
}

/// A line of /proc/PID/status, such as `Uid:`. Empty when there is none.
pub fn status(pid: u32, name: &str) -> String {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    line.unwrap_or_default().trim().to_owned()
}

/// The command line of a process, as in process lists. Empty when there is no such process.
pub fn title(pid: u32) -> String {
    let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words = String::from_utf8_lossy(&words).replace('\0', " ");
    words.trim_end().to_owned()
}

/// Waits until a process sleeps with all its threads, because a process that has just answered may still
/// be working.
///
/// # Panics
/// When it keeps working.
pub fn until_asleep(pid: u32) {
    let is_asleep = |task: std::fs::DirEntry| {
        let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
        field(&stat, 0).as_deref() == Some("S")
    };
    wait::until("a process to wait", wait::PATIENCE, || {
        let mut tasks = std::fs::read_dir(format!("/proc/{pid}/task"))
            .ok()?
            .flatten();
        tasks.all(is_asleep).then_some(())
    });
}

/// Kills a worker between two events. A worker that has just answered may still mark the connection as busy, and a
/// kill would then rightly cost that connection.
///
/// # Panics
/// When the worker keeps working.
pub fn kill_asleep(worker: u32) {
    until_asleep(worker);
    signal(worker, Signal::KILL);
}

/// Waits until these processes have ended.
///
/// # Panics
/// When one keeps running.
pub fn until_ended(pids: &[u32]) {
    wait::until_true("all processes to end", || {
        let has_ended = |&pid: &u32| stat_field(pid, 0).is_none_or(|state| state == "Z");
        pids.iter().all(has_ended)
    });
}

/// CPU time of all threads of a process, as the scheduler counts it.
///
/// # Panics
/// When the process has exited.
pub fn cpu_time(pid: u32) -> Duration {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("a process that lives");
    let nanoseconds = tasks.flatten().map(|task| {
        let text = std::fs::read_to_string(task.path().join("schedstat")).unwrap_or_default();
        let first = text.split_whitespace().next();
        first.and_then(|number| number.parse().ok()).unwrap_or(0)
    });
    Duration::from_nanos(nanoseconds.sum())
}

/// Start time of a process, in ticks since boot. (Process ids are reused.)
pub fn started(pid: u32) -> Option<u64> {
    stat_field(pid, 19)?.parse().ok()
}

/// A field of /proc/PID/stat, counted from the one after the name.
fn stat_field(pid: u32, number: usize) -> Option<String> {
    field(
        &std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?,
        number,
    )
}

fn field(stat: &str, number: usize) -> Option<String> {
    // The name is in parentheses and may contain any character.
    let fields = stat.rsplit_once(')')?.1;
    fields.split_whitespace().nth(number).map(str::to_owned)
}

/// Every process with its parent, except zombies.
fn parents() -> Vec<(u32, u32)> {
    let entries = std::fs::read_dir("/proc").expect("/proc");
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter_map(|pid: u32| {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
            let parent = field(&stat, 1)?.parse().ok()?;
            (field(&stat, 0)? != "Z").then_some((pid, parent))
        })
        .collect()
}

/// A line of /proc/PID/smaps_rollup, in bytes. 0 when it cannot be read.
fn of_rollup(pid: u32, name: &str) -> u64 {
    let rollup = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    let kilobytes = rollup
        .lines()
        .find_map(|line| line.strip_prefix(name))
        .and_then(|rest| rest.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kilobytes.unwrap_or(0) * 1024
}
