//! The build of the binary `counted`, which optimises only the crates whose instructions are counted.
//!
//! The profile is `dev`, the tests' profile: it optimises third-party crates, which the tests have compiled already. Only
//! the counted crates of Dormouse are compiled again, with the settings of a release. The README lists the remaining
//! differences to a release (optimisation across crates, overflow checks in third-party crates).

use std::path::{Path, PathBuf};
use std::process::Command;

/// Dormouse's crates whose instructions are counted.
const OPTIMISED: [&str; 8] = [
    "dormouse-record",
    "dormouse-engine",
    "dormouse-reactor",
    "dormouse-tables",
    "dormouse-handover",
    "dormouse-dataplane",
    "dormouse-sim",
    "dormouse-ci-bench",
];

const RELEASE_SETTINGS: [&str; 4] = [
    "opt-level=3",
    "codegen-units=1",
    "debug-assertions=false",
    "overflow-checks=false",
];

/// Builds `counted` with the workspace's own cargo; returns the path of the binary.
pub fn counted(workspace: &Path) -> Result<PathBuf, String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    // Incremental builds inline less, and their default depends on the environment: counts would differ.
    command.env("CARGO_INCREMENTAL", "0");
    // The features of the whole workspace: with other features, third-party crates would be compiled again.
    command.args(["build", "--locked", "--workspace", "--bin", "counted"]);
    command.args(["--message-format", "json-render-diagnostics"]);
    for package in OPTIMISED {
        for setting in RELEASE_SETTINGS {
            command.arg("--config");
            command.arg(format!("profile.dev.package.{package}.{setting}"));
        }
    }
    let output = command
        .current_dir(workspace)
        .output()
        .map_err(|error| format!("cargo build: {error}"))?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        return Err(format!("cargo build: {}\n{stderr}", output.status));
    }
    executable(&String::from_utf8_lossy(&output.stdout))
        .ok_or_else(|| "cargo build: no path of the binary `counted` in the output".to_owned())
}

/// The path in cargo's message about the binary: `…,"executable":"/…/counted",…`.
fn executable(messages: &str) -> Option<PathBuf> {
    messages
        .lines()
        .filter_map(|line| line.split_once("\"executable\":\""))
        .filter_map(|(_, rest)| rest.split_once('"'))
        .map(|(path, _)| PathBuf::from(path))
        .next_back()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_of_the_binary_is_found() {
        let messages = "{\"reason\":\"compiler-artifact\",\"executable\":null}\n\
            {\"reason\":\"compiler-artifact\",\"executable\":\"/t/debug/counted\",\"fresh\":true}\n";
        assert_eq!(
            executable(messages),
            Some(PathBuf::from("/t/debug/counted"))
        );
        assert_eq!(executable("{\"executable\":null}"), None);
    }
}
