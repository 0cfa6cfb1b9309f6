//! Gives the program the versions of its TLS libraries, for `--version`.

use std::path::Path;
use std::{env, fs};

fn main() {
    let manifest_dir = env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
    let lock_path = Path::new(&manifest_dir).join("../../Cargo.lock");
    println!("cargo::rerun-if-changed={}", lock_path.display());
    let lock = fs::read_to_string(lock_path).unwrap_or_default();
    for (package, variable) in [
        ("rustls", "DORMOUSE_RUSTLS"),
        ("aws-lc-rs", "DORMOUSE_AWS_LC_RS"),
        ("aws-lc-sys", "DORMOUSE_AWS_LC_SYS"),
    ] {
        let version = version(&lock, package).unwrap_or("of unknown version");
        println!("cargo::rustc-env={variable}={version}");
    }
}

/// Returns the version of a package in a lock file.
fn version<'a>(lock: &'a str, package: &str) -> Option<&'a str> {
    let entry = lock.split("[[package]]").find(|entry| {
        let mut lines = entry.trim_start().lines();
        lines.next() == Some(&format!("name = \"{package}\""))
    })?;
    let line = entry
        .lines()
        .find_map(|line| line.strip_prefix("version = "))?;
    Some(line.trim_matches('"'))
}
