//! `dormouse audit` with real programs: it stops no foreign process, leaves everything as it was, and
//! reports by its exit status.

mod care;
mod census;
mod clients;
mod collectors;
mod limits;
mod offered;
mod page;
mod recognised;
mod results;
mod resumption;
pub(crate) mod starttls;

use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use dormouse_interop::{tools, wait};
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(60);

fn start(arguments: &[&str]) -> Child {
    Command::new(tools::dormouse())
        .arg("audit")
        .args(&arguments[..1])
        .args(["--json", "-", "--fail-on", "never"])
        .args(&arguments[1..])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the audit starts")
}

fn audit(arguments: &[&str]) -> Output {
    start(arguments).wait_with_output().expect("an end")
}

/// The report, and the exit status.
fn read(output: &Output) -> (Value, Option<i32>) {
    let said = String::from_utf8_lossy(&output.stderr);
    let audit = serde_json::from_slice(&output.stdout);
    (
        audit.unwrap_or_else(|error| panic!("{error}: {said}")),
        output.status.code(),
    )
}

/// Waits until the program to be audited listens at this address. A runtime may take long to start.
fn until_listening(program: &str, address: &str) {
    wait::until(&format!("{program} to listen"), PATIENCE, || {
        TcpStream::connect(address).ok()
    });
}

/// A program that ends with the test.
struct Started(Child);

impl Started {
    fn new(command: &mut Command) -> Self {
        let quiet = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        Self(quiet.spawn().expect("the program starts"))
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Whether an audit has this finding.
fn finds(audit: &Value, id: &str) -> bool {
    let findings = audit["findings"].as_array().expect("findings");
    findings.iter().any(|finding| finding["id"] == id)
}

/// Whether a program that `interop/install` installs is in the search path.
fn is_here(path: &Path) -> bool {
    path.exists() || {
        tools::unavailable(&format!("there is no {}", path.display()));
        false
    }
}
