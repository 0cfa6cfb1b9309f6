//! Servers in other runtimes, with a fault each and a healthy twin. A machine without a runtime leaves its tests out.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use super::{Judged, audit_command, free_address, is_clean, is_named};

/// A certificate and its key for all of these servers.
fn certificate() -> &'static (PathBuf, PathBuf) {
    static MADE: OnceLock<(PathBuf, PathBuf)> = OnceLock::new();
    MADE.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let of = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let files = (folder.join("sick-cert.pem"), folder.join("sick-key.pem"));
        fs::write(&files.0, of.cert.pem()).unwrap();
        fs::write(&files.1, of.signing_key.serialize_pem()).unwrap();
        files
    })
}

/// The Go server, built once; `None` without Go.
fn go() -> Option<&'static Path> {
    static BUILT: OnceLock<Option<PathBuf>> = OnceLock::new();
    let built = BUILT.get_or_init(|| {
        let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("sick-go");
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("servers/go");
        let built = ["go", "/usr/local/go/bin/go"].iter().find_map(|go| {
            let mut command = Command::new(go);
            let command = command.arg("build").arg("-o").arg(&program);
            command.current_dir(&folder).status().ok()
        })?;
        assert!(built.success(), "the Go server does not compile");
        Some(program)
    });
    built.as_deref()
}

fn audit_go(fault: &str) -> Option<Judged> {
    let Some(program) = go() else {
        eprintln!("left out: there is no Go here");
        return None;
    };
    Some(audit_program(&program.display().to_string(), fault))
}

fn audit_python(fault: &str) -> Option<Judged> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("servers/python/server.py");
    if !Path::new("/usr/bin/python3").exists() {
        eprintln!("left out: there is no Python here");
        return None;
    }
    Some(audit_program(
        &format!("/usr/bin/python3 {}", script.display()),
        fault,
    ))
}

fn audit_program(program: &str, fault: &str) -> Judged {
    let (certificate, key) = certificate();
    let address = free_address();
    let command = format!(
        "exec {program} {fault} {address} {} {}",
        certificate.display(),
        key.display()
    );
    audit_command(&address, &command)
}

/// Whether the growth of bytes in use per closed connection lies in a range.
fn leaks(judged: &Judged, range: std::ops::Range<f64>) {
    let growth = &judged.0["server"]["memory"]["measured"]["growth_in_use"]["measured"];
    let each = growth["slope"]["per_unit"].as_f64().unwrap()
        / growth["connections_per_round"].as_f64().unwrap();
    assert!(
        range.contains(&each),
        "{each} bytes per connection: {growth:#}"
    );
}

#[test]
#[ignore = "a whole audit of a runtime: minutes on a busy machine"]
fn a_leak_in_go() {
    if let Some(judged) = audit_go("leak") {
        is_named(&judged, "leak-per-connection");
        // Each round is followed by connections that make garbage, and these leak as well.
        leaks(&judged, 1_000.0..4_000.0);
    }
}

#[test]
#[ignore = "a whole audit of a runtime: minutes on a busy machine"]
fn connections_that_go_keeps() {
    if let Some(judged) = audit_go("register") {
        is_named(&judged, "leak-per-connection");
    }
}

#[test]
fn healthy_servers_in_go() {
    for twin in ["healthy", "bounded"] {
        if let Some(judged) = audit_go(twin) {
            is_clean(&judged);
        }
    }
}

#[test]
#[ignore = "a whole audit of a runtime: minutes on a busy machine"]
fn a_leak_in_python() {
    if let Some(judged) = audit_python("leak") {
        is_named(&judged, "leak-per-connection");
        leaks(&judged, 1_900.0..2_600.0);
    }
}

#[test]
fn healthy_servers_in_python() {
    for twin in ["healthy", "bounded"] {
        if let Some(judged) = audit_python(twin) {
            is_clean(&judged);
        }
    }
}
