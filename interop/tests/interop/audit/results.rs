//! Where `audit` and `bench` put their results: a run of minutes is never lost for one of its outputs.

use std::fs::{self, File};
use std::process::{Command, Output, Stdio};

use dormouse_interop::tools;

fn dormouse(words: &[&str], stdout: Stdio) -> Output {
    Command::new(tools::dormouse())
        .args(words)
        .stdin(Stdio::null())
        .stdout(stdout)
        .stderr(Stdio::piped())
        .output()
        .expect("dormouse runs")
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Nothing runs for a file that cannot be written.
#[test]
fn a_file_that_cannot_be_written_is_refused_before_the_run() {
    let folder = tempfile::tempdir().expect("a folder");
    let mark = folder.path().join("mark").display().to_string();
    let nowhere = folder.path().join("no/file").display().to_string();
    for option in ["--json", "--html"] {
        let words = ["audit", "client", option, &nowhere, "--", "touch", &mark];
        let output = dormouse(&words, Stdio::piped());
        assert_eq!(output.status.code(), Some(2), "{}", said(&output));
        assert!(said(&output).contains(&nowhere), "{}", said(&output));
        assert!(fs::metadata(&mark).is_err(), "the client has run");
    }
    // No program listens on port 1: a run would end with the status 3.
    let words = ["bench", "hold", "127.0.0.1:1", "--json", &nowhere];
    let output = dormouse(&words, Stdio::piped());
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
}

/// The files are complete even if standard output is a full disk, and the messages name both failures.
#[test]
fn files_are_written_if_standard_output_cannot_be() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (json, html) = (path("audit.json"), path("audit.html"));
    // A longer file of an earlier run leaves nothing behind.
    fs::write(&json, "x".repeat(1 << 20)).expect("a file");
    let words = [
        "audit", "client", "-q", "--json", &json, "--html", &html, "--", "true",
    ];
    let full = File::options().write(true).open("/dev/full");
    let output = dormouse(&words, full.expect("/dev/full").into());
    assert_eq!(output.status.code(), Some(3), "{}", said(&output));
    for what in ["standard output", "made no TLS connection"] {
        assert!(said(&output).contains(what), "{what}: {}", said(&output));
    }
    let audit: serde_json::Value =
        serde_json::from_slice(&fs::read(&json).expect("a file")).expect("JSON");
    assert_eq!(audit["kind"], "client");
    assert!(
        fs::read_to_string(&html)
            .expect("a page")
            .contains("</html>")
    );
}
