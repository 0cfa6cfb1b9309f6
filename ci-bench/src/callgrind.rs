//! Counting the instructions of a case with valgrind's callgrind.

use std::path::Path;
use std::process::Command;

use crate::cases::Case;
use crate::watch::COUNTED_IN;

/// The malloc settings of workers (`handover/src/child.rs`).
const MALLOC: &str =
    "glibc.malloc.tcache_count=4:glibc.malloc.tcache_max=512:glibc.malloc.arena_max=1";

/// Runs `case` in the binary `counted` and returns the instructions of one round. Writes the profile, with the
/// instructions of each function, to `profile`.
pub fn count(counted: &Path, case: &Case, profile: &Path) -> Result<u64, String> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--collect-atstart=no"])
        .arg(format!("--toggle-collect={COUNTED_IN}"))
        .arg(format!("--callgrind-out-file={}", profile.display()))
        .arg(counted)
        .arg(case.name)
        // The caller's environment must not change the counts.
        .env_clear()
        .env("GLIBC_TUNABLES", MALLOC)
        .output()
        .map_err(|error| format!("valgrind: {error}"))?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        return Err(format!(
            "{}: valgrind: {}\n{stderr}",
            case.name, output.status
        ));
    }
    match collected(&stderr) {
        Some(instructions @ 1..) => Ok(instructions / u64::from(case.rounds)),
        _ => Err(format!(
            "{}: callgrind counted no instructions:\n{stderr}",
            case.name
        )),
    }
}

/// The count in a line such as `==123== Collected : 4567`.
fn collected(stderr: &str) -> Option<u64> {
    let (_, rest) = stderr.split_once("Collected :")?;
    rest.split_whitespace().next()?.parse().ok()
}

/// The version of valgrind, or why it can't be run.
pub fn version() -> Result<String, String> {
    first_line("valgrind", &["--version"])
}

/// The versions of valgrind, compiler and C library. Counts depend on them: another compiler generates other code, and
/// another C library allocates memory differently.
pub fn made_with() -> Result<String, String> {
    Ok([
        version()?,
        first_line("rustc", &["--version"])?,
        first_line("getconf", &["GNU_LIBC_VERSION"])?,
    ]
    .join(", "))
}

fn first_line(program: &str, arguments: &[&str]) -> Result<String, String> {
    let output = Command::new(program)
        .args(arguments)
        .output()
        .map_err(|error| format!("{program}: {error}"))?;
    let stdout = String::from_utf8_lossy(&output.stdout);
    match stdout.lines().next() {
        Some(line) if output.status.success() => Ok(line.trim().to_owned()),
        _ => Err(format!("{program}: {}", output.status)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_count_is_found_in_the_output_of_callgrind() {
        let stderr = "==7== Events    : Ir\n==7== Collected : 123456\n==7== \n";
        assert_eq!(collected(stderr), Some(123_456));
        assert_eq!(collected("==7== Events    : Ir\n"), None);
    }
}
