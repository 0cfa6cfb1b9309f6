//! Valgrind's callgrind: runs a case and counts.

use std::path::Path;
use std::process::Command;

use crate::cases::Case;
use crate::watch::COUNTED_IN;

/// malloc as workers have it (`handover/src/child.rs`).
const MALLOC: &str = "glibc.malloc.tcache_count=0:glibc.malloc.arena_max=1";

/// Runs `case` in the binary `counted` and says how many instructions one round took. The profile, with which function
/// took how many, is left in `profile`.
pub fn count(counted: &Path, case: &Case, profile: &Path) -> Result<u64, String> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--collect-atstart=no"])
        .arg(format!("--toggle-collect={COUNTED_IN}"))
        .arg(format!("--callgrind-out-file={}", profile.display()))
        .arg(counted)
        .arg(case.name)
        // What the caller's happens to be must not change what is counted.
        .env_clear()
        .env("GLIBC_TUNABLES", MALLOC)
        .output()
        .map_err(|error| format!("valgrind: {error}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        return Err(format!(
            "{}: valgrind: {}\n{said}",
            case.name, output.status
        ));
    }
    match collected(&said) {
        Some(instructions @ 1..) => Ok(instructions / u64::from(case.rounds)),
        _ => Err(format!("{}: callgrind counted nothing:\n{said}", case.name)),
    }
}

/// `==123== Collected : 4567`.
fn collected(said: &str) -> Option<u64> {
    let (_, rest) = said.split_once("Collected :")?;
    rest.split_whitespace().next()?.parse().ok()
}

/// The version of valgrind, or why there is none.
pub fn version() -> Result<String, String> {
    first_line("valgrind", &["--version"])
}

/// What was counted with: the same code is compiled otherwise by another compiler, and memory is allocated otherwise
/// by another C library.
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
    let said = String::from_utf8_lossy(&output.stdout);
    match said.lines().next() {
        Some(line) if output.status.success() => Ok(line.trim().to_owned()),
        _ => Err(format!("{program}: {}", output.status)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_count_is_found_in_what_callgrind_says() {
        let said = "==7== Events    : Ir\n==7== Collected : 123456\n==7== \n";
        assert_eq!(collected(said), Some(123_456));
        assert_eq!(collected("==7== Events    : Ir\n"), None);
    }
}
