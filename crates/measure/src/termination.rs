//! Ending what was started, with everything that it has started in its turn.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

use dormouse_reactor::process::{self, Wait};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::tree::ProcessTree;

/// How long those that were killed have until they are gone: even a kill takes its time.
const KILL_WAIT: Duration = Duration::from_secs(2);
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Ends `child` with its whole tree: asks, waits for as long as `patience`, kills, waits, and takes
/// note of all that have ended. Returns how the child ended, if it did.
///
/// The child must not have been waited for: for as long as nobody took note of its end, its number
/// is nobody else's, and those of its group and session are told apart from strangers by it.
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

/// Whether a child goes on. No note is taken of its end, so its number stays its own.
pub fn goes_on(child: &Child) -> bool {
    let pid = i32::try_from(child.id()).unwrap_or(i32::MAX);
    matches!(process::peek(process::Pid(pid)), Ok(None))
}

/// Those of a tree that have not ended. Each is held by a descriptor: a number can be somebody
/// else's a moment later, and who loses its parent is in no tree until it has another; a descriptor
/// is of one process only.
#[derive(Default)]
struct LiveProcesses(BTreeMap<i32, LiveProcess>);

struct LiveProcess {
    process: OwnedFd,
    signalled: bool,
}

impl LiveProcesses {
    /// Tells all, and those who join later, until they are gone or `patience` is over.
    fn end_by(&mut self, signal: Signal, patience: Duration, tree: &ProcessTree) -> bool {
        for member in self.0.values_mut() {
            member.signalled = false;
        }
        let until = Instant::now() + patience;
        loop {
            self.find(tree);
            for member in self.0.values_mut().filter(|member| !member.signalled) {
                // Who has ended meanwhile needs no signal.
                let _ = pidfd_send_signal(&member.process, signal);
                member.signalled = true;
            }
            reap(tree);
            // A listing takes its time, and who changes its parent in the middle may be in none.
            if self.0.is_empty() && tree.pids().is_err() && tree.pids().is_err() {
                return true;
            }
            if Instant::now() > until {
                return false;
            }
            self.wait(LOOK_EVERY);
        }
    }

    /// Forgets those that have ended, and looks who is new.
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
        // The number may have changed hands between the listing and the opening. If it is in the
        // tree now too, and the process that was opened lives, it is that one's.
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

    /// Until one of them ends, for `time` at most.
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

/// A descriptor of a process is readable from its end on.
fn has_ended(process: &OwnedFd) -> bool {
    let now = Timespec::default();
    let mut end = [PollFd::new(process, PollFlags::IN)];
    matches!(poll(&mut end, Some(&now)), Ok(1..))
}

/// Takes note of those that came to us because their parents have gone. The root is left: it is the
/// child's, and the tree's anchor.
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

    /// Starts a script, and waits for its first word.
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
        (child, ProcessTree::of_child(pid, own))
    }

    /// Set in the process in which the test is alone.
    const ALONE: &str = "DORMOUSE_TEST_ALONE";

    /// In a process of its own: what other tests start would be in the trees.
    #[test]
    fn nobody_is_left_and_nobody_is_a_zombie() {
        if std::env::var_os(ALONE).is_none() {
            let name = "termination::tests::nobody_is_left_and_nobody_is_a_zombie";
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
            // One that goes when it is asked; its child, in a session of its own, does not listen.
            "(trap '' TERM; exec setsid sh -c 'echo; exec sleep 4321') & wait",
            // One that has gone already, and left somebody behind.
            "setsid sh -c 'echo; exec sleep 4321' &",
            // One that starts another when it is asked to end.
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
