//! Runs the operator's program that writes a record of DNS for an ACME challenge (`acme_dns_hook`), and tells main how it
//! ended.
//!
//! It is a process of its own, because the program runs as another user than main, and takes time. It is not confined,
//! because its needs are not known. But it cannot gain privileges, has a minute, and its output is bounded.

use crate::helper::{self, Privileges};
use dormouse_config::Log;
use dormouse_reactor::Fd;
use serde::{Deserialize, Serialize};
use std::io::{self, Read as _};
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// Name of the process.
pub const NAME: &str = "acme-hook";
/// Maximum time of the program.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Pause between two looks at the program.
const POLL: Duration = Duration::from_millis(20);
/// Time for the rest of the output of a program that has ended.
const OUTPUT_TIMEOUT: Duration = Duration::from_millis(200);
/// Maximum length of its output, in bytes, and of the part in a message, in characters.
const OUTPUT_MAX: u64 = 4 << 10;
const WORDS_MAX: usize = 200;

/// What main tells it.
#[derive(Serialize, Deserialize)]
pub struct HookArguments {
    /// The process's end of the channel to main.
    pub channel: i32,
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<String>,
}

/// How the program ended: why the record is not written, if it is not.
pub type HookReport = Result<(), String>;

/// Entry point of the process; `args` is what follows the subcommand. `None`: main did not start it.
pub fn process_entry(args: &[String], start_logs: fn(&Log)) -> Option<ExitCode> {
    helper::run(NAME, args, start_logs, run)
}

fn run(_: &Privileges, arguments: &HookArguments) -> io::Result<()> {
    let report: HookReport = work(arguments);
    helper::report(Fd(arguments.channel), &report)
}

fn work(arguments: &HookArguments) -> HookReport {
    let program = arguments.program.display();
    let failed = |why: String| format!("acme_dns_hook {program}: {why}");
    let child = Command::new(&arguments.program)
        .args(&arguments.arguments)
        .env_clear()
        .env(
            "PATH",
            "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        )
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = child.map_err(|error| failed(format!("cannot be started: {error}")))?;
    let said = said(&mut child);
    let deadline = Instant::now() + TIMEOUT;
    loop {
        match child.try_wait() {
            Ok(Some(status)) if status.success() => return Ok(()),
            Ok(Some(status)) => {
                let said = said.recv_timeout(OUTPUT_TIMEOUT).unwrap_or_default();
                let last = said.lines().rev().find(|line| !line.trim().is_empty());
                let last = dormouse_printable::line_up_to(last.unwrap_or_default(), WORDS_MAX);
                return Err(failed(format!("{status}: {last}")));
            }
            Ok(None) if Instant::now() < deadline => thread::sleep(POLL),
            Ok(None) => {
                let _ = child.kill();
                return Err(failed(
                    "has not ended within a minute, and was killed".to_owned(),
                ));
            }
            Err(error) => return Err(failed(error.to_string())),
        }
    }
}

/// Reads what the program writes to its standard error, and drops all but the beginning.
fn said(child: &mut Child) -> mpsc::Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    if let Some(mut from) = child.stderr.take() {
        thread::spawn(move || {
            let mut bytes = Vec::new();
            let _ = (&mut from).take(OUTPUT_MAX).read_to_end(&mut bytes);
            let _ = sender.send(String::from_utf8_lossy(&bytes).into_owned());
            let _ = io::copy(&mut from, &mut io::sink());
        });
    }
    receiver
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> HookReport {
        work(&HookArguments {
            channel: -1,
            program: "/bin/sh".into(),
            arguments: ["-c", script, "hook", "add"].map(str::to_owned).to_vec(),
        })
    }

    #[test]
    fn the_status_counts_and_the_last_line_says_why() {
        assert_eq!(shell("test \"$1\" = add && test -z \"$HOME\""), Ok(()));
        let failed = shell("echo one >&2; echo no such zone >&2; exit 3").expect_err("a failure");
        assert!(failed.contains("exit status: 3: no such zone"), "{failed}");
        let much = shell("yes | head -c 1000000 >&2; exit 1").expect_err("a failure");
        assert!(much.len() < 300, "{}", much.len());
        let missing = work(&HookArguments {
            channel: -1,
            program: "/nowhere/hook".into(),
            arguments: Vec::new(),
        });
        assert!(
            missing
                .expect_err("a failure")
                .contains("cannot be started")
        );
    }
}
