//! Stops a program with all processes that it has started.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

use dormouse_reactor::process::{self, Wait};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::tree::ProcessTree;

/// Maximum time until killed processes disappear.
const KILL_WAIT: Duration = Duration::from_secs(2);
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Stops `child` with its whole tree: sends SIGTERM, waits for `patience`, sends SIGKILL, waits,
/// and reaps all exited processes. Returns the child's exit status, if it has exited.
///
/// The child must not have been waited for. Until it is reaped, its process id cannot be reused, and the
/// id is what distinguishes its group and session from other processes.
pub fn end(child: &mut Child, tree: &ProcessTree, patience: Duration) -> Option<ExitStatus> {
    let mut members = LiveProcesses::default();
    for (signal, patience) in [(Signal::TERM, patience), (Signal::KILL, KILL_WAIT)] {
        if members.end_by(signal, patience, tree) {
            break;
        }
    }
    let status = child.try_wait().ok().flatten();
    reap(tree);
    status
}

/// Returns whether a child is still running. Does not reap the child, so that its process id is not
/// reused.
pub fn is_running(child: &Child) -> bool {
    let pid = i32::try_from(child.id()).unwrap_or(i32::MAX);
    matches!(process::peek(process::Pid(pid)), Ok(None))
}

/// Processes of a tree that have not exited. Each is held by a descriptor, because a process id can
/// be reused, and a process that loses its parent is in no tree until it has a new one.
#[derive(Default)]
struct LiveProcesses(BTreeMap<i32, LiveProcess>);

struct LiveProcess {
    process: OwnedFd,
    signalled: bool,
}

impl LiveProcesses {
    /// Signals all processes, and those that join later, until all have exited or `patience` has
    /// passed.
    fn end_by(&mut self, signal: Signal, patience: Duration, tree: &ProcessTree) -> bool {
        for member in self.0.values_mut() {
            member.signalled = false;
        }
        let until = Instant::now() + patience;
        loop {
            self.find(tree);
            for member in self.0.values_mut().filter(|member| !member.signalled) {
                // A process that has exited meanwhile needs no signal.
                let _ = pidfd_send_signal(&member.process, signal);
                member.signalled = true;
            }
            reap(tree);
            if self.0.is_empty() && tree.pids().is_err() {
                return true;
            }
            if Instant::now() > until {
                return false;
            }
            self.wait(LOOK_EVERY);
        }
    }

    /// Forgets exited processes, and finds new ones.
    fn find(&mut self, tree: &ProcessTree) {
        self.0.retain(|_, member| !has_ended(&member.process));
        let listed = tree.pids().unwrap_or_default();
        let strange: Vec<_> = listed
            .iter()
            .filter(|pid| !self.0.contains_key(pid))
            .filter_map(|&pid| {
                let process = pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok()?;
                Some((pid, process))
            })
            .collect();
        if strange.is_empty() {
            return;
        }
        // The id may have been reused between listing and opening. If it is still in the tree and
        // the opened process lives, both are the same process.
        let still = tree.pids().unwrap_or_default();
        let known = strange
            .into_iter()
            .filter(|(pid, process)| still.contains(pid) && !has_ended(process))
            .map(|(pid, process)| {
                let signalled = false;
                (pid, LiveProcess { process, signalled })
            });
        self.0.extend(known);
    }

    /// Waits until one of them exits, for `time` at most.
    fn wait(&self, time: Duration) {
        let mut ends: Vec<_> = self
            .0
            .values()
            .map(|member| PollFd::new(&member.process, PollFlags::IN))
            .collect();
        let time = Timespec::try_from(time).ok();
        let _ = poll(&mut ends, time.as_ref());
    }
}

/// A process descriptor becomes readable when the process exits.
fn has_ended(process: &OwnedFd) -> bool {
    let now = Timespec::default();
    let mut end = [PollFd::new(process, PollFlags::IN)];
    matches!(poll(&mut end, Some(&now)), Ok(1..))
}

/// Reaps processes that this process inherited because their parents have exited. The root is left
/// to its `Child`, because it anchors the tree.
fn reap(tree: &ProcessTree) {
    for pid in tree.zombies() {
        if pid != tree.root() {
            let _ = process::wait(Wait::IfEnded(process::Pid(pid)));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::os::unix::process::CommandExt as _;
    use std::process::{Command, Stdio};

    use super::*;

    /// Starts a script, and waits for its first output.
    fn start(script: &str) -> (Child, ProcessTree) {
        process::set_subreaper().unwrap();
        let mut child = Command::new("/bin/sh")
            .args(["-c", script])
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn()
            .unwrap();
        let mut word = [0; 1];
        child
            .stdout
            .as_mut()
            .unwrap()
            .read_exact(&mut word)
            .unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let own = i32::try_from(std::process::id()).unwrap();
        (
            child,
            ProcessTree::of_child(pid, own, std::collections::BTreeSet::new()),
        )
    }

    /// Set in the process that runs only this test.
    const ALONE: &str = "DORMOUSE_TEST_ALONE";

    /// In a separate process: processes of other tests would be in the trees.
    #[test]
    fn no_process_and_no_zombie_is_left() {
        if std::env::var_os(ALONE).is_none() {
            let name = "termination::tests::no_process_and_no_zombie_is_left";
            let alone = Command::new(std::env::current_exe().unwrap())
                .args(["--exact", name, "--nocapture"])
                .env(ALONE, "1")
                .output()
                .unwrap();
            let said = String::from_utf8_lossy(&alone.stdout);
            assert!(
                alone.status.success() && said.contains("1 passed"),
                "{said}"
            );
            return;
        }
        for script in [
            // A process that exits on SIGTERM; its child, in its own session, ignores the signal.
            "(trap '' TERM; exec setsid sh -c 'echo; exec sleep 4321') & wait",
            // A process that has exited already and left a child behind.
            "setsid sh -c 'echo; exec sleep 4321' &",
            // A process that starts another one on SIGTERM.
            "trap 'setsid sleep 4321 & exit 3' TERM; echo; while :; do sleep 0.01; done",
        ] {
            let (mut child, tree) = start(script);
            let status = end(&mut child, &tree, Duration::from_millis(300));
            assert!(status.is_some(), "{script}");
            assert!(tree.pids().is_err(), "{script}: {:?}", tree.pids());
            assert_eq!(tree.zombies(), [0; 0], "{script}");
        }
    }
}
