//! A machine for the commands of a document: with its own network, processes, `/etc`, `/run`, `/opt` and
//! `/var/lib/dormouse`, so that commands run as written and disturb nothing.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::process::Signal;
use tempfile::TempDir;

use crate::process::{Process, signal};
use crate::tools;
use crate::wait::{self, PATIENCE};

/// The machine. Dropping it ends its processes.
pub struct Machine {
    // Dropped before the folder, which it uses.
    init: Process,
    folder: TempDir,
    commands: AtomicU32,
}

/// Mounts what belongs to this machine only, then waits to be killed.
const INIT: &str = r#"
set -e
ip link set lo up
cp -a /etc "$1/etc"
mount --bind "$1/etc" /etc
mkdir -p /var/lib/dormouse
for own in /run /opt /var/lib/dormouse; do mount -t tmpfs tmpfs $own; done
# The addresses of the documents are this machine's.
for ip in ipv4 ipv6; do echo 1 > /proc/sys/net/$ip/ip_nonlocal_bind; done
echo the machine is up
exec sleep infinity
"#;

impl Machine {
    /// Starts a machine whose `dormouse` is the program under test. `None`: not possible here, and reported.
    ///
    /// # Panics
    /// As [`tools::unavailable`], and when it does not start.
    pub fn start() -> Option<Self> {
        if !tools::present(&["unshare", "nsenter", "ip", "bash"]) {
            return None;
        }
        if !rustix::process::geteuid().is_root() {
            tools::unavailable("namespaces need root");
            return None;
        }
        let folder = tempfile::tempdir().expect("a temporary folder");
        for name in ["bin", "home"] {
            fs::create_dir(folder.path().join(name)).expect("a directory of the simulated machine");
        }
        let program = folder.path().join("bin/dormouse");
        std::os::unix::fs::symlink(tools::dormouse(), program).expect("the program");
        let place = folder.path().display().to_string();
        let own = [
            "--net",
            "--mount",
            "--pid",
            "--fork",
            "--kill-child",
            "--mount-proc",
        ];
        let command = [
            &["unshare"],
            &own[..],
            &["bash", "-c", INIT, "init", &place],
        ]
        .concat();
        let mut init = Process::start("machine", &words(&command), folder.path());
        init.wait_for_line("the machine is up", PATIENCE);
        Some(Self {
            init,
            folder,
            commands: AtomicU32::new(0),
        })
    }

    /// The folder in which commands run.
    pub fn home(&self) -> PathBuf {
        self.folder.path().join("home")
    }

    /// Writes a file at a path on the machine: below `/etc`, or in the folder of the commands.
    ///
    /// # Panics
    /// When it cannot be written.
    pub fn write(&self, path: &str, text: &str) {
        let file = match path.strip_prefix("/etc/") {
            Some(below) => self.folder.path().join("etc").join(below),
            None => self.home().join(path),
        };
        let parent = file.parent().expect("a file in a folder");
        fs::create_dir_all(parent).expect("a directory of the simulated machine");
        fs::write(&file, text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    }

    /// Installs a program in the search path, before the usual ones.
    ///
    /// # Panics
    /// When it cannot be written.
    pub fn install(&self, name: &str, script: &str) {
        let file = self.folder.path().join("bin").join(name);
        fs::write(&file, script).expect("a program of the simulated machine");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).expect("its mode");
    }

    /// Starts a shell command in a folder, without waiting for its exit.
    pub fn start_in(&self, folder: &Path, line: &str) -> Process {
        let number = self.commands.fetch_add(1, Ordering::Relaxed);
        let root = *self
            .init
            .tree()
            .get(1)
            .expect("the machine's first process");
        let search = self.folder.path().join("bin");
        let script = format!(
            "unset CARGO MAKEFLAGS MAKELEVEL RUSTC_BOOTSTRAP; export PATH='{}':$PATH; cd '{}' || exit 99\n{line}\n",
            search.display(),
            folder.display()
        );
        let target = root.to_string();
        // With its root, which is not that of the mounts if the tests run in a `chroot`.
        let enter = [
            "nsenter", "--target", &target, "--net", "--mount", "--pid", "--root", "--wd",
        ];
        let command = [&enter[..], &["bash", "-c", &script]].concat();
        let name = format!("command-{number}");
        Process::start(&name, &words(&command), self.folder.path())
    }

    /// Runs a shell command. Returns its exit status and output.
    ///
    /// # Panics
    /// When it does not end in time.
    pub fn run_in(&self, folder: &Path, line: &str, within: Duration) -> (ExitStatus, String) {
        let mut process = self.start_in(folder, line);
        let status = process.wait_for_end(within);
        (status, process.log())
    }

    /// Runs a shell command in the folder of the commands.
    ///
    /// # Panics
    /// When it fails.
    pub fn run(&self, line: &str) -> String {
        let (status, log) = self.run_in(&self.home(), line, PATIENCE);
        assert!(status.success(), "`{line}` ended with {status}:\n{log}");
        log
    }

    /// What an echo server of the machine returns to a client that sends each word when it has received the one before, and
    /// is quiet for a second after each.
    ///
    /// # Panics
    /// When the client cannot be run.
    pub fn echoes(&self, address: &str, words: &str) -> String {
        self.run(&format!(
            "coproc openssl s_client -connect {address} -quiet -no_ign_eof 2>/dev/null\n\
             for word in {words}; do\n\
                 echo $word >&${{COPROC[1]}}; read -r -t 20 said <&${{COPROC[0]}} && echo $said; sleep 1\n\
             done"
        ))
    }

    /// Stops a `dormouse` server that was started with [`start_in`](Self::start_in).
    ///
    /// # Panics
    /// When it does not exit, or not with success.
    pub fn stop(&self, mut server: Process) {
        let main = server.named("dormouse");
        signal(main.expect("a running dormouse"), Signal::TERM);
        let status = server.wait_for_end(wait::PATIENCE);
        let log = server.log();
        assert!(status.success(), "the server ended with {status}:\n{log}");
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // Its first process takes all others with it; no other signal would end them.
        if let Some(&root) = self.init.tree().get(1) {
            signal(root, Signal::KILL);
        }
    }
}

fn words(command: &[&str]) -> Vec<String> {
    command.iter().map(|&word| word.to_owned()).collect()
}
