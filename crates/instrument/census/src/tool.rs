//! Tools installed on this machine that the audit runs: `jcmd`, `systemctl`, `docker`.
//!
//! Every program that the audit runs, other than the servers and clients that the user chose, goes through this
//! module. An audited process may be hostile, and root may run the audit, so the process has no influence on which
//! file is run: the tool is looked up in this program's own `PATH`. A file that anyone but root can replace would hand
//! over root's rights, so it is refused. A tool that talks to an audited process runs as that process's user, without
//! the audit's environment and without gaining privileges. Output and run time of a tool are limited.

use std::env;
use std::fs;
use std::io::Read;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use dormouse_measure::proc_files;
use dormouse_reactor::process::{self, User};

/// Maximum output of a tool in bytes.
const OUTPUT_MAX: u64 = 64 << 20;
/// Maximum number of characters quoted from a tool's error message.
const QUOTED_MAX: usize = 300;
/// Minimum time in which a tool can end.
const PATIENCE_MIN: Duration = Duration::from_millis(100);
/// Time between two looks at whether a tool has ended, and maximum time in which a killed one ends.
const LOOK_EVERY: Duration = Duration::from_millis(5);
const DEATH_FOR: Duration = Duration::from_secs(2);

/// A tool installed on this machine.
pub struct Tool {
    name: &'static str,
    path: PathBuf,
}

/// Why a tool has not done its work.
#[derive(Debug, PartialEq, Eq)]
pub enum ToolError {
    /// The tool is not in the `PATH`.
    Missing,
    /// Any other failure, described in words.
    Refused(String),
}

impl Tool {
    /// Looks a tool up in the absolute directories of this program's `PATH`.
    pub fn find(name: &'static str) -> Result<Self, ToolError> {
        let path = env::var_os("PATH").unwrap_or_default();
        Self::find_in(name, env::split_paths(&path), process::user_id() == 0)
    }

    fn find_in(
        name: &'static str,
        directories: impl Iterator<Item = PathBuf>,
        is_root: bool,
    ) -> Result<Self, ToolError> {
        let mut missing = ToolError::Missing;
        for directory in directories.filter(|directory| directory.is_absolute()) {
            // A link's target is checked and run, under the name that was looked up.
            let Ok(path) = fs::canonicalize(directory.join(name)) else {
                continue;
            };
            if !is_program(&path) {
                continue;
            }
            match writer_besides_root(&path).filter(|_| is_root) {
                None => return Ok(Self { name, path }),
                Some(why) => missing = ToolError::Refused(why),
            }
        }
        Err(missing)
    }

    /// Runs the tool as this program's user, with this program's environment.
    pub fn run(&self, words: &[&str], patience: Duration) -> Result<String, ToolError> {
        let mut command = self.command(words);
        self.finish(process::confined(&mut command, None), patience)
    }

    /// Runs the tool as the user of an audited process and hides this program's environment from that user.
    pub(crate) fn run_for(
        &self,
        pid: i32,
        words: &[&str],
        patience: Duration,
    ) -> Result<String, ToolError> {
        let user = user_of(pid)?;
        let mut command = self.command(words);
        command
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .current_dir("/");
        self.finish(process::confined(&mut command, user), patience)
    }

    fn command(&self, words: &[&str]) -> Command {
        use std::os::unix::process::CommandExt as _;
        let mut command = Command::new(&self.path);
        command.arg0(self.name).args(words);
        command
    }

    /// Runs a command to its end and returns its output.
    fn finish(&self, command: &mut Command, patience: Duration) -> Result<String, ToolError> {
        let until = Instant::now() + patience;
        let refused = |why: String| ToolError::Refused(format!("{} {why}", self.name));
        if patience < PATIENCE_MIN {
            return Err(refused("was not run, because the time was over".into()));
        }
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| refused(format!("cannot be started: {error}")))?;
        let said = read_aside(child.stdout.take());
        let complained = read_aside(child.stderr.take());
        let output = [said, complained].map(|pipe| wait_for(&pipe, until));
        let [Some(said), Some(complained)] = output else {
            end(&mut child);
            return Err(refused(format!(
                "did not end within {} s",
                patience.as_secs()
            )));
        };
        // Both pipes are closed, so the tool is about to end.
        let status = end_by(&mut child, until);
        if said.len() as u64 >= OUTPUT_MAX {
            return Err(refused(format!("wrote more than {OUTPUT_MAX} bytes")));
        }
        if status.is_some_and(|status| status.success()) {
            return Ok(String::from_utf8_lossy(&said).into_owned());
        }
        let complaint = String::from_utf8_lossy(&complained);
        let line = complaint.lines().find(|line| !line.trim().is_empty());
        let line = line.unwrap_or("it failed without a message").trim();
        let line = dormouse_printable::line_up_to(line, QUOTED_MAX);
        Err(refused(format!("failed: {line}")))
    }
}

/// Returns the user for a tool that talks to a process; `None`: this program's own user.
fn user_of(pid: i32) -> Result<Option<User>, ToolError> {
    if process::user_id() != 0 {
        return Ok(None);
    }
    let gone = || ToolError::Refused(format!("process {pid} is gone"));
    proc_files::acts_as(pid).map(Some).ok_or_else(gone)
}

fn is_program(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}

/// Describes who besides root can replace a file; `path` is absolute and contains no links.
fn writer_besides_root(path: &Path) -> Option<String> {
    for part in path.ancestors() {
        let Ok(found) = fs::metadata(part) else {
            return Some(format!("cannot examine {}", part.display()));
        };
        let shown = part.display().to_string();
        let shown = dormouse_printable::line(&shown);
        if found.uid() != 0 {
            return Some(format!(
                "{shown} belongs to user {}: root does not run it",
                found.uid()
            ));
        }
        if found.mode() & 0o022 != 0 {
            return Some(format!(
                "{shown} can be written by others: root does not run it"
            ));
        }
    }
    None
}

/// Reads a pipe in its own thread, so that neither of two pipes fills up.
fn read_aside(pipe: Option<impl Read + Send + 'static>) -> Receiver<Vec<u8>> {
    let (sender, receiver) = channel();
    if let Some(pipe) = pipe {
        // Without the thread nothing is received, as from a tool without output.
        let _ = std::thread::Builder::new().spawn(move || {
            let mut bytes = Vec::new();
            let _ = pipe.take(OUTPUT_MAX).read_to_end(&mut bytes);
            let _ = sender.send(bytes);
        });
    }
    receiver
}

/// Returns the pipe's contents, unless it is still open at the deadline.
fn wait_for(pipe: &Receiver<Vec<u8>>, until: Instant) -> Option<Vec<u8>> {
    let left = until.saturating_duration_since(Instant::now());
    pipe.recv_timeout(left).ok()
}

/// Returns the exit status if the process ends before the deadline; otherwise kills it.
fn end_by(child: &mut Child, until: Instant) -> Option<std::process::ExitStatus> {
    loop {
        if let Ok(Some(status)) = child.try_wait() {
            return Some(status);
        }
        if Instant::now() > until {
            end(child);
            return None;
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

/// Kills a process. One that waits for a file system that does not answer cannot be killed, and is left behind.
fn end(child: &mut Child) {
    let _ = child.kill();
    let until = Instant::now() + DEATH_FOR;
    while let Ok(None) = child.try_wait()
        && Instant::now() < until
    {
        std::thread::sleep(LOOK_EVERY);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_secs(20);

    fn shell() -> Tool {
        Tool {
            name: "sh",
            path: "/bin/sh".into(),
        }
    }

    fn script(folder: &Path, name: &str, text: &str) -> PathBuf {
        let path = folder.join(name);
        fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    #[test]
    fn only_absolute_directories_are_searched() {
        let folder = tempfile::tempdir().unwrap();
        script(folder.path(), "some-tool", "true");
        let found = |directories: &[&Path]| {
            let all = directories.iter().map(|path| path.to_path_buf());
            Tool::find_in("some-tool", all, false)
        };
        assert!(found(&[Path::new(""), Path::new("."), folder.path()]).is_ok());
        assert_eq!(found(&[Path::new("")]).err(), Some(ToolError::Missing));
        // A directory of that name, then a file that is not executable.
        fs::remove_file(folder.path().join("some-tool")).unwrap();
        fs::create_dir(folder.path().join("some-tool")).unwrap();
        assert_eq!(found(&[folder.path()]).err(), Some(ToolError::Missing));
        fs::remove_dir(folder.path().join("some-tool")).unwrap();
        fs::write(folder.path().join("some-tool"), "text").unwrap();
        assert_eq!(found(&[folder.path()]).err(), Some(ToolError::Missing));
    }

    #[test]
    fn root_runs_nothing_that_others_can_replace() {
        // Everyone can write to the directory for temporary files.
        let folder = tempfile::tempdir_in("/tmp").unwrap();
        script(folder.path(), "some-tool", "true");
        let directories = || [folder.path().to_path_buf()].into_iter();
        assert!(Tool::find_in("some-tool", directories(), false).is_ok());
        match Tool::find_in("some-tool", directories(), true).err() {
            Some(ToolError::Refused(why)) => assert!(why.contains("root does not run it"), "{why}"),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn output_and_failure_of_a_tool() {
        assert_eq!(
            shell().run(&["-c", "echo some words"], SOON).unwrap(),
            "some words\n"
        );
        let failed = shell().run(&["-c", r"printf '\n\033[31mno\n second' >&2; exit 3"], SOON);
        let words = r"sh failed: \u{1b}[31mno";
        assert_eq!(failed.err(), Some(ToolError::Refused(words.into())));
    }

    #[test]
    fn a_tool_that_does_not_exit_is_killed() {
        let begun = Instant::now();
        let over = shell().run(&["-c", "true"], Duration::ZERO);
        assert!(matches!(over, Err(ToolError::Refused(why)) if why.contains("was not run")));
        let patience = Duration::from_millis(200);
        // The first keeps its pipes open, the second closes them, the third writes without end.
        for text in ["sleep 100", "exec >&- 2>&-; sleep 100", "cat /dev/zero"] {
            let ended = shell().run(&["-c", text], patience);
            assert!(matches!(ended, Err(ToolError::Refused(_))), "{text}");
        }
        assert!(begun.elapsed() < Duration::from_secs(60));
    }

    #[test]
    fn a_tool_of_an_audited_process_has_no_terminal_of_ours() {
        if process::user_id() != 0 {
            return;
        }
        let own = i32::try_from(std::process::id()).unwrap();
        let words = ["-c", "echo $$; cut -d ' ' -f 6 /proc/$$/stat"];
        let said = shell().run_for(own, &words, SOON).unwrap();
        let numbers: Vec<_> = said.lines().collect();
        assert!(
            matches!(*numbers, [process, session] if process == session),
            "{said}"
        );
    }

    #[test]
    fn a_tool_gets_no_environment_and_no_privileges() {
        let own = i32::try_from(std::process::id()).unwrap();
        let said = shell()
            .run_for(
                own,
                &["-c", "env; pwd; grep NoNewPrivs /proc/$$/status"],
                SOON,
            )
            .unwrap();
        assert!(!said.contains("CARGO"), "{said}");
        assert!(
            said.contains("\n/\n") && said.contains("NoNewPrivs:\t1"),
            "{said}"
        );
    }
}
