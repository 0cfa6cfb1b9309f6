//! Finds a server's process: the main process of a systemd unit or the first process of a container.

use std::time::Duration;

use dormouse_measure::Error;

use dormouse_census::tool::{Tool, ToolError};

/// Maximum wait for an answer of systemd or a container engine.
const PATIENCE: Duration = Duration::from_secs(30);

/// Container engines, in the order in which they are queried.
const CONTAINER_ENGINES: [&str; 2] = ["docker", "podman"];

/// Returns the main process of a system or user unit.
///
/// # Errors
/// If systemd is missing or the unit is not running.
pub fn pid_of_unit(name: &str) -> Result<i32, Error> {
    let mut said = String::new();
    for manager in ["--system", "--user"] {
        let words = [
            "show",
            manager,
            "--property=MainPID",
            "--property=LoadState",
            "--",
            name,
        ];
        match ask("systemctl", &words) {
            Err(ToolError::Missing) => {
                return Err(Error::system(
                    "--unit: systemctl is not installed; give the process with --pid",
                ));
            }
            // The first error, which is the system manager's, is reported: user units are rare.
            Err(ToolError::Refused(why)) if said.is_empty() => said = why,
            Err(ToolError::Refused(_)) => {}
            Ok(answer) => match main_pid(&answer) {
                Ok(pid) => return Ok(pid),
                Err(why) if said.is_empty() => said = why,
                Err(_) => {}
            },
        }
    }
    Err(Error::target(format!(
        "--unit {name}: {said}; give the process with --pid"
    )))
}

/// Parses the main process id in the output of `systemctl show`.
fn main_pid(answer: &str) -> Result<i32, String> {
    let value = |name: &str| {
        let mut lines = answer.lines();
        lines.find_map(|line| line.strip_prefix(name)?.strip_prefix('='))
    };
    match value("MainPID").and_then(|pid| pid.trim().parse::<i32>().ok()) {
        Some(pid @ 1..) => Ok(pid),
        _ if value("LoadState") == Some("not-found") => Err("there is no such unit".into()),
        _ => Err("it has no main process: it is not running".into()),
    }
}

/// Returns the first process of a container.
///
/// # Errors
/// If neither docker nor podman is installed, or the container is not running.
pub fn pid_of_container(name: &str) -> Result<i32, Error> {
    let mut said = Vec::new();
    for keeper in CONTAINER_ENGINES {
        match ask(
            keeper,
            &["inspect", "--format", "{{.State.Pid}}", "--", name],
        ) {
            Err(ToolError::Missing) => {}
            Err(ToolError::Refused(why)) => said.push(format!("{keeper}: {why}")),
            Ok(answer) => match answer.trim().parse::<i32>() {
                Ok(pid @ 1..) => return Ok(pid),
                _ => said.push(format!("{keeper}: it is not running")),
            },
        }
    }
    if said.is_empty() {
        return Err(Error::system(
            "--container: neither docker nor podman is installed; give the process with --pid",
        ));
    }
    Err(Error::target(format!(
        "--container {name}: {}; give the process with --pid",
        said.join("; ")
    )))
}

fn ask(program: &'static str, words: &[&str]) -> Result<String, ToolError> {
    Tool::find(program)?.run(words, PATIENCE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_main_process_of_a_unit() {
        assert_eq!(main_pid("MainPID=4711\nLoadState=loaded\n"), Ok(4711));
        let stopped = main_pid("LoadState=loaded\nMainPID=0\n").unwrap_err();
        assert!(stopped.contains("not running"), "{stopped}");
        let none = main_pid("MainPID=0\nLoadState=not-found\n").unwrap_err();
        assert!(none.contains("no such unit"), "{none}");
    }

    #[test]
    fn a_name_is_never_an_option() {
        // The lookup fails on every machine: no such unit or container, or none of the tools installed.
        for refused in [pid_of_unit("--version"), pid_of_container("--version")] {
            assert!(refused.unwrap_err().message.contains("--pid"));
        }
    }
}
