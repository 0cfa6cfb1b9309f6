//! The binary `counted`, optimised where it matters, at the price of our crates below `supervisor`.
//!
//! Everything is built as tests are (profile `dev`), in which foreign crates are optimised anyway and have been built
//! already; only our own crates which are counted are compiled once more, as a release has them. What is left of the
//! difference to a release (optimisation across crates, checks of overflow in foreign crates) is in the README here.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Our crates whose instructions are counted.
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

const AS_IN_A_RELEASE: [&str; 4] = [
    "opt-level=3",
    "codegen-units=1",
    "debug-assertions=false",
    "overflow-checks=false",
];

/// Builds it with what the workspace is built with, and says where it lies.
pub fn counted(workspace: &Path) -> Result<PathBuf, String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    // Incremental builds inline less, and whether they are the default depends on who asks: counts would differ.
    command.env("CARGO_INCREMENTAL", "0");
    // The features of the whole workspace: with others, foreign crates would be compiled again.
    command.args(["build", "--locked", "--workspace", "--bin", "counted"]);
    command.args(["--message-format", "json-render-diagnostics"]);
    for package in OPTIMISED {
        for setting in AS_IN_A_RELEASE {
            command.arg("--config");
            command.arg(format!("profile.dev.package.{package}.{setting}"));
        }
    }
    let output = command
        .current_dir(workspace)
        .output()
        .map_err(|error| format!("cargo build: {error}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("cargo build: {}\n{said}", output.status));
    }
    executable(&String::from_utf8_lossy(&output.stdout))
        .ok_or_else(|| "cargo build: it does not say where `counted` lies".to_owned())
}

/// Cargo's message of the binary names its file: `…,"executable":"/…/counted",…`.
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
    fn cargo_says_where_the_binary_lies() {
        let messages = "{\"reason\":\"compiler-artifact\",\"executable\":null}\n\
            {\"reason\":\"compiler-artifact\",\"executable\":\"/t/debug/counted\",\"fresh\":true}\n";
        assert_eq!(
            executable(messages),
            Some(PathBuf::from("/t/debug/counted"))
        );
        assert_eq!(executable("{\"executable\":null}"), None);
    }
}
